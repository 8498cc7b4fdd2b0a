"""What the service asks of the database, as its profiler saw it: commands name the key that decides the shard, so that one shard
does each of them, and nothing starts a transaction; reads see what a majority has, those of lanes nothing from before their tail,
and writes wait for a majority and its journals. The replica set is spoken to as if it were a sharded cluster."""
import collections
import itertools
import json

import pytest

from client import keys
from lanes import Lanes
from receiver import Receiver
from stack import WEBHOOKS, wait_until

PROFILE_BYTES = 64 * 1024 * 1024
KEYED = {"ledger", "buckets", "codes", "code_buckets", "lanes", "totals_positions", "totals", "refusals"}  # sharded by hashed `_id.c`
KEYED_BY_ID = {"coupons"}  # by their hashed `_id`
ORDER = {"id": "o-1", "amount_minor": 4200, "currency": "EUR"}


def by(*members):
    """The filter asks for these."""
    return lambda query: set(query) == set(members)


# What looks over all coupons on purpose, never on the way of a taking: collection, which filters, why.
ACROSS = [
    ("ledger", by("part", "terms"), "the wallet, an erasure, an export, a search: whatever a user has, and whose an order is"),
    ("ledger", by("arrived"), "the start of the reporter or for a webhook: what came lately"),
    ("ledger", by("erasing"), "the sweeper: erasures that were cut short"),
    ("ledger", by("erasing", "terms"), "an erasure and an export: those of the user"),
    ("lanes", by("view.due"), "the sweeper: in which lanes something ends"),
    ("coupons", by("cleaned", "view.cleanup"), "the sweeper: which coupons are over"),
    ("coupons", lambda query: "view.def.state" in query, "lists of coupons, and the wallet's"),
    ("coupons", by(), "a report over all coupons: which there are"),
    ("totals_positions", by(), "a report over all coupons: how far their totals are"),
    ("totals", by("_id.at"), "a report over all coupons"),
    ("refusals", by("_id.at"), "a report over all coupons; and the sweeper: those that are to go"),
    ("codes", by("_id.code", "_id.c"), "resolve: the shop knows only the code; all coupons but the directory"),
    ("coupons", by("view.shared"), "resolve: coupons that share the code"),
    ("ledger", by("$changeStream"), "the reporter's doorbell"),
]

READS = ("find", "aggregate", "count", "distinct", "getMore")
WRITES = ("insert", "update", "delete", "findAndModify", "findandmodify")
# What lanes read beside their tails: not before their checkpoints. Of the rest only the lists read these, as they are.
NOT_BEFORE_A_CHECKPOINT = {"buckets", "codes", "code_buckets"}


def live(stack, coupon, code=None):
    """Every call on a coupon that reads or writes takings."""
    shop, reporting = stack.client("storefront"), stack.client("reporting")
    base = f"/coupons/{coupon}"
    issued = shop.take(coupon, "u1", state="issued", code=code).ok(201)
    held = shop.step(issued, "reserve", order=ORDER).ok(201)
    shop.step(held, "reserve", order=ORDER, reserve_s=1000).ok()
    shop.step(held, "redeem", order=ORDER).ok()
    shop.step(held, "reverse").ok()
    for _ in range(2):
        reserved = shop.take(coupon, "u2", key="again", state="reserved", order=ORDER, metadata={"a": 1}).ok(201)
    shop.step(reserved, "cancel").ok()
    shop.take(coupon, "u3").ok(201)
    shop.take(coupon, "u3").problem("user_cap_reached")
    shop.post(f"{base}/check", {"user": "u4"}).ok()
    items = [{"key": f"b{i}", "user": f"v{i}", "state": ["issued", "reserved", "redeemed"][i % 3]} for i in range(12)]
    assert {item["status"] for item in shop.post(f"{base}/redemptions/batch", {"items": items}).ok()["items"]} == {201}
    for target in (f"/redemptions/{reserved['id']}", "/redemptions", "/redemptions?user=u2", "/users/u1"):
        shop.get(base + target).ok()
    for target in ("/counts", "/ledger", "/reports?period=day", "/refusals"):
        reporting.get(base + target).expect(200)
    for target in ("/users/u1", "/redemptions?user=u1", "/redemptions?order=o-1"):
        shop.get(f"/coupons/-{target}").ok()
    stack.client("ops").get("/coupons/-/users/u1/export").expect(200)
    stack.patch(coupon, {"title": "another"})
    return base


def live_with_slots(stack, coupon, code=None):
    base = live(stack, coupon, code)
    reporting, ops = stack.client("reporting"), stack.client("ops")
    for target in ("/slots", "/slots/0"):
        reporting.get(base + target).ok()
    stack.job(ops.post(f"{base}/slots/retire", {"count": 5}, idempotency_key=f"k-{next(keys)}").expect(202))


def live_with_codes(stack, coupon, code):
    live_with_slots(stack, coupon, code)
    shop, ops, base = stack.client("storefront"), stack.client("ops"), f"/coupons/{coupon}"
    ops.get(f"{base}/codes").expect(200)
    ops.get(f"{base}/codes/{code}").ok()
    ops.post(f"{base}/codes/{code}/retire")
    shop.post("/coupons/-/resolve", {"code": code, "user": "u1"}).ok()


def live_with_present_codes(stack, coupon, code):
    """Which must be sent, and may be typed anyhow."""
    shop = stack.client("storefront")
    typed = f" {code.lower().replace('-', ' ')}"
    shop.take(coupon, "u1").problem("code_required")
    shop.take(coupon, "u1", code=f"{code}-WRONG").problem("code_not_found")
    assert shop.post("/coupons/-/resolve", {"code": typed, "user": "u1"}).ok()["items"]
    held = shop.take(coupon, "u1", code=typed, state="reserved", order=ORDER).ok(201)
    shop.take(coupon, "u2", code=typed).problem("transaction_in_progress")
    shop.step(held, "redeem", order=ORDER).ok()


def live_with_lanes(stack, coupon):
    """Until its lanes have nothing left, and have asked each other."""
    live(stack, coupon)
    shop = stack.client("storefront")
    refused = next(reply for i in itertools.count() if (reply := shop.take(coupon, f"last-{i}")).status != 201)
    refused.problem("sold_out")
    return Lanes(stack, coupon).check()


def tells_of(stack, coupon):
    """The metrics do, once the runner has heard that somebody reads them."""
    return f'coupons_coupon_taken{{coupon="{coupon}"}}' in stack.client("ops").get("/coupons/-/metrics").body.decode()


def live_whole(stack, receiver):
    """All kinds of coupons, all kinds of calls, the background work, and a worker that starts anew."""
    ops, shop = stack.client("ops"), stack.client("storefront")
    stack.kill("runner")  # what it does each ten minutes, it does at its start
    ops.post("/coupons/-/webhooks", {"url": receiver.url}).expect(201)
    slots = stack.coupon(300)
    live_with_slots(stack, slots)
    assert live_with_lanes(stack, stack.coupon(40, lanes=3, cap={"total": 40})).moves("to"), "no lane asked another"
    live_with_lanes(stack, stack.coupon(lanes=3, cap={"policy": "approximate", "total": 20}))
    typed = stack.imported([f"TYPED-{i}" for i in range(20)], codes={"match": "loose"})
    live_with_present_codes(stack, typed, "TYPED-7")
    imported = stack.imported([f"CODE-{i}" for i in range(200)], cap={"per_user": 1}, codes={"claim": "any", "unique": "service"})
    live_with_codes(stack, imported, "CODE-150")
    generated = stack.coupon(100, codes={"source": "generated", "pick": "random"})
    live_with_slots(stack, generated)
    live(stack, stack.coupon(cap={"policy": "none", "total": None}))
    short = stack.coupon(3, reserve_s=1)
    held = shop.take(short, "e", state="reserved").ok(201)["id"]
    wait_until("a hold to expire", lambda: stack.client("reporting").get(f"/coupons/{short}/counts").ok()["reserved"] == 0)
    shop.get(f"/coupons/{short}/redemptions/{held}").ok()
    ops.get("/coupons").ok()
    for coupons in ("", "&group=coupon", f"&coupon={slots},{typed}"):
        ops.get(f"/coupons/-/reports?period=day{coupons}").ok()
    ops.delete(f"/coupons/{stack.coupon(0)}").expect(204)
    ops.delete("/coupons/-/users/u1").expect(204)
    wait_until("the metrics to tell of a coupon", lambda: tells_of(stack, slots), every=0.5)
    wait_until("the checkpoints of all lanes", lambda: stack.is_written(*stack.database.ledger.distinct("_id.c")))
    stack.kill_workers()
    wait_until("the workers to answer", lambda: all(
        stack.client("reporting").get(f"/coupons/{c}/counts", may_fail=True).status == 200 for c in (slots, imported, generated)))
    since = stack.mongo.admin.command("hello")["localTime"]
    live_anew(shop, slots, typed, imported)
    wait_until("events", lambda: len(receiver.events) > 50)
    wait_until(lambda: f"whoever may look over all coupons: {idle(stack)}", lambda: not idle(stack), every=1)
    return since


def idle(stack):
    """Why it is allowed to look over all coupons, of those who have not done it yet: the sweeper does each ten seconds."""
    return {why for _, _, why in ACROSS} - Seen(stack.database["system.profile"].find({"appName": "coupons"})).exempt


def live_anew(shop, slots, typed, imported):
    """In lanes that another worker loads from their checkpoints: each kind of their reads, and no list."""
    shop.take(slots, "last").ok(201)
    held = shop.take(slots, "u2", key="another", state="reserved", order=ORDER)
    assert held.status in (201, 409), held
    shop.take(typed, "u7", code="TYPED-9").ok(201)
    shop.take(imported, "u8").ok(201)
    shop.take(imported, "u9", code="CODE-111").ok(201)


# ---- what was seen ----

def is_exact(value):
    """A value, and no operator."""
    return not isinstance(value, dict) or not any(name.startswith("$") for name in value)


def has_key(collection, query):
    """The filter says which coupons: by the whole `_id`, or by `_id.c`."""
    if any(has_key(collection, part) for part in query.get("$and", [])):
        return True
    coupon = query.get("_id" if collection in KEYED_BY_ID else "_id.c", {"$any": 1})
    return ("_id" in query and is_exact(query["_id"])) or is_exact(coupon) or set(coupon) == {"$in"}


def filters(entry):
    """The filters of a profiled command; an insert's are the `_id`s of its documents."""
    command = entry["originatingCommand"] if entry["op"] == "getmore" else entry["command"]
    if entry["op"] == "insert":
        return [{"_id": d["_id"]} for d in command["documents"]]
    if entry["op"] in ("update", "remove"):
        return [command["q"]]
    if "pipeline" in command:
        first = command["pipeline"][0]
        return [first["$match"] if "$match" in first else {"$changeStream": 1}]
    return [command.get("filter", command.get("query", {}))]


def exemption(collection, query):
    """Why it need not name its coupon; None: it must."""
    return next((why for c, matches, why in ACROSS if collection == c and matches(query)), None)


class Seen:
    """What the profiler's entries say: how many commands there were, which are `bad`, which exemptions were made use of; how many
    reads came `since` then, when all lanes had checkpoints, and lanes' reads have to be not before those."""

    def __init__(self, entries, since=None):
        self.commands, self.bad, self.exempt = collections.Counter(), collections.Counter(), set()
        self.since, self.after = since, collections.Counter()
        for entry in entries:
            self._look(entry, entry["ns"].partition(".")[2])
            self._look_at_concern(entry, entry["ns"].partition(".")[2])

    def _look_at_concern(self, entry, collection):
        if not set(READS) & set(entry["command"]):
            return
        concern, query = entry.get("readConcern", {}), filters(entry)[0]
        if concern.get("level") not in ("majority", "linearizable", "snapshot"):  # a snapshot is of what a majority has
            self.bad[collection, f"reads {concern.get('level')}", str(query)[:300]] += 1
        if not self.since or entry["ts"] < self.since or not has_key(collection, query):
            return
        self.after[collection] += "afterClusterTime" in concern
        if collection in NOT_BEFORE_A_CHECKPOINT and "afterClusterTime" not in concern:
            self.bad[collection, "reads perhaps what was before the checkpoint", str(query)[:300]] += 1

    def _look(self, entry, collection):
        if {"startTransaction", "autocommit"} & set(entry["command"]):
            self.bad["a transaction", str(entry["command"])[:300]] += 1
        for query in filters(entry) if collection in KEYED | KEYED_BY_ID else []:
            self.commands[collection, entry["op"]] += 1
            keyed = has_key(collection, query)
            why = None if keyed else exemption(collection, query)
            self.exempt.add(why)
            if not keyed and not why:
                self.bad[collection, entry["op"], str(query)[:300]] += 1
            if collection in KEYED and entry.get("planSummary") == "COLLSCAN" and "$changeStream" not in query:
                self.bad[collection, "reads the whole collection", str(query)[:300]] += 1


class Written:
    """What the lines of the server's log say of commands that write: how many there were, and which need not be there for good."""

    def __init__(self, lines):
        self.commands, self.bad = collections.Counter(), collections.Counter()
        for line in map(json.loads, filter(None, lines)):  # mongod begins with an empty line in a log that is there
            if line["msg"] == "Slow query" and line["attr"].get("appName") == "coupons":
                self._look(line["attr"], line["attr"].get("command", {}))

    def _look(self, attributes, command):
        name = next(iter(command), None)  # a command begins with its name
        if attributes["type"] != "command" or name not in WRITES:
            return
        concern = attributes.get("writeConcern", {})
        self.commands[name, command[name]] += 1
        if (concern.get("w"), concern.get("j")) != ("majority", True):
            self.bad[name, command[name], str(concern)] += 1


@pytest.fixture
def profiled(another_stack, monkeypatch):
    """A copy that speaks as to a sharded cluster, and a function that returns what was profiled, and logged of what was written."""
    monkeypatch.setenv("COUPONS_TEST_SHARDED", "1")
    stack = another_stack(WEBHOOKS)
    stack.database.create_collection("system.profile", capped=True, size=PROFILE_BYTES)
    stack.database.command("profile", 2, slowms=-1, sampleRate=1.0)
    log = stack.var / "log" / "mongod.log"

    def stop():
        stack.database.command("profile", 0, slowms=100, sampleRate=0.0)
        assert stack.database.command("collstats", "system.profile")["size"] < 0.9 * PROFILE_BYTES, "the first entries may be gone"
        return list(stack.database["system.profile"].find({"appName": "coupons"})), log.read_text().splitlines()

    yield stack, stop
    stack.verify()


@pytest.mark.full
def test_commands_name_their_shard_and_their_concerns_and_none_starts_a_transaction(profiled):
    stack, stop = profiled
    with Receiver() as receiver:
        since = live_whole(stack, receiver)
    entries, lines = stop()
    seen, written = Seen(entries, since), Written(lines)
    assert not seen.bad, "\n".join(f"{count} x {what}" for what, count in seen.bad.most_common())
    assert not written.bad, "\n".join(f"{count} x {what}" for what, count in written.bad.most_common())
    missed = {c for c in KEYED - {"totals"} if not any(c == name for _, name in written.commands)}
    assert not missed, f"the log has no writing of {missed}: {written.commands}"
    missed = (NOT_BEFORE_A_CHECKPOINT | KEYED_BY_ID) - {c for c, count in seen.after.items() if count}
    assert not missed, f"no lane has read {missed} not before its checkpoint: {seen.after}"
    missed = {(c, op) for c in KEYED for op in ("query", "insert")} - set(seen.commands)
    missed -= {(c, "insert") for c in ("lanes", "totals_positions", "refusals")}  # those are upserts
    assert not missed, f"the profiler saw none of {missed}: {seen.commands}"
    started = stack.mongo.admin.command("serverStatus")["transactions"]["totalStarted"]
    assert started == 0, f"{started} transactions were started"


BUCKET = {"c": "sale", "b": 7}
PLANTED = {
    "a bucket without a coupon": ("buckets", "query", {"filter": {"_id.b": 7, "view.seq": 5}}),
    "an update without the key": ("buckets", "update", {"q": {"view.seq": {"$lt": 5}}, "u": {}}),
    "buckets removed by a range": ("buckets", "remove", {"q": {"_id": {"$gt": BUCKET}}}),
    "several buckets without their coupon": ("buckets", "query", {"filter": {"_id": {"$in": [BUCKET]}}}),
    "a range of a ledger without its coupon": ("ledger", "command", {"pipeline": [{"$match": {"_id": {"$gt": {"c": "sale", "l": 0}}}}]}),
    "everything": ("totals", "query", {}),
    "a definition by its title": ("coupons", "query", {"filter": {"view.def.title": "x"}}),
    "a transaction": ("buckets", "query", {"filter": {"_id": BUCKET}, "startTransaction": True, "autocommit": False}),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_command_without_its_key_would_be_seen(what):
    collection, op, command = PLANTED[what]
    assert Seen([{"ns": f"coupons.{collection}", "op": op, "command": command}]).bad


CONCERNS = {
    "a read of what can roll back": ("ledger", {"level": "local"}),
    "a bucket that can be before the checkpoint": ("buckets", {"level": "majority"}),
    "codes that can be before the checkpoint": ("codes", {"level": "majority"}),
}


@pytest.mark.parametrize("what", CONCERNS)
def test_a_read_that_is_too_weak_would_be_seen(what):
    collection, concern = CONCERNS[what]
    entry = {"ns": f"coupons.{collection}", "op": "query", "ts": 2, "readConcern": concern,
             "command": {"find": collection, "filter": {"_id": BUCKET}}}
    assert Seen([entry], since=1).bad
    entry["readConcern"] = {"level": "majority", "afterClusterTime": 1}
    assert not Seen([entry], since=1).bad


@pytest.mark.parametrize("concern", [{"w": 1, "j": True}, {"w": "majority"}, {"w": "majority", "j": False}, {}])
def test_a_write_that_can_be_lost_would_be_seen(concern):
    line = {"msg": "Slow query", "attr": {"type": "command", "appName": "coupons", "command": {"update": "buckets"}, "writeConcern": concern}}
    assert Written([json.dumps(line)]).bad
    line["attr"]["writeConcern"] = {"w": "majority", "j": True}
    assert not Written([json.dumps(line)]).bad


def test_a_scan_of_a_whole_collection_would_be_seen():
    entry = {"ns": "coupons.buckets", "op": "query", "command": {"filter": {"_id": BUCKET}}}
    assert not Seen([entry]).bad and Seen([{**entry, "planSummary": "COLLSCAN"}]).bad
