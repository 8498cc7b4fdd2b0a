"""couponctl verify sees each member of each stored document, or the table of members says why it need not."""
import copy
import datetime
import re

import bson
import pytest

from stack import ROOT, Stack
from test_reconcile import Quiet

ROW = re.compile(r'^    \{"(\w+)", (?:"(\w+)"|(ALL)|#\w+), FORM_(\w+), (?:NONE|".+")\},', re.M)
COUNT = re.compile(r"X\((\w+)\)")
UNHASHED = {"part", "terms", "due", "who", "erasing", "arrived", "zz"}  # the rest of a batch: test_form.c


def table():
    """{(collection, member): check}, as store/form.c has it."""
    text = (ROOT / "app/store/form.c").read_text()
    rows = {(collection, member or "*"): check for collection, member, every, check in ROW.findall(text) if member or every}
    fold = (ROOT / "app/coupons/fold.h").read_text()
    counts = COUNT.findall(fold[fold.index("define REPORT_COUNTS_FIELDS"):fold.index("void fold_report")])
    assert len(rows) > 30 and "redeemed" in counts
    return {**rows, **{("totals", member): "REPLAYED" for member in counts}}


TABLE = table()


@pytest.fixture(scope="module")
def quiet(stack):
    with Stack(beside=stack) as own:
        yield Quiet(own)


def is_derived(collection, member):
    """Also what nobody writes."""
    return TABLE.get((collection, member)) != "NOT_DERIVED"


def test_each_member_of_each_document_is_in_the_table(quiet):
    missing = {(name, member) for name in quiet.database.list_collection_names() for d in quiet.database[name].find() for member in d
               if (name, member) not in TABLE and (name, "*") not in TABLE}
    assert not missing, missing


def documents(quiet):
    """(coupon, collection, document): together they have each member that a coupon's documents may have."""
    for name in ("coupons", "lanes", "buckets", "totals", "totals_positions", "codes", "code_buckets", "ledger"):
        seen = set()
        for coupon in quiet.coupons:
            for d in quiet.database[name].find({"_id" if name == "coupons" else "_id.c": coupon}).sort("_id", -1):
                members = {m for m in d} | {f"view.{m}" for m in d.get("view", ()) if isinstance(d["view"], dict)}
                if not members <= seen:
                    seen |= members
                    yield coupon, name, d


def other(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, bson.Int64)):
        return bson.Int64(value + 1)
    if isinstance(value, str):
        return value + "z"
    if isinstance(value, datetime.datetime):
        return value + datetime.timedelta(40_000 if value.year < 2100 else -1)
    if isinstance(value, bson.Timestamp):
        return bson.Timestamp(value.time + 10**6, value.inc)
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, list) and isinstance(value[0], str):
        return [value[0] + "z", *value[1:]]
    if isinstance(value, list):
        return [*value, copy.deepcopy(value[-1])]
    if isinstance(value, dict):
        return {**value, "zz": 1}
    return "z"


def changes(d):
    """(which member, the document with it changed, left out, or with one that nobody writes)."""
    for member in d:
        if member != "_id":
            yield member, {**d, member: other(d[member])}
            yield member, {name: value for name, value in d.items() if name != member}
    for member in d.get("view", ()):
        view = d["view"]
        yield "view", {**d, "view": {**view, member: other(view[member])}}
        yield "view", {**d, "view": {name: value for name, value in view.items() if name != member}}
    for member, stray in (("zz", 1), ("erasing", ["aaaaaaaaaaaaaaaa"]), ("due", [datetime.datetime(2026, 1, 1)]), ("cleaned", True), ("o", "z")):
        if member not in d:
            yield member, {**d, member: stray}


@pytest.mark.full
def test_each_member_is_compared_or_is_named_as_not_derived(quiet):
    unseen, wrongly_seen = [], []
    for coupon, name, d in documents(quiet):
        for member, changed in changes(d):
            if name == "ledger" and member not in UNHASHED:
                continue
            documents_of = quiet.database[name]
            documents_of.replace_one({"_id": d["_id"]}, changed)
            try:
                done = quiet.stack.couponctl("verify", coupon)
            finally:
                documents_of.replace_one({"_id": d["_id"]}, d)
            assert done.returncode in (0, 1) or "event=store.unreadable" in done.stdout, done.stdout
            derived = is_derived(name, member)
            what = (coupon, name, member, {m for m in {**d, **changed} if d.get(m) != changed.get(m)}, str(changed)[:300])
            if derived and done.returncode == 0:
                unseen.append(what)
            if not derived and done.returncode and member in changed: # without it, it cannot be read
                wrongly_seen.append((*what, done.stdout))
    assert not unseen, "\n".join(map(str, unseen))
    assert not wrongly_seen, "\n".join(map(str, wrongly_seen))
