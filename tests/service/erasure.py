"""Erasing a user, and looking for what is left of a name, anywhere in the database."""
import re
import urllib.parse

import bson
import bson.raw_bson


def erase(stack, user):
    stack.client("ops").delete(f"/coupons/-/users/{urllib.parse.quote(user, safe='')}").expect(204)


def matches(batches, pattern):
    """(document, what was found) of raw batches. The bytes of a whole batch are searched first: few have any."""
    for batch in batches:
        if pattern.search(batch):
            for document in bson.decode_all(batch, bson.CodecOptions(bson.raw_bson.RawBSONDocument)):
                for what in sorted(set(pattern.findall(document.raw))):
                    yield bson.decode(document.raw), what


def found(stack, pattern):
    """(collection, _id, what was found) wherever the pattern, of bytes, stands in a document; and (collection.index, key, what was
    found) wherever it stands in an index."""
    for name in stack.database.list_collection_names():
        collection = stack.database[name]
        for document, what in matches(collection.find_raw_batches(), pattern):
            yield name, document["_id"], what
        for index, about in collection.index_information().items():
            keys = collection.find_raw_batches(about.get("partialFilterExpression", {}), return_key=True, hint=index)
            for key, what in matches(keys, pattern):
                yield f"{name}.{index}", key, what


def traces(stack, *words):
    """Where in the database one of the words stands."""
    return [(name, document) for name, document, _ in found(stack, re.compile(b"|".join(re.escape(w.encode()) for w in words)))]
