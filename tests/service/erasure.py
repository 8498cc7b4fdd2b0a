"""Erasing a user, and looking for what is left of a name, anywhere in the database."""
import re
import urllib.parse

import bson
import bson.raw_bson


def erase(stack, user):
    stack.client("ops").delete(f"/coupons/-/users/{urllib.parse.quote(user, safe='')}").expect(204)


def found(stack, pattern):
    """(collection, _id, what was found) wherever the pattern, of bytes, stands in a document; the `_id` of a user's tombstone is
    passed over."""
    raw = bson.CodecOptions(bson.raw_bson.RawBSONDocument)
    for name in stack.database.list_collection_names():
        for document in stack.database.get_collection(name, codec_options=raw).find():
            for what in sorted(set(pattern.findall(document.raw))):
                whole = bson.decode(document.raw)
                if name != "users" or whole["_id"]["u"].encode() != what or what in bson.encode({**whole, "_id": 0}):
                    yield name, whole["_id"], what


def traces(stack, *words):
    """Where in the database one of the words stands."""
    return [(name, document) for name, document, _ in found(stack, re.compile(b"|".join(re.escape(w.encode()) for w in words)))]
