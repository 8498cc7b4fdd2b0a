"""Erasing a user, and looking for what is left of a name, anywhere in the database."""
import re
import urllib.parse

import bson
import bson.raw_bson


def erase(stack, user):
    stack.client("ops").delete(f"/coupons/-/users/{urllib.parse.quote(user, safe='')}").expect(204)


def found(stack, pattern):
    """(collection, _id, what was found) wherever the pattern, of bytes, stands in a document; and (collection.index, key, what was
    found) wherever it stands in an index."""
    raw = bson.CodecOptions(bson.raw_bson.RawBSONDocument)
    for name in stack.database.list_collection_names():
        collection = stack.database.get_collection(name, codec_options=raw)
        for document in collection.find():
            for what in sorted(set(pattern.findall(document.raw))):
                yield name, bson.decode(document.raw)["_id"], what
        for index, about in stack.database[name].index_information().items():
            for key in collection.find(about.get("partialFilterExpression", {}), return_key=True, hint=index):
                for what in sorted(set(pattern.findall(key.raw))):
                    yield f"{name}.{index}", bson.decode(key.raw), what


def traces(stack, *words):
    """Where in the database one of the words stands."""
    return [(name, document) for name, document, _ in found(stack, re.compile(b"|".join(re.escape(w.encode()) for w in words)))]
