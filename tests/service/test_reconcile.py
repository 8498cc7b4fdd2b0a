"""couponctl verify and reconcile over the whole life of slots: each kind of damage is found, said and repaired, and nothing else."""
import concurrent.futures
import copy
import datetime
import re

import bson
import pytest

from stack import SLOW_DATABASE, Stack, wait_until, write_settings
from swarm import Swarm, by_code, takers

VIEWS = ("lanes", "buckets", "coupons", "totals", "totals_positions", "codes")
FAULT = re.compile(r"^(?P<coupon>[\w-]+): (?P<kind>\w+): (?P<count>\d+) (?P<fault>missing|behind|different|superfluous): (?P<names>.*)$")


class Quiet:
    """A stack whose service can be stopped while its database stays."""

    def __init__(self, stack):
        self.stack, self.database = stack, stack.database
        self.coupons = [live(stack), service_wide(stack), without_slots(stack)]
        for coupon in self.coupons:
            settled(stack, coupon)
        stack.verify()
        stack.rest()

    def run(self, *arguments):
        done = self.stack.couponctl("reconcile", *arguments)
        faults = {}
        for line in done.stdout.splitlines():
            if m := FAULT.match(line):
                faults[m["kind"], m["fault"]] = faults.get((m["kind"], m["fault"]), 0) + int(m["count"])
        return done, faults

    def image(self):
        """Everything that is stored of coupons."""
        return {name: {bson.encode(d) for d in self.database[name].find()} for name in (*VIEWS, "ledger", "code_buckets")}

    def verify(self, status=0):
        return self.stack.ctl("verify", status=status)


def settled(stack, coupon):
    """Checkpoint and totals are written up to the coupon's seq, and no erasure has names left."""
    wait_until("checkpoint and totals", lambda: stack.is_written(coupon))
    wait_until("the erasures", lambda: not stack.database.ledger.find_one({"_id.c": coupon, "erasing": {"$exists": True}}))


def live(stack):
    """Every kind of thing that can happen to a slot, and a user who was erased and is back."""
    coupon = stack.coupon(slots=70, cap={"total": 70, "per_user": 5}, codes={"source": "generated"}, low_stock=69,
                          discount={"kind": "amount", "amount_minor": 5, "currency": "EUR"}, valid_for_s=86400)
    storefront = stack.client("storefront")
    take, step = storefront.take, storefront.step
    for user in ("a", "a", "b", "gone", "back"):
        take(coupon, user).expect(201)
    issued = [take(coupon, user, state="issued").ok(201) for user in ("c", "c", "d", "gone")]
    holds = [step(issued[i], "reserve", order={"id": f"o-{i + 1}", "currency": "EUR"}).ok(201) for i in range(3)]
    step(holds[0], "redeem").expect(200)
    step(holds[1], "cancel").expect(200)
    step(take(coupon, "e", state="reserved").ok(201), "reserve", reserve_s=3000).expect(200)
    step(take(coupon, "f").ok(201), "reverse").expect(200)
    for user in ("gone", "back"):
        stack.client("ops").delete(f"/coupons/-/users/{user}").expect(204)
    take(coupon, "back").expect(201)
    return coupon


def service_wide(stack):
    """Codes that no other coupon has."""
    return stack.coupon(slots=5, cap={"total": 5}, codes={"source": "generated", "unique": "service"})


def without_slots(stack):
    """One hold ends, and nothing else. One user was erased."""
    coupon = stack.coupon(cap={"policy": "none", "total": None, "per_user": 3})
    stack.client("storefront").take_each(coupon, ("a", "b", "left"), state="issued")
    stack.client("ops").delete("/coupons/-/users/left").expect(204)
    stack.client("storefront").take(coupon, "c", state="reserved", reserve_s=3000).expect(201)
    return coupon


@pytest.fixture(scope="module")
def module_stack():
    with Stack() as s:
        yield s


@pytest.fixture(scope="module")
def quiet(module_stack):
    return Quiet(module_stack)


# ---- damage, one by one ----

def view(**members):
    def change(d):
        assert set(members) <= set(d["view"]), f"{set(members) - set(d['view'])} is not in {d['view']}"
        d["view"].update(members)
    return change


def slot_of(user, **members):
    """Of a bucket's slot that this user has."""
    def change(d):
        next(t for t in d["view"]["t"] if t.get("u") == user).update(members)
    return change


def member(**members):
    def change(d):
        assert set(members) <= set(d), f"{set(members) - set(d)} is not in {d}"
        d.update(members)
    return change


def without(*path):
    def change(d):
        for name in path[:-1]:
            d = d[name]
        del d[path[-1]]
    return change


def batch_of(user):
    """Their first batch."""
    return "ledger", {"who.u": user}


BUCKET = "buckets", {"_id.b": 0}
LANE = "lanes", {}
POSITION = "totals_positions", {}
SWEPT = "lanes", {"view.due": {"$exists": True}}
HOLD = "ledger", {"due": {"$exists": True}}
LOOK_UP = "codes", {"n": 3}
GONE = None
# what: (collection, which document), the change, and what reconcile must call it
DAMAGE = {
    "a term that is gone": (batch_of("a"), lambda d: d["terms"].pop(), {("ledger", "different"): 1}),
    "a term of nobody": (batch_of("a"), lambda d: d["terms"].append(bson.Int64(2**63 - 1)), {("ledger", "different"): 1}),
    "terms of an order in another order": (batch_of("e"), lambda d: d["terms"].insert(0, bson.Int64(2**63 - 1)), {("ledger", "different"): 1}),
    "a batch without terms": (batch_of("b"), without("terms"), {("ledger", "different"): 1}),
    "terms that cannot be read": (batch_of("b"), member(terms="many"), {("ledger", "different"): 1}),
    "a batch in no part": (batch_of("a"), member(part="none"), {("ledger", "different"): 1}),
    "a batch without a part": (batch_of("a"), without("part"), {("ledger", "different"): 1}),
    "a batch in another part": (batch_of("a"), member(part=bson.Int64(64)), {("ledger", "different"): 1}),
    "a job's term": (("ledger", {"e.job": {"$exists": True}}), lambda d: d["terms"].pop(), {("ledger", "different"): 1}),
    "an end of what has a slot": (batch_of("e"), lambda d: d.update(due=[bson.Int64(5)]), {("ledger", "different"): 1}),
    "a hold's end": (HOLD, lambda d: d["due"].__setitem__(0, d["due"][0] + datetime.timedelta(1)), {("ledger", "different"): 1}),
    "a hold's end that is gone": (HOLD, without("due"), {("ledger", "different"): 1}),
    "a slot's owner": (BUCKET, slot_of("a", u="z"), {("buckets", "different"): 1}),
    "a slot's hold": (BUCKET, slot_of("e", s="redeemed"), {("buckets", "different"): 1}),
    "a name that was forgotten": (BUCKET, lambda d: next(t for t in d["view"]["t"] if "u" not in t and t["s"] == "redeemed")
                                  .update(u="gone"), {("buckets", "different"): 1}),
    "a bucket's count": (BUCKET, view(free=0), {("buckets", "different"): 1}),
    "a bucket's lane": (BUCKET, view(lane=2), {("buckets", "different"): 1}),
    "a bucket that is gone": (BUCKET, GONE, {("buckets", "missing"): 1}),
    "a bucket that cannot be read": (BUCKET, view(free=65), {("buckets", "different"): 1}),
    "a bucket too many": (BUCKET, lambda d: d["_id"].update(b=9),
                          {("buckets", "superfluous"): 1, ("buckets", "missing"): 1}),
    "a definition": (("coupons", {}), lambda d: d["view"]["def"].update(title="Forged"), {("coupons", "different"): 1}),
    "a definition's making": (("coupons", {}), without("created"), {("coupons", "different"): 1}),
    "a definition that is gone": (("coupons", {}), GONE, {("coupons", "missing"): 1}),
    "a definition that cannot be read": (("coupons", {}), without("view", "def"), {("coupons", "different"): 1}),
    "totals": (("totals", {}), member(redeemed=99), {("totals", "different"): 1}),
    "totals that are gone": (("totals", {}), GONE, {("totals", "missing"): 1}),
    "totals of nothing": (("totals", {}), lambda d: d["_id"].update(at=bson.datetime_ms.DatetimeMS(900000)),
                          {("totals", "superfluous"): 1, ("totals", "missing"): 1}),
    "totals that cannot be read": (("totals", {}), member(redeemed="some"), {("totals", "different"): 1}),
    "a checkpoint beyond the ledger": (LANE, view(seq=10**6), {("lanes", "different"): 1}),
    "a checkpoint that is behind": (LANE, view(seq=1), {("lanes", "behind"): 1}),
    "a checkpoint that is gone": (LANE, GONE, {("lanes", "missing"): 1}),
    "a checkpoint that cannot be read": (LANE, view(seq="many"), {("lanes", "different"): 1}),
    "a checkpoint without an end": (LANE, without("view", "due"), {("lanes", "different"): 1}),
    "an end that is late": (LANE, lambda d: view(due=d["view"]["due"] + datetime.timedelta(1))(d), {("lanes", "different"): 1}),
    "an end that is early": (LANE, lambda d: view(due=d["view"]["due"] - datetime.timedelta(1))(d), {}),
    "swept beyond the database's time": (LANE, lambda d: d["view"].update(swept=d["view"]["swept"] + datetime.timedelta(40_000)),
                                         {("lanes", "different"): 1}),
    "swept beyond what stands": (SWEPT, lambda d: d["view"].update(swept=d["view"]["due"] + datetime.timedelta(1)), {("lanes", "different"): 1}),
    "the reporter's position beyond the ledger": (POSITION, member(seq=10**6), {("totals_positions", "different"): 1}),
    "the reporter's position that is gone": (POSITION, GONE, {("totals_positions", "missing"): 1}),
    "the reporter's position that cannot be read": (POSITION, without("seq"), {("totals_positions", "different"): 1}),
    "the reporter's position without a time": (POSITION, without("at"), {("totals_positions", "different"): 1}),
    "a look-up": (LOOK_UP, member(n=4), {("codes", "different"): 1}),
    "a look-up that is gone": (LOOK_UP, GONE, {("codes", "missing"): 1}),
    "a look-up of nothing": (LOOK_UP, lambda d: d["_id"].update(code="NOWHERE"),
                             {("codes", "superfluous"): 1, ("codes", "missing"): 1}),
}
HARMLESS = {"a checkpoint that is behind", "a checkpoint that is gone", "an end that is early", "the reporter's position that is gone"}
WITHOUT_SLOTS = {"a hold's end", "a hold's end that is gone", "swept beyond what stands"}  # of that coupon


class Damaged:
    """A document of the coupon changed, and put back."""

    def __init__(self, database, coupon, which, change):
        collection, query = which
        self.documents = database[collection]
        self.good = self.documents.find_one({"_id" if collection == "coupons" else "_id.c": coupon, **query})
        assert self.good, f"there is no {query} in {collection}"
        self.bad = copy.deepcopy(self.good)
        if change:
            change(self.bad)
            assert self.bad != self.good, "the damage is none"
        self.gone = change is None

    def __enter__(self):
        self.documents.delete_one({"_id": self.good["_id"]})
        if not self.gone:
            self.documents.insert_one(self.bad)

    def __exit__(self, *_):
        self.documents.delete_one({"_id": self.bad["_id"]})
        self.documents.replace_one({"_id": self.good["_id"]}, self.good, upsert=True)


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_told_and_mended_and_nothing_else_is_touched(quiet, what):
    which, change, faults = DAMAGE[what]
    coupon = quiet.coupons[2 if what in WITHOUT_SLOTS else 0]
    good = quiet.image()
    with Damaged(quiet.database, coupon, which, change):
        answered = quiet.verify(status=0 if what in HARMLESS else 1)
        in_parts = quiet.stack.couponctl("verify", "--parts=3")
        assert sorted(in_parts.stdout.splitlines()) == sorted(answered.splitlines()), "in parts something else is found"
        bad = quiet.image()
        done, said = quiet.run(coupon)
        assert said == faults, f"expected {faults}\n{done.stdout}"
        assert done.returncode == (1 if faults else 0), done.stdout
        assert quiet.image() == bad, "it changed something without --apply"
        done, said = quiet.run("--apply", coupon)
        assert (done.returncode, said) == (0, faults), done.stdout
        quiet.verify()
        repaired = quiet.image()
        for name in (*VIEWS, "ledger", "code_buckets"):
            touched = {bson.decode(d)["_id"].__repr__() for d in good[name] ^ repaired[name]}
            # a look-up loses who imported it; a batch gets its members in another
            # order: but only what was damaged
            assert len(touched) <= (name == which[0]), f"{name}: {touched}"
        assert by_id(good["ledger"]) == by_id(repaired["ledger"])


def by_id(documents):
    return {repr(d["_id"]): d for d in map(bson.decode, documents)}


LOST = {
    "a code that is gone": lambda codes: codes.__setitem__(3, None),
    "a code twice": lambda codes: codes.__setitem__(3, codes[4]),
    "a code that a user has": lambda codes: codes.__setitem__(0, "WHOLLY-OTHER"),
}


@pytest.mark.parametrize("what", LOST)
def test_a_lost_code_is_found_and_reconcile_does_not_make_one_up(quiet, what):
    def change(d):
        LOST[what](d["codes"])

    coupon = quiet.coupons[0]
    with Damaged(quiet.database, coupon, ("code_buckets", {"_id.b": 0}), change):
        text = quiet.verify(status=1)
        assert f"{coupon}: codes slot " in text or "|code" in text or "code: expected" in text, text
        before = quiet.database.code_buckets.find_one({"_id": {"c": coupon, "b": 0}})
        quiet.run(coupon)
        assert quiet.database.code_buckets.find_one({"_id": {"c": coupon, "b": 0}}) == before
    quiet.verify()


@pytest.mark.parametrize("change, fault", [(None, "missing"), (member(n=77), "different")], ids=["gone", "of another slot"])
def test_the_directory_of_the_service_is_mended(quiet, change, fault):
    coupon = quiet.coupons[1]
    entry = quiet.database.codes.find_one({"_id.c": "-", "o": coupon})
    with Damaged(quiet.database, "-", ("codes", {"_id": entry["_id"]}), change):
        quiet.verify(status=1)
        done, said = quiet.run("--apply", coupon)
        assert (done.returncode, said) == (0, {("codes", fault): 1}), done.stdout
        quiet.verify()
        assert quiet.database.codes.find_one({"_id": entry["_id"]})["o"] == coupon


def test_a_directory_that_names_another_coupon_is_left_to_a_person(quiet):
    coupon = quiet.coupons[1]
    with Damaged(quiet.database, "-", ("codes", {"o": coupon}), member(o="other")):
        assert "expected this coupon, found coupon other" in quiet.verify(status=1)
        done, said = quiet.run("--apply", coupon)
        assert done.returncode == 1 and "cannot be rebuilt" in done.stdout and said == {}, done.stdout


# ---- everything at once ----

def essence(database, coupons):
    """What they say, without who drafted a look-up, and how far a lane was swept. An end may
    be early."""
    out = {name: {repr(d["_id"]): d for d in database[name].find()} for name in VIEWS}
    for d in out["codes"].values():
        for loose in ("w", "j", "r"):
            d.pop(loose, None)
    for d in out["lanes"].values():
        for loose in ("due", "swept", "swept_seq"):
            d["view"].pop(loose, None)
    return out


@pytest.mark.parametrize("parts", [[], ["--parts=3"]], ids=["whole", "in parts"])
def test_all_that_is_beside_the_ledger_is_rebuilt_from_nothing(quiet, parts):
    before = essence(quiet.database, quiet.coupons)
    for name in VIEWS:
        quiet.database[name].drop()
    done, said = quiet.run(*parts)
    assert done.returncode == 1 and all(fault == "missing" for _, fault in said) and {k for k, _ in said} == set(VIEWS), done.stdout
    assert not any(quiet.database[name].count_documents({}) for name in VIEWS)
    done, again = quiet.run("--apply", *parts)
    assert done.returncode == 0 and again == said, done.stdout
    quiet.verify()
    done, said = quiet.run(*parts)
    assert (done.returncode, said) == (0, {}), done.stdout
    after = essence(quiet.database, quiet.coupons)
    for name in VIEWS:
        assert after[name] == before[name], name


class Restored:
    """Another database of the same server, with some of the collections: it stands for another cluster."""

    def __init__(self, quiet, *collections):
        self.stack = quiet.stack
        self.database = quiet.stack.mongo["restored"]
        for name in collections:
            self.database[name].insert_many(list(quiet.database[name].find()))
        quiet.stack.admit("restored")
        self.config = quiet.stack.var / "restored.ini"
        write_settings(self.config, SLOW_DATABASE + "[mongodb]\ndatabase = restored\n")

    def ctl(self, *arguments, status=0):
        uri = (self.stack.var / "run" / "mongodb_uri").read_text().strip()
        return self.stack.ctl(*arguments, "--config", self.config, "--mongodb", uri, status=status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.mongo.drop_database("restored")


def test_a_ledger_restored_into_an_empty_database(quiet):
    with Restored(quiet, "ledger", "code_buckets") as there:
        assert "look-up: expected one, found none" in there.ctl("verify", status=1)
        there.ctl("reconcile", "--apply")
        there.ctl("verify")
        there.database.secrets.delete_many({})
        assert "terms: expected what its entries and names say" in there.ctl("verify", status=1)
        there.ctl("reconcile", "--apply")
        there.ctl("verify")
        assert all(there.database[name].count_documents({}) for name in ("lanes", "totals", "totals_positions"))


def test_without_a_key_no_term_goes_before_all_ledgers_are_seen_to_be_whole(quiet):
    with Restored(quiet, "ledger", "code_buckets") as there:
        gone = there.database.ledger.find_one_and_delete({"_id.c": quiet.coupons[0], "_id.seq": 9})
        before = {bson.encode(d) for d in there.database.ledger.find()}
        assert f"{quiet.coupons[0]}: its ledger is broken" in there.ctl("reconcile", "--apply", status=1)
        assert {bson.encode(d) for d in there.database.ledger.find()} == before and not there.database.secrets.count_documents({})
        assert not there.database.lanes.count_documents({}), "something was written"
        there.database.ledger.insert_one(gone)
        there.ctl("reconcile", "--apply")
        there.ctl("verify")


def test_an_erasure_whose_names_came_back_is_listed_for_whoever_finishes_it(quiet):
    """As from a backup of before they were emptied: then their terms, too, are as before."""
    with Restored(quiet, "ledger", "code_buckets", "secrets") as there:
        ledger, coupon = there.database.ledger, quiet.coupons[2]
        erasing = next(d for d in ledger.find({"_id.c": coupon}) if any(e["k"] == "erase" for e in d["e"]))
        alias = next(e["a"] for e in erasing["e"] if e["k"] == "erase")
        assert ledger.update_many({"who.a": alias}, {"$set": {"who.$[x].u": "left"}}, array_filters=[{"x.a": alias}]).modified_count
        assert "erasing: expected listed: there are still names, found not listed" in there.ctl("verify", status=1)
        assert f"alias {alias}" in there.ctl("reconcile", "--apply")
        assert [d["_id"] for d in ledger.find({"erasing": alias})] == [erasing["_id"]]
        there.ctl("verify")


def test_many_kinds_of_damage_at_once(quiet):
    coupon, db = quiet.coupons[0], quiet.database
    db.ledger.update_many({"_id.c": coupon}, {"$unset": {"terms": 1}})
    db.lanes.delete_many({"_id.c": coupon})
    db.buckets.delete_many({"_id.c": coupon})
    db.totals.update_many({"_id.c": coupon}, {"$inc": {"redeemed": 1}})
    db.codes.delete_many({"_id.c": coupon})
    db.coupons.delete_one({"_id": coupon})
    done, said = quiet.run("--apply")
    assert done.returncode == 0 and said["buckets", "missing"] == 1 and said["codes", "missing"] == 70, done.stdout
    quiet.verify()


def test_views_of_no_ledger_go_only_when_they_are_named(quiet):
    quiet.database.buckets.insert_one({"_id": {"c": "orphan", "b": 0}, "view": {"seq": 3}})
    assert "orphan" in quiet.verify(status=1)
    done, _ = quiet.run("--apply")
    assert "orphan: it has views, but no ledger" in done.stdout and quiet.database.buckets.count_documents({"_id.c": "orphan"}) == 1
    done, _ = quiet.run("--apply", "orphan")
    assert quiet.database.buckets.count_documents({"_id.c": "orphan"}) == 0, done.stdout
    quiet.verify()


def test_a_broken_ledger_is_not_believed(quiet):
    coupon = quiet.coupons[0]
    with Damaged(quiet.database, coupon, ("ledger", {"_id.seq": 9}), GONE):
        before = quiet.image()
        done, _ = quiet.run("--apply", coupon)
        assert done.returncode == 1 and "broken" in done.stdout, done.stdout
        assert quiet.image() == before
    quiet.verify()


@pytest.mark.parametrize("what", ["a bucket's count", "a bucket that is gone", "a definition", "totals"])
def test_online_leaves_alone_what_was_written_since_it_looked(quiet, what):
    """A transaction holds the newer view, so that reconcile reads the older one and its write waits until the newer one stands."""
    which, change, faults = DAMAGE[what]
    damaged = Damaged(quiet.database, quiet.coupons[0], which, change)
    newer = copy.deepcopy(damaged.good)
    newer.get("view", newer)["seq"] += 1
    waiting = [{"$currentOp": {"allUsers": True}}, {"$match": {"ns": f"{quiet.database.name}.{which[0]}", "op": "update"}}]
    quiet.stack.own_transactions += 1
    with damaged, concurrent.futures.ThreadPoolExecutor(1) as beside:
        with quiet.stack.mongo.start_session() as session, session.start_transaction():
            damaged.documents.replace_one({"_id": newer["_id"]}, newer, upsert=True, session=session)
            run = beside.submit(quiet.run, "--online", "--apply", quiet.coupons[0])
            wait_until("its write", lambda: run.done() or list(quiet.stack.mongo.admin.aggregate(waiting)))
            assert not run.done(), run.result()[0].stdout
        done, said = run.result()
        assert damaged.documents.find_one({"_id": newer["_id"]}) == newer, f"written over\n{done.stdout}"
        assert (done.returncode, said) == (1, faults) and "the others changed meanwhile" in done.stdout, done.stdout
    quiet.verify()


# ---- while the service runs (last: it is started again) ----

@pytest.mark.full
def test_while_the_service_runs_only_online_is_done_and_does_no_harm(quiet):
    stack, coupon = quiet.stack, quiet.coupons[0]
    ledger, codes = quiet.database.ledger, quiet.database.codes
    stack.start()
    done, _ = quiet.run("--apply")
    assert done.returncode == 1 and "the service is running" in done.stdout, done.stdout
    ledger.update_one({"_id.c": coupon, "who.u": "a"}, {"$pop": {"terms": 1}})
    codes.delete_one({"_id.c": coupon, "n": 3})
    busy = stack.coupon(slots=3000, cap={"total": 3000})
    with Swarm([stack.way()], takers(busy, 2800), 4, repeat=False) as crowd:
        done, said = quiet.run("--online")
        assert (done.returncode, said) == (1, {("ledger", "different"): 1, ("codes", "missing"): 1}), done.stdout
        done, said = quiet.run("--online", "--apply")
        assert (done.returncode, said) == (0, {("ledger", "different"): 1, ("codes", "missing"): 1}), done.stdout
        for _ in range(5):
            done, said = quiet.run("--online", "--apply", busy)
            assert (done.returncode, said) == (0, {}), done.stdout
            stack.verify(busy)
    assert by_code(crowd.done) == {"201": len(crowd.done)} and not crowd.unanswered
    stack.verify()
