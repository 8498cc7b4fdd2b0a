"""DELETE /coupons/-/users/{user}, POST /coupons/-/users/erase: no trace of the name is left, the ledger still verifies, the caps start anew."""
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import urllib.parse

import pytest

import ledger
from client import Direct
from effort import in_full
from erasure import erase, traces
from halves import asleep
from lanes import Lanes
from stack import Failing, Stack, state_of, wait_until
from swarm import Call, by_code, swarm, take


@pytest.fixture(scope="module")
def stack():
    """Of this file alone: its tests look at every document of the database."""
    with Stack() as s:
        yield s
        s.verify()


def last_of(stack, name):
    """The user of the newest batch, of those whose names begin so: which call came through, a slow machine does not tell."""
    newest = stack.database.ledger.find_one({"who.u": {"$regex": f"^{name}"}}, sort=[("arrived", -1)])
    return newest["who"][-1]["u"]


def test_no_trace_of_the_name_is_left_and_the_ledger_verifies(stack, storefront, ops):
    user, order, note = "erase-me/ü", "order-of-erase-me", "note-of-erase-me"
    members = {"order": {"id": order}, "metadata": {"note": note}}
    coupon = stack.coupon(slots=8, cap={"total": 8, "per_user": 8})
    coded = stack.imported(["ERASE-1", "ERASE-2"])
    storefront.take(coupon, "before").expect(201)
    redeemed = storefront.take(coupon, user, **members).ok(201)
    held = storefront.take(coupon, user, state="reserved").ok(201)
    issued = storefront.take(coupon, user, state="issued").ok(201)
    hold = storefront.post(f"/coupons/{coupon}/redemptions/{issued['id']}/reserve", {"order": {"id": order + "-2"}},
                           idempotency_key="h").ok(201)
    gone = storefront.take(coupon, user).ok(201)
    storefront.post(f"/coupons/{coupon}/redemptions/{gone['id']}/reverse").expect(200)
    storefront.take(coupon, "after", order={"id": order + "s-neighbour"}).expect(201)
    code = storefront.take(coded, user, code="ERASE-1").ok(201)
    before = ledger.read(stack, coupon)

    erase(stack, user)

    assert traces(stack, user, order, note) == [(n, i) for n, i in traces(stack, order + "s-neighbour")], "only the neighbour's own"
    after = ledger.read(stack, coupon)
    assert after[:len(before)] == before, "no line of the ledger has changed"
    ledger.check_chain(after)
    stack.verify(coupon, coded)
    counts = stack.counts(coupon)
    assert (counts["redeemed"], counts["issued"], counts["reserved"]) == (3, 0, 0), "what was redeemed stays redeemed"
    said = storefront.get(f"/coupons/{coupon}/users/{urllib.parse.quote(user, safe='')}").ok()
    assert (said["total"], said["remaining"], said["redemptions"]) == (0, 8, []), said
    assert ops.get(f"/coupons/{coded}/codes/ERASE-1").ok()["user"] is None
    assert ops.get(f"/coupons/{coded}/codes/ERASE-1").ok()["state"] == "redeemed"
    listed = {r["id"]: r for r in storefront.get(f"/coupons/{coupon}/redemptions").ok()["items"]}
    assert {listed[r["id"]]["user"] for r in (redeemed, held, issued, hold, gone)} == {None}, listed
    states = [listed[r["id"]]["state"] for r in (redeemed, held, issued, hold, gone)]
    assert states == ["redeemed", "cancelled", "cancelled", "cancelled", "reversed"], listed
    assert listed[redeemed["id"]]["metadata"] == {} and listed[redeemed["id"]]["order"] is None
    assert listed[hold["id"]]["ordinal"] == issued["ordinal"]
    assert code["code"] == "ERASE-1" and user not in ops.get(f"/coupons/{coded}/codes").expect(200).body.decode()


def test_the_caps_start_anew_and_it_can_be_done_again(stack, storefront):
    coupon = stack.coupon(slots=5, cap={"total": 5, "per_user": 1, "per_user_per_day": 1})
    ids = set()
    for number in range(3):
        taken = storefront.take(coupon, "comes-back", "the-same-key", metadata={"n": number}).ok(201)
        ids.add(taken["id"])
        assert taken["after"]["user"] == 1 and taken["after"]["user_day"] == 1, taken
        storefront.take(coupon, "comes-back").problem("user_cap_reached")
        for _ in range(2):
            erase(stack, "comes-back")
        assert traces(stack, "comes-back") == []
    assert len(ids) == 3 and stack.counts(coupon)["redeemed"] == 3
    stack.verify(coupon)


def test_an_erasure_that_was_cut_short_is_finished_by_the_next(stack, storefront):
    """As if the process had died before the last batches lost the name."""
    coupon, user = stack.coupon(slots=5, cap={"total": 5, "per_user": 5}), "cut-short"
    storefront.take_each(coupon, [user] * 3)
    named = list(stack.database.ledger.find({"_id.c": coupon, "who.u": user}, sort=[("_id.seq", 1)]))
    alias, (term,) = named[0]["who"][0]["a"], set.intersection(*(set(batch["terms"]) for batch in named))
    erase(stack, user)
    own = stack.database.ledger.find_one({"_id.c": coupon}, sort=[("_id.seq", -1)])
    with asleep(stack, ["runner"]):  # its sweeper would finish it
        for batch in named[1:]:
            stack.database.ledger.update_one({"_id": batch["_id"]}, {"$set": {"who": batch["who"], "terms": batch["terms"]}})
        stack.database.ledger.update_one({"_id": own["_id"]}, {"$set": {
            "who": [{**row, "u": user} for row in own["who"]], "terms": sorted({*own.get("terms", []), term}), "erasing": [alias]}})
        assert traces(stack, user)
        erase(stack, user)
    assert traces(stack, user) == []
    assert unfinished(stack) == 0
    stack.verify(coupon)


def unfinished(stack):
    """Erasures whose names are still there."""
    return stack.database.ledger.count_documents({"erasing": {"$exists": True}})


def test_a_user_whom_nobody_knows_is_erased_too(stack, ops, storefront, reporting):
    erase(stack, "never-seen")
    ops.delete("/coupons/-/users/%FF").problem("bad_request")
    ops.delete("/coupons/-/users/" + "x" * 129).problem("bad_request")
    for client in (storefront, reporting):
        client.delete("/coupons/-/users/u").problem("forbidden")


@pytest.mark.parametrize("user", ["../../erase-me-by-body", "..", "erase", "%2e%2e/escaped", "\u2028 and \\ \"quoted\""])
def test_a_user_of_any_name_is_erased_by_the_body(stack, ops, storefront, user):
    coupon = stack.coupon(slots=2)
    for by in (lambda: ops.post("/coupons/-/users/erase", {"user": user}).expect(204),
               lambda: stack.couponctl("users", "erase", user).check_returncode()):
        storefront.take(coupon, user, metadata={"note": "of-any-name"}).expect(201)
        by()
        assert traces(stack, "of-any-name") == []
        assert not stack.database.ledger.find_one({"_id.c": coupon, "who.u": user})
    ops.post("/coupons/-/users/erase", {"user": "a\nb"}).problem("bad_request", at="/user")
    ops.post("/coupons/-/users/erase", {}).problem("bad_request", at="/user")
    storefront.post("/coupons/-/users/erase", {"user": user}).problem("forbidden")
    stack.verify(coupon)


@pytest.mark.parametrize("damage", [{"e.0.k": "future"}, {"e": "none"}, {"who": "none"}], ids=["kind", "entries", "names"])
def test_a_user_whose_batch_cannot_be_read_is_not_called_erased(stack, storefront, ops, damage):
    coupon, user = stack.coupon(slots=2), f"misread-{next(iter(damage))}"
    storefront.take(coupon, user).expect(201)
    batch = stack.database.ledger.find_one({"_id.c": coupon, "who.u": user})
    wait_until("its bucket", lambda: stack.is_written(coupon))
    assert stack.database.ledger.update_one({"_id": batch["_id"]}, {"$set": damage}).modified_count == 1
    for client, method in ((ops, "DELETE"), (storefront, "GET")):
        client.request(method, f"/coupons/-/users/{user}", may_fail=True).problem("busy")
    assert traces(stack, user)
    stack.database.ledger.replace_one({"_id": batch["_id"]}, batch)
    erase(stack, user)
    assert traces(stack, user) == []
    stack.verify(coupon)


def test_others_of_the_same_batches_keep_their_names(stack, storefront):
    coupon = stack.coupon(slots=40, cap={"total": 40, "per_user": 4})
    items = [{"key": f"k-{i}", "user": f"user-{i % 10}"} for i in range(40)]
    storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).expect(200)
    erase(stack, "user-3")
    assert traces(stack, "user-3") == []
    for i in (0, 1, 2, 4, 5, 6, 7, 8, 9):
        assert storefront.get(f"/coupons/{coupon}/users/user-{i}").ok()["total"] == 4
    stack.verify(coupon)


@pytest.mark.parametrize("policy", ["approximate", "none"])
def test_erasure_without_slots(stack, storefront, policy):
    coupon = stack.coupon(cap={"policy": policy, "total": 9 if policy == "approximate" else None, "per_user": 3})
    storefront.take(coupon, "slotless-user").expect(201)
    storefront.take(coupon, "slotless-user", state="reserved").expect(201)
    erase(stack, "slotless-user")
    assert traces(stack, "slotless-user") == []
    counts = stack.counts(coupon)
    assert (counts["redeemed"], counts["reserved"]) == (1, 0), counts
    stack.verify(coupon)


def test_the_sweeper_leaves_no_name_behind(stack, storefront):
    """A hold that ran out before the erasure, and whose end the ledger may not have yet."""
    coupon = stack.coupon(slots=2)
    hold = storefront.take(coupon, "swept-user", state="reserved", reserve_s=1).ok(201)
    at = f"/coupons/{coupon}/redemptions/{hold['id']}"
    wait_until("the hold's end", lambda: storefront.get(at).ok()["state"] == "expired")
    erase(stack, "swept-user")
    assert traces(stack, "swept-user") == []
    stack.verify(coupon)


def connections_of(pid):
    """The local ports of its TCP sockets."""
    sockets = {os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
    rows = [row.split() for row in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rsplit(":", 1)[1], 16) for row in rows if f"socket:[{row[9]}]" in sockets}


def connections_to(stack):
    """The ports from which mongod still reads."""
    known = stack.mongo.admin.aggregate([{"$currentOp": {"allUsers": True, "idleConnections": True}}])
    return {int(one["client"].rsplit(":", 1)[1]) for one in known if "client" in one}


def test_a_worker_that_slept_through_the_erasure_brings_no_name_back(beside):
    """It has the bucket of the user's taking still to write when it falls asleep, and writes it when it wakes."""
    stack = beside()
    coupon, user = stack.coupon(slots=20, cap={"total": 20, "per_user": 5}), "slept-through"
    stack.direct(0).take(coupon, "before").expect(201)
    wait_until("the checkpoint", lambda: stack.is_written(coupon))
    refused = Failing(stack, "buckets", "insert", "update")
    stack.direct(0).take(coupon, user, metadata={"note": f"of-{user}"}).expect(201)
    wait_until("the refusal", lambda: "event=checkpoint.failed" in stack.log())
    with asleep(stack, ["worker-0"]):
        assert {name.partition(".")[0] for name, _ in traces(stack, user)} == {"ledger"}, traces(stack, user)
        refused.end()
        stack.direct(1, "ops").post("/coupons/-/users/erase", {"user": user}).expect(204)
        assert traces(stack, user) == []
    stack.direct(0).take(coupon, "after").expect(201)  # the same worker writes its bucket, with what it had to write before
    wait_until("the bucket", lambda: stack.database.buckets.find_one({"_id.c": coupon, "view.t.u": "after"}))
    assert traces(stack, user) == []
    stack.verify(coupon)


@pytest.mark.full
def test_an_erasure_that_comes_late_erases_only_what_it_has_noted(beside):
    """One is kept from emptying the names; another is through, and the user takes again."""
    stack = beside("[worker]\nrequest_deadline_ms = 60000\n[mongodb]\nsocket_timeout_ms = 120000\n")
    coupon = stack.coupon(slots=20, cap={"total": 20, "per_user": 5})
    for kept_s in (5, 15, 45):  # on a slow machine it takes longer until the other is through
        user, note = f"late-{kept_s}", f"life-2-of-{kept_s}"
        stack.direct(0).take(coupon, user).expect(201)
        emptying = Failing(stack, "ledger", "update", mode={"times": 1}, blockConnection=True, blockTimeMS=1000 * kept_s)
        with asleep(stack, ["runner"]), concurrent.futures.ThreadPoolExecutor(1) as pool:  # its sweeper would finish it
            late = pool.submit(stack.direct(0, "ops").request, "DELETE", f"/coupons/-/users/{user}", may_fail=True)
            emptying.has_begun()
            stack.direct(1, "ops").delete(f"/coupons/-/users/{user}").expect(204)
            stack.direct(1).take(coupon, user, metadata={"note": note}).expect(201)
            came_late = not late.done()
            late.result().expect(204)
        if came_late:
            break
    assert came_late, "it was never late"
    assert traces(stack, note), "it erased what came after it"
    assert stack.direct(1).take(coupon, user).ok(201)["after"]["user"] == 2
    erase(stack, user)
    assert traces(stack, user, note) == []
    assert unfinished(stack) == 0
    stack.verify(coupon)


@pytest.mark.parametrize("comes_back, lanes", [in_full(False, 1), in_full(False, 2), in_full(True, 1), (True, 2)])
def test_an_erasure_that_nobody_asks_for_again_is_finished(beside, lanes, comes_back):
    stack = beside()
    coupon, note = stack.coupon(slots=20, cap={"total": 20, "per_user": 5}, lanes=lanes), "of-somebody"
    for user in ("erased-1", "erased-2", "erased-3"):
        stack.direct(0).take(coupon, user, metadata={"note": note}).expect(201)
        stack.direct(0).take(coupon, user.replace("erased", "stays")).expect(201)
        stack.direct(0).take(coupon, user, metadata={"note": note}).expect(201)
        with Failing(stack, "ledger", "update"):  # the names cannot be emptied
            stack.direct(0, "ops").request("DELETE", f"/coupons/-/users/{user}", may_fail=True).problem("outcome_unknown")
            if comes_back:
                assert stack.direct(0).take(coupon, user).ok(201)["after"]["user"] == 1, "it was not erased"
            assert traces(stack, note), "the names went all the same"
        wait_until("the names to go", lambda: traces(stack, note) == [])
        wait_until("the note to go", lambda: unfinished(stack) == 0)
    assert bool(traces(stack, "erased-")) is comes_back
    stack.verify(coupon)


def test_an_erasure_whose_worker_died_is_finished_though_the_user_came_back(monkeypatch, beside):
    """A worker dies at its 6th append: that is the erasure's entry, and no name is emptied yet. Then the user takes again."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "appended:6")
    stack = beside()
    for worker, users in ((0, ["gone-and-back"] * 3), (1, ["stays"] * 4)):
        body = {"id": f"coupon-{worker}", "title": "t", "state": "active", "cap": {"policy": "none", "per_user": 9}}
        stack.direct(worker, "ops").post("/coupons", body).expect(201)
        for user in users:
            stack.direct(worker).take(f"coupon-{worker}", user, metadata={"note": f"of-{user}"}).expect(201)
    with asleep(stack, ("reporter", "runner", "coupond")):  # nobody else finishes it meanwhile
        with pytest.raises(AssertionError, match="closed|reset|refused|pipe"):
            stack.direct(1, "ops").delete("/coupons/-/users/gone-and-back")
        assert stack.direct(0).take("coupon-0", "gone-and-back").ok(201)["after"]["user"] == 1, "it was not the erasure that was appended"
        assert traces(stack, "of-gone-and-back"), "the names went all the same"
    wait_until("the erasure", lambda: stack.client("ops").request("DELETE", "/coupons/-/users/gone-and-back", may_fail=True).status == 204)
    assert traces(stack, "gone-and-back", "of-gone-and-back") == []
    assert unfinished(stack) == 0
    stack.verify()


@pytest.mark.full
def test_an_erasure_whose_worker_died_before_a_bucket_was_written_is_finished_too(monkeypatch, beside):
    """Worker 0 dies when it has appended the user's taking, worker 1 when it has appended their erasure. Then the user takes again."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "appended:6")
    stack = beside()
    for worker in (0, 1):
        body = {"id": f"coupon-{worker}", "title": "t", "state": "active", "cap": {"policy": "none", "per_user": 9}}
        stack.direct(worker, "ops").post("/coupons", body).expect(201)
        stack.direct(worker).take_each(f"coupon-{worker}", (f"stays-{number}" for number in range(4)))
    wait_until("the checkpoints of both", lambda: stack.database.lanes.count_documents({"view.seq": 5}) == 2)
    with asleep(stack, ("reporter", "runner", "coupond")):
        with pytest.raises(AssertionError, match="closed|reset|refused|pipe"):
            stack.direct(0).take("coupon-0", "gone-unseen", metadata={"note": "of-gone-unseen"})
        with pytest.raises(AssertionError, match="closed|reset|refused|pipe"):
            stack.direct(1, "ops").delete("/coupons/-/users/gone-unseen")
    assert stack.database.ledger.count_documents({"_id.c": "coupon-0"}) == 7, "it was not the erasure that was appended"
    wait_until("a successor", lambda: stack.client("storefront").post(
        "/coupons/coupon-0/redemptions", {"user": "gone-unseen"}, idempotency_key="again", may_fail=True).status == 201)
    wait_until("the erasure", lambda: stack.client("ops").request("DELETE", "/coupons/-/users/gone-unseen", may_fail=True).status == 204)
    assert traces(stack, "gone-unseen", "of-gone-unseen") == []
    assert unfinished(stack) == 0
    stack.verify()


@pytest.mark.parametrize("lanes", [1, 4])
def test_an_erasure_races_takings_of_the_same_user(stack, lanes):
    """At both workers; whoever comes after it is new. The next erasure leaves nothing of either."""
    coupon = stack.coupon(slots=400, lanes=lanes, cap={"total": 400, "per_user": 50})
    users = [f"raced-{lanes}-{number:02}" for number in range(12)]
    for user in users:
        calls = [take(coupon, user, f"k-{i}", state=state, order={"id": f"of-{user}-{state}"})
                 for i, state in enumerate(["issued", "reserved", "redeemed"] * 3)]
        calls.insert(4, Call("DELETE", f"/coupons/-/users/{user}"))
        said = by_code(swarm(stack.ways("ops"), calls, connections=len(calls)))
        assert said["204"] == 1 and set(said) <= {"204", "201", "200"}, said
        erase(stack, user)
        assert stack.client("ops").get(f"/coupons/{coupon}/users/{user}").ok()["total"] == 0
    assert traces(stack, *users, *[f"of-{user}" for user in users]) == []
    Lanes(stack, coupon).check()
    stack.verify(coupon)


def test_what_a_worker_left_behind_when_it_died_is_erased_too(beside, monkeypatch):
    """Its buckets are not written, and whoever would write them sleeps: the ledger alone knows that the user was there."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "appended:25")
    stack = beside()
    coupons = [stack.coupon(slots=50, lanes=lanes) for lanes in (1, 4)]
    worker = Direct(stack.var / "run" / "worker-0.sock", stack.key("storefront"), patience_s=2)
    wait_until("the checkpoints of all lanes", lambda: stack.is_written(*coupons) and stack.database.lanes.count_documents({}) == 5)
    with asleep(stack, ("worker-1", "reporter", "runner", "coupond")):
        pid = wait_until("worker-0", lambda: stack.pid("worker-0"))
        for number in range(100):
            if not state_of(pid):
                break
            with contextlib.suppress(AssertionError, OSError):
                worker.take(coupons[number % 2], f"left-{number}-behind")
        assert not state_of(pid), "it should have died"
        user = last_of(stack, "left-")
        assert {name.partition(".")[0] for name, _ in traces(stack, user)} == {"ledger"}, traces(stack, user)
        os.kill(stack.pid("worker-1"), signal.SIGCONT)
        stack.direct(1, "ops").delete(f"/coupons/-/users/{user}").expect(204)
        assert traces(stack, user) == []
    stack.verify(*coupons)


def watermark(stack):
    return stack.database.watermarks.find_one({"_id": "reporter"})


@pytest.mark.full
def test_a_lane_that_cannot_be_read_is_named_and_the_watermark_goes_on_without_it(beside):
    """A worker dies before it has written the buckets of its last batch, which is damaged then: neither checkpoint nor totals of the lane
    can be written. Whoever is in that batch alone is found all the same, and others are erased."""
    stack = beside()
    damaged, other = (stack.coupon(slots=100, id=name, cap={"per_user": 100}) for name in ("a-damaged", "b-other"))
    wait_until("the checkpoints of both", lambda: stack.is_written(damaged, other))
    with asleep(stack, ["reporter"]):
        with asleep(stack, ("worker-1", "runner", "coupond")):
            refused = Failing(stack, "buckets", "insert", "update")
            stack.direct(0).take(damaged, "hidden").expect(201)
            connections = connections_of(stack.pid("worker-0"))
            assert connections <= connections_to(stack) and connections
            os.kill(stack.pid("worker-0"), signal.SIGKILL)
            wait_until("all that it sent to be refused", lambda: not connections & connections_to(stack))
            refused.end()
            assert {name.partition(".")[0] for name, _ in traces(stack, "hidden")} == {"ledger"}, traces(stack, "hidden")
            whole = stack.database.ledger.find_one({"who.u": "hidden"})
            stack.database.ledger.update_one({"_id": whole["_id"]}, {"$set": {"e.0.k": "future"}})
        stack.direct(1).take(other, "elsewhere").expect(201)
        newest = stack.database.ledger.find_one({}, sort=[("arrived", -1)])["arrived"]
        os.kill(stack.pid("reporter"), signal.SIGKILL)  # its successor reads the ledger
    stack.direct(1).take(other, "late").expect(201)
    wait_until("the watermark to pass them", lambda: watermark(stack)["arrived"] > newest)
    assert watermark(stack)["behind"] == [{"c": damaged, "l": 0}]
    for name, answer in (("elsewhere", 204), ("hidden", 503)):
        said = stack.direct(1, "ops").request("DELETE", f"/coupons/-/users/{name}", may_fail=True)
        assert said.status == answer, said
        assert bool(traces(stack, name)) == (answer == 503)
    stack.kill("reporter")
    wait_until("a successor that looks at it, too", lambda: stack.log().count("event=reporter.put_off") >= 2)

    stack.database.ledger.replace_one({"_id": whole["_id"]}, whole)
    wait_until("the lane to leave the list", lambda: watermark(stack)["behind"] == [])
    erase(stack, "hidden")
    assert traces(stack, "hidden") == []
    stack.verify()


@pytest.mark.full
def test_a_coupon_whose_lanes_cannot_be_made_to_follow_is_named_until_they_can(beside):
    """One of them cannot be read, so nobody knows whether it follows."""
    stack = beside()
    coupon, other = stack.coupon(slots=8, lanes=4), stack.coupon(slots=9, cap={"per_user": 9})
    wait_until("the checkpoints of all lanes", lambda: len(stack.newest({"_id.c": coupon})) == 4 and stack.is_written(coupon))
    whole = list(stack.database.ledger.find({"_id.c": coupon, "_id.l": 2}))
    stack.database.ledger.update_many({"_id.c": coupon, "_id.l": 2}, {"$set": {"e.0.k": "future"}})
    stack.kill("reporter")
    newest = stack.database.ledger.find_one({}, sort=[("arrived", -1)])["arrived"]
    stack.direct(0).take(other, "late").expect(201)
    wait_until("the watermark to pass it", lambda: watermark(stack)["arrived"] > newest)
    assert watermark(stack)["behind"] == [{"c": coupon, "l": 0}]
    stack.kill("reporter")
    for batch in whole:
        stack.database.ledger.replace_one({"_id": batch["_id"]}, batch)
    wait_until("it to leave the list", lambda: watermark(stack)["behind"] == [])
    stack.verify()
