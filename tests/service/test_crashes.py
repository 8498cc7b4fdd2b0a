"""kill -9 and SIGSTOP under load: every acknowledged redemption is there, none twice, and the same key finds the truth.

The moment "after an append, before its buckets" is found from outside: the test watches the ledger's change stream, and kills
the worker as soon as a batch of it shows. Not every kill need hit that gap; the buckets (looked at while the worker is dead) count how
many do.
"""
import contextlib
import itertools
import os
import random
import signal
import time

import pytest

import ledger
from client import Direct
from effort import effort
from halves import asleep, buckets_of
from stack import LONG_DRAIN, WORKERS, Failing, age_s, children, wait_until
from swarm import PATIENCE_S, Call, Swarm, by_code, kill_under_load, swarm, take, taken, takers

pytestmark = pytest.mark.heavy
KILLS = effort(3, 6, 20)


def nothing_lost_nothing_doubled(stack, coupon, calls, slots):
    """Acknowledged = in the ledger = what the key answers now."""
    assert set(by_code(calls)) <= {"201", "201 replayed", "sold_out"}, by_code(calls)
    bodies = taken(calls)
    assert len({b["user"] for b in bodies}) == len(bodies)
    assert len({b["slot"] for b in bodies}) == len(bodies), "a slot was given twice"
    truth = ledger.LaneLedger(stack, coupon)
    truth.check_ordinals()
    assert len(set(truth.ids())) == len(truth.redeemed) <= slots
    lost = {b["id"] for b in bodies} - set(truth.ids())
    assert not lost, f"acknowledged, and not in the ledger: {sorted(lost)[:10]}"
    unasked = set(truth.ids()) - {b["id"] for b in bodies}
    assert not unasked, f"in the ledger, and answered to nobody although all were answered: {sorted(unasked)[:10]}"
    sample = random.Random(0).sample([c for c in calls if c.reply.status == 201], min(300, len(bodies)))
    again = swarm(stack.ways(), [take(coupon, c.body["user"], c.key) for c in sample], connections=16)
    first = {c.key: c.reply.body for c in sample}
    assert all(c.reply.status == 201 and c.reply.body == first[c.key] for c in again), "a key gets another answer now"
    ledger.check_chain(ledger.read(stack, coupon))
    stack.verify(coupon)


@pytest.mark.parametrize("past_nginx", [False, True], ids=["through nginx", "at both workers"])
def test_a_worker_is_killed_again_and_again_under_load(stack, past_nginx):
    slots, chance = 150_000, random.Random(11 + past_nginx)
    coupon = stack.coupon(slots=slots)
    with Swarm(stack.ways() if past_nginx else [stack.way()], takers(coupon), connections=32, pause_s=0.01) as crowd:
        kill_under_load(stack, crowd, KILLS, lambda: chance.randrange(1, 250))
    calls = crowd.done
    assert set(by_code(calls)) <= {"201", "201 replayed"}, by_code(calls)
    if past_nginx:  # which asks another worker by itself
        assert any(c.tries > 1 for c in calls), "nobody noticed the kills"
    nothing_lost_nothing_doubled(stack, coupon, calls, slots)


def test_a_worker_is_killed_right_after_an_append(stack):
    """As soon as the ledger shows a new batch, its worker dies; buckets and answers of it may be missing."""
    slots, chance = 150_000, random.Random(13)
    coupon = stack.coupon(slots=slots)
    behind, appends = 0, [{"$match": {"operationType": "insert", "documentKey._id.c": coupon}}]
    with (stack.database.ledger.watch(appends, max_await_time_ms=100) as stream,
          Swarm(stack.ways(), takers(coupon), connections=16, pause_s=0.01) as crowd):
        for _ in range(KILLS):
            pids = [wait_until(f"worker {w}", lambda: stack.pid(f"worker-{w}")) for w in range(WORKERS)]
            wait_until("the workers to have lived for a second", lambda: min(map(age_s, pids)) > 1.1)
            crowd.more(chance.randrange(20, 100))
            tail = stack.counts(coupon)["seq"]
            batch = wait_until("an append", lambda: (b := stream.try_next()) and b["documentKey"]["_id"]["seq"] > tail and b, every=0)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            seq = batch["documentKey"]["_id"]["seq"]
            changed = [{"c": coupon, "b": b} for b in buckets_of(batch["fullDocument"])]
            written = stack.database.buckets.count_documents({"_id": {"$in": changed}, "view.seq": {"$gte": seq}})
            behind += written < len(changed)
            for w, pid in enumerate(pids):
                wait_until(f"a successor of worker {w}", lambda: stack.pid(f"worker-{w}") not in (None, pid))
    print(f"{behind} of {KILLS} kills left buckets behind their batch")
    nothing_lost_nothing_doubled(stack, coupon, crowd.done, slots)


def test_a_worker_that_sleeps_in_the_middle_of_a_batch_does_no_harm_when_it_wakes(stack):
    """So long that the other one has taken over its lane."""
    slots = 150_000
    coupon = stack.coupon(slots=slots)
    with Swarm(stack.ways(), takers(coupon), connections=32, pause_s=0.005) as crowd:
        for worker in range(WORKERS):
            crowd.more(500)
            pid = stack.pid(f"worker-{worker}")
            with asleep(stack, [f"worker-{worker}"]):
                before = len(crowd.done)
                time.sleep(effort(0, 2, 5))
                wait_until("answers of the other worker", lambda: len(crowd.done) > before + 500)
            assert stack.pid(f"worker-{worker}") == pid, "it was replaced instead of woken"
    nothing_lost_nothing_doubled(stack, coupon, crowd.done, slots)


def test_the_last_slots_are_sold_exactly_while_workers_die(stack):
    """The sold-out edge: 300 slots, 600 users, a kill every few dozen answers."""
    chance = random.Random(17)
    for _ in range(effort(1, 1, 3)):
        coupon = stack.coupon(slots=300)
        with Swarm(stack.ways(), takers(coupon, 600), connections=8) as crowd:
            while crowd.is_alive():
                crowd.more(chance.randrange(20, 80))
                if crowd.is_alive():
                    stack.kill(f"worker-{chance.randrange(WORKERS)}")
        assert len(taken(crowd.done)) == 300 and by_code(crowd.done)["sold_out"] == 300, by_code(crowd.done)
        nothing_lost_nothing_doubled(stack, coupon, crowd.done, 300)


@pytest.mark.full
def test_returns_survive_kills_too(stack):
    """A reverse that was acknowledged stays; one that was not is repeated, and counts once."""
    chance = random.Random(19)
    coupon = stack.coupon(slots=3000)
    got = taken(swarm([stack.way()], takers(coupon, 3000), connections=32))
    assert len(got) == 3000
    returns = (Call("POST", f"/coupons/{coupon}/redemptions/{b['id']}/reverse") for b in itertools.cycle(got))  # again is as once
    with Swarm(stack.ways(), returns, connections=16, pause_s=0.03) as crowd:
        for _ in range(effort(3, 5)):
            crowd.more(chance.randrange(10, 150))
            stack.kill(f"worker-{chance.randrange(WORKERS)}")
        wait_until("all to be returned", lambda: len(crowd.done) >= 3000)
    calls = crowd.done
    assert by_code(calls) == {"200": len(calls)}, by_code(calls)
    truth = ledger.LaneLedger(stack, coupon)
    assert len(truth.reversed) == 3000 and len({(e["n"], e["g"]) for e in truth.reversed}) == 3000
    counts = stack.counts(coupon)
    assert (counts["free"], counts["redeemed"], counts["today"]) == (3000, 0, 0), counts
    stack.verify(coupon)


@pytest.mark.full
def test_the_whole_service_is_killed_and_started_again(another_stack):
    """kill -9 of coupond, its workers, nginx and mongod at once, as when the power fails; what was acknowledged is there."""
    stack = another_stack()
    coupon = stack.coupon(slots=50_000)
    with Swarm([stack.way()], takers(coupon), connections=32, repeat=False, pause_s=0.005) as crowd:
        crowd.more(2001)
        masters = [int((stack.var / "run" / name).read_text()) for name in ("coupond.pid", "nginx.pid", "mongod.pid")]
        for pid in masters + [child for master in masters for child in children(master)]:
            with contextlib.suppress(ProcessLookupError):  # its master has asked it to end
                os.kill(pid, signal.SIGKILL)
    calls = [c for c in crowd.done if c.reply.status == 201]
    assert len(calls) > 2000
    stack.script("run", "--detach", status=0)
    repeated = swarm(stack.ways(), [take(coupon, c.body["user"], c.key) for c in calls], connections=32)
    first = {c.key: c.reply.body for c in calls}
    assert all(c.reply.status == 201 and c.reply.body == first[c.key] for c in repeated), "an acknowledged redemption was lost"
    assert set(by_code(repeated)) == {"201 replayed"}
    ledger.LaneLedger(stack, coupon).check_ordinals()
    stack.verify()


def test_stopping_drains_what_is_in_flight(beside):
    """scripts/stop under load: every call that was sent is answered, or its connection was closed before it was read."""
    stack = beside(LONG_DRAIN)
    coupon = stack.coupon(slots=20_000)
    with Swarm([stack.way()], takers(coupon), connections=32, repeat=False, pause_s=0.005) as crowd:
        crowd.more(1001)
        stack.script("stop", status=0)
    said = {b["id"] for b in taken([c for c in crowd.done if c.reply.status == 201])}
    assert stack.script("run", "--detach").returncode == 0
    stored = set(ledger.LaneLedger(stack, coupon).ids())
    assert said == stored, f"{len(said - stored)} acknowledged and lost, {len(stored - said)} taken and not answered"
    stack.verify()


def test_a_reload_under_load_loses_no_request(stack):
    """SIGHUP to the master: every process gets a successor, nobody is refused."""
    coupon = stack.coupon(slots=100_000)
    before = stack.pids()
    with Swarm([stack.way()], takers(coupon), connections=32, repeat=False, pause_s=0.005, late_s=PATIENCE_S) as crowd:
        crowd.more(300)
        stack.signal("coupond", signal.SIGHUP)
        wait_until("successors", lambda: all(p and p != before[n] for n, p in stack.pids().items()))
        crowd.more(500)
    assert by_code(crowd.done) == {"201": len(crowd.done)}
    nothing_lost_nothing_doubled(stack, coupon, crowd.done, 100_000)


def test_nobody_waits_for_views_that_a_killed_predecessor_left_behind(beside):
    """It drains, cannot write them, and dies, while its successor has its place: wallets are as quick as ever."""
    stack = beside()
    coupon, before = stack.coupon(slots=20), stack.pids()
    with Failing(stack, "buckets", "insert", "update"):
        for i in range(stack.workers):
            stack.direct(i).take(coupon, f"u-{i}").expect(201)
        stack.signal("coupond", signal.SIGHUP)
        wait_until("successors", lambda: all(p and p != before[n] for n, p in stack.pids().items()))
        for i in range(stack.workers):
            with contextlib.suppress(ProcessLookupError):  # it has given up by itself
                os.kill(before[f"worker-{i}"], signal.SIGKILL)

    def is_quick():
        began = time.monotonic()
        reply = stack.client("storefront").request("GET", "/coupons/-/users/u", may_fail=True)  # nginx may ask one that was killed
        return reply.status == 200 and time.monotonic() - began < 0.2

    wait_until("a wallet that did not wait until it was too late (250 ms)", is_quick, every=0.1)
    stack.verify()


def test_a_bad_configuration_keeps_the_old_one(beside):
    stack = beside()
    coupon = stack.coupon(slots=10)
    before, config = stack.pids(), stack.var / "coupond.ini"
    good = config.read_text()
    config.write_text(good + "[worker]\nbatch_max = many\n")
    stack.signal("coupond", signal.SIGHUP)
    wait_until("a line about it in the log", lambda: "batch_max" in stack.log())
    assert stack.pids() == before
    stack.client("storefront").take(coupon, "u").expect(201)
    config.write_text(good)


@pytest.mark.full
def test_many_idle_connections_are_served_fairly(stack):
    """A thousand kept connections, of which each asks now and then: the slowest answer stays near those of the slowest twentieth,
    which are what the machine makes them wait when it stalls, or one of nginx's processes with its half of them."""
    for _ in range(4):  # a machine that stalls for one of them does not do so each time
        coupon = stack.coupon(slots=10_000)
        calls = swarm([stack.way()], takers(coupon, 8000), connections=1000)
        waits = sorted(c.answered_at - c.asked_at for c in calls[1000:])  # the first ones also connect
        print(f"1,000 connections: median {waits[len(waits) // 2]:.3f} s, slowest {waits[-1]:.3f} s")
        assert by_code(calls) == {"201": 8000}
        most = max(5, 5 * waits[len(waits) * 19 // 20])
        if waits[-1] < most:
            break
    assert waits[-1] < most, waits[-1]


@pytest.mark.full
def test_who_is_asked_after_a_death_does_not_say_busy(another_stack):
    """Nobody has looked whether the worker that died had done it: of a call, and of a batch's items, the outcome is unknown."""
    stack = another_stack("[worker]\nrequest_deadline_ms = 3000\n[mongodb]\nserver_selection_timeout_ms = 3000\n")
    first, socket, key = stack.direct(0, "ops"), stack.var / "run" / "worker-1.sock", stack.key("storefront")

    def becomes(status, client, *call, **how):
        """The call's answer: who has little patience may be busy at first."""
        return wait_until(f"{call} to be {status}", lambda: (reply := client.request(*call, **how, may_fail=True)).status == status and reply)

    taking = "POST", "/coupons/known/redemptions", {"user": "a"}, "k"
    for coupon in ("known", "other"):  # to worker-0 alone
        body = {"id": coupon, "title": "t", "state": "active", "cap": {"policy": "none"}}
        becomes(201, first, "POST", "/coupons", body, coupon)
    becomes(201, first, *taking)
    becomes(404, stack.direct(1), "GET", "/coupons/no-such")  # it knows the key now
    with asleep(stack, ["mongod"]):
        for said, more in (("busy", ()), ("outcome_unknown", [(b"ASKED_BEFORE", b"1")])):
            worker = Direct(socket, key, more=more)
            one = worker.request(*taking, may_fail=True)
            one.problem(said)
            assert one.header("Retry-After") == "1", one
            items = {"items": [{"key": "k", "user": user} for user in "ab"]}
            batch = worker.post("/coupons/other/redemptions/batch", items).ok()["items"]
            assert [(item["status"], item["body"]["code"], item["body"]["retry"]) for item in batch] == 2 * [(503, said, True)], batch
    assert becomes(201, worker, *taking).header("Idempotent-Replayed") == "true"
    becomes(409, worker, "POST", "/coupons/known/redemptions", {"user": "a"}, "another").problem("user_cap_reached")


def test_calls_are_told_busy_at_once_while_the_database_does_not_answer(another_stack):
    """Not each after its whole patience."""
    stack = another_stack("[worker]\nrequest_deadline_ms = 2000\n")
    stack.impatient = True
    coupon, shop, number = stack.coupon(slots=1000), stack.client("storefront"), itertools.count()
    for _ in range(WORKERS):
        shop.take(coupon, f"u-{next(number)}").expect(201)
    before = stack.metric("coupons_cut_short_total")

    def taken_in(status):
        began = time.monotonic()
        reply = shop.request("POST", f"/coupons/{coupon}/redemptions", {"user": f"u-{next(number)}"}, "k", may_fail=True)
        assert reply.status in (201, 503), reply
        return reply.status == status and time.monotonic() - began

    with asleep(stack, ["mongod"]):
        assert taken_in(503) > 1
        for _ in range(20):
            wait_until("a refusal", lambda: taken_in(503))
        wait_until("one at once", lambda: 0 < taken_in(503) < 0.5)
        assert "away: calls answered busy at once" in stack.couponctl("top", "--once").stdout
    wait_until("takings", lambda: taken_in(201))
    assert stack.metric("coupons_cut_short_total") - before >= 10
    stack.verify(coupon)


def test_a_batch_on_which_its_worker_died_is_answered_whole_by_the_successor(monkeypatch, beside):
    """nginx sends its body again, out of the file in which it stood."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "appended:42")
    stack = beside()
    coupon, shop = stack.coupon(cap={"policy": "none"}), stack.client("storefront")
    # more than the successor needs, into however many batches of a lane the items come
    shop.take_each(coupon, (f"first-{i}" for i in range(40)))
    items = [{"key": "k", "user": f"u-{i}", "metadata": {"note": "x" * 100}} for i in range(1000)]
    said = shop.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
    assert stack.log().count("event=crash.point ") == 1, stack.log()[-3000:]
    assert [(item["status"], item["body"]["user"]) for item in said] == [(201, item["user"]) for item in items]
    replayed = sum(item["replayed"] for item in said)
    assert 0 < replayed < 1000, f"{replayed} were in the batch after which the worker died"
    assert stack.counts(coupon)["redeemed"] == 1040
    stack.verify(coupon)
