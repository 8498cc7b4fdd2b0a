"""Refill before empty: slots are added once, whoever sees it first; the events stand in the ledger exactly once."""
import contextlib
import signal

import pytest

from effort import effort
from halves import asleep
from lanes import MOVE
from ledger import LaneLedger
from stack import wait_until
from swarm import Swarm, by_code, swarm, take, takers

EVENTS = ("low_stock", "sold_out", "replenish")


def events(stack, coupon, kinds=EVENTS):
    """The events of the ledger in their order, or other entries, with their counts."""
    return [(entry["kind"], entry.get("count")) for batch in LaneLedger(stack, coupon).batches for entry in batch["entries"]
            if entry["kind"] in kinds]


def generated(stack, coupon):
    """How many slots each job made, in the order of the ledger, without those that came from another lane."""
    jobs = {}
    for batch in LaneLedger(stack, coupon).batches:
        for entry in batch["entries"]:
            if entry["kind"] == "generate" and not MOVE.fullmatch(entry["job"]):
                jobs[entry["job"]] = jobs.get(entry["job"], 0) + entry["count"] + entry.get("gift_slots", 0)
    return list(jobs.values())


def filled(stack, slots, **members):
    """A coupon that has its slots before it becomes active: so it is not refilled from the start."""
    coupon = stack.coupon(state="draft", **members)
    stack.generate(coupon, slots)
    stack.patch(coupon, {"state": "active"})
    return coupon


def jobs_of(stack, coupon):
    return stack.client("ops").get(f"/coupons/-/jobs?coupon={coupon}").ok()["items"]


def test_low_stock_and_sold_out_stand_in_the_ledger_once(stack, storefront):
    coupon = stack.coupon(slots=20, cap={"total": 40, "per_user": 100}, low_stock=5)
    calls = swarm([stack.way()], takers(coupon, 30), 8)
    assert by_code(calls) == {"201": 20, "sold_out": 10}, by_code(calls)
    said = events(stack, coupon)
    assert [kind for kind, _ in said] == ["low_stock", "sold_out"] and said[0][1] <= 5, said
    first = storefront.get(f"/coupons/{coupon}/redemptions?user=u-0").ok()["items"] or \
        storefront.get(f"/coupons/{coupon}/redemptions").ok()["items"]
    storefront.post(f"/coupons/{coupon}/redemptions/{first[0]['id']}/reverse").expect(200)
    storefront.take(coupon, "again").expect(201)
    assert len(events(stack, coupon)) == 2, "not again before slots were added"
    stack.generate(coupon, 10)
    swarm([stack.way()], (take(coupon, f"v-{i}", f"l-{i}") for i in range(15)), 8)
    assert [kind for kind, _ in events(stack, coupon)] == ["low_stock", "sold_out"] * 2
    stack.verify(coupon)


@pytest.mark.parametrize("codes", [{"source": "none"}, {"source": "generated"}], ids=["slots", "codes"])
def test_four_clients_over_two_workers_are_refilled_up_to_the_cap(stack, codes):
    """Every refill is asked for once and made once, though two workers decide and four clients race."""
    coupon = stack.coupon(cap={"total": 1000, "per_user": 1}, codes=codes, low_stock=10, replenish={"below": 200, "add": 250})
    with Swarm(stack.ways(), takers(coupon), 8) as crowd:
        wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["redeemed"] == 1000)
    assert by_code(crowd.done)["201"] == 1000, by_code(crowd.done)
    wait_until("the jobs to end", lambda: all(job["state"] == "done" for job in jobs_of(stack, coupon)))
    said = events(stack, coupon)
    wanted = [count for kind, count in said if kind == "replenish"]
    assert wanted == [250, 500, 750, 1000], said
    assert generated(stack, coupon) == [250] * 4, generated(stack, coupon)
    assert len(jobs_of(stack, coupon)) == 4, jobs_of(stack, coupon)
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"], counts["redeemed"]) == (1000, 0, 1000), counts
    course = events(stack, coupon, (*EVENTS, "generate"))
    for kind in ("low_stock", "sold_out"):
        raised = [i for i, (seen, _) in enumerate(course) if seen == kind]
        assert len(raised) <= 4, course  # at most once per filling, which may come long after it was asked for
        assert all("generate" in [seen for seen, _ in course[a:b]] for a, b in zip(raised, raised[1:])), course
    assert said[-1][0] == "sold_out", said
    stack.verify(coupon)


def test_four_workers_race_and_each_refill_is_made_once(beside):
    """With one lane, and with four, of which each worker may write any."""
    stack = beside(workers=4)
    coupons = [stack.coupon(lanes=lanes, cap={"total": 600, "per_user": 1}, replenish={"below": 120, "add": 150})
               for lanes in (1, 4)]
    with contextlib.ExitStack() as crowds:
        running = [crowds.enter_context(Swarm(stack.ways(), takers(coupon), 16)) for coupon in coupons]
        for coupon in coupons:
            wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["redeemed"] == 600)
    for crowd in running:
        assert by_code(crowd.done)["201"] == 600, by_code(crowd.done)
    for coupon in coupons:
        wait_until("the jobs to end", lambda: all(job["state"] == "done" for job in jobs_of(stack, coupon)))
        assert events(stack, coupon, ("replenish",)) == [("replenish", until) for until in (150, 300, 450, 600)]
        assert generated(stack, coupon) == [150] * 4 and len(jobs_of(stack, coupon)) == 4, jobs_of(stack, coupon)
        counts = stack.counts(coupon)
        assert (counts["slots"], counts["free"]) == (600, 0), counts
    stack.verify(*coupons)


REFILL = {"below": 20, "add": 50}


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("before, change", [
    ({"cap": {"total": 100}, "replenish": REFILL}, {"cap": {"total": 200}}), ({"cap": {"total": 200}}, {"replenish": REFILL})],
    ids=["when its cap is raised", "when that is asked for"])
def test_what_is_sold_out_is_refilled(stack, lanes, before, change):
    coupon = filled(stack, 100, lanes=lanes, **before)
    swarm(stack.ways(), [take(coupon, f"u-{i}", f"k-{i}") for i in range(100)], 8)
    wait_until("sold_out", lambda: events(stack, coupon) == [("sold_out", None)])
    stack.patch(coupon, change)
    wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["slots"] == 150)
    assert events(stack, coupon)[1:] == [("replenish", 150)], events(stack, coupon)
    stack.verify(coupon)


@pytest.mark.full
def test_what_was_refilled_is_not_refilled_again_for_what_was_seen_before(stack):
    """Many coupons of four lanes, whose slots come while a worker asks how many are left."""
    coupons = [stack.coupon(lanes=4, cap={"total": 10**5}, replenish={"below": 120, "add": 150}) for _ in range(effort(8, 24))]

    def slots(count):
        return lambda: all(stack.counts(coupon)["slots"] >= count for coupon in coupons)

    wait_until("the first slots", slots(150))
    calls = [take(coupon, f"u-{i}", f"k-{i}") for i in range(90) for coupon in coupons]
    assert by_code(swarm(stack.ways(), calls, 16)) == {"201": len(calls)}
    wait_until("the second ones", slots(300))
    for coupon in coupons:
        wait_until("the jobs to end", lambda: all(job["state"] == "done" for job in jobs_of(stack, coupon)))
        assert events(stack, coupon, ("replenish",)) == [("replenish", 150), ("replenish", 300)]
    stack.verify(*coupons)


def test_a_refill_that_was_asked_for_while_the_reporter_was_dead_comes_when_it_is_back(stack, storefront):
    coupon = filled(stack, 10, cap={"total": 100, "per_user": 100}, replenish={"below": 5, "add": 20})
    stack.kill("reporter")
    storefront.take_each(coupon, (f"u-{i}" for i in range(7)))
    stack.kill("reporter")
    wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["slots"] == 30)
    assert events(stack, coupon) == [("replenish", 30)]
    assert generated(stack, coupon) == [10, 20]
    stack.verify(coupon)


def forget_what_was_reported(stack, coupon):
    """The reporter reads the ledger from its beginning, its jobs being forgotten. Without a watermark no erasure begins: that is not
    for a stack of others."""
    wait_until("the reporter to have read all", lambda: (position := stack.database["totals_positions"].find_one(
        {"_id.c": coupon})) and position["seq"] == stack.counts(coupon)["seq"])
    stack.signal("reporter", signal.SIGSTOP)  # it writes its watermark no more
    stack.database["jobs"].delete_many({"coupon": coupon})
    stack.database["totals"].delete_many({"_id.c": coupon})
    stack.database["totals_positions"].delete_many({"_id.c": coupon})
    stack.database["watermarks"].delete_many({})
    stack.kill("reporter")


def test_an_old_request_for_slots_is_not_answered_again(beside):
    """Nothing is added a second time."""
    stack = beside()
    ops, storefront = stack.client("ops"), stack.client("storefront")
    coupon = filled(stack, 10, cap={"total": 100, "per_user": 100}, replenish={"below": 5, "add": 20})
    storefront.take_each(coupon, (f"u-{i}" for i in range(7)))
    wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["slots"] == 30)
    wait_until("the jobs to end", lambda: all(job["state"] == "done" for job in jobs_of(stack, coupon)))
    ops.post(f"/coupons/{coupon}/slots/retire", {"count": 15}, idempotency_key="less").expect(202)
    wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["slots"] == 15)
    forget_what_was_reported(stack, coupon)
    storefront.take(coupon, "later").expect(201)
    job = wait_until("the old request", lambda: [j for j in jobs_of(stack, coupon) if j["state"] == "done"])
    assert [j["done"] for j in job] == [0] or [j["result"] for j in job] == [{"generated": 0}], job
    assert stack.counts(coupon)["slots"] == 15
    stack.verify(coupon)


def test_a_refill_that_was_cancelled_is_asked_for_again_after_slots_were_made_by_hand(stack, ops, storefront):
    coupon = filled(stack, 10, cap={"total": 100, "per_user": 100}, replenish={"below": 5, "add": 20})
    with asleep(stack, ["runner"]):
        storefront.take_each(coupon, (f"u-{i}" for i in range(7)))
        [job] = wait_until("the job", lambda: [j for j in jobs_of(stack, coupon) if j["state"] == "queued"])
        assert ops.post(f"/coupons/-/jobs/{job['id']}/cancel").ok()["state"] == "cancelled"
    storefront.take_each(coupon, (f"v-{i}" for i in range(3)))
    storefront.take(coupon, "late").problem("sold_out")
    stack.generate(coupon, 20)
    storefront.take_each(coupon, (f"w-{i}" for i in range(16)))
    wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["slots"] == 50)
    assert events(stack, coupon, ("replenish",)) == [("replenish", 30), ("replenish", 50)]
    stack.verify(coupon)


def test_a_callers_key_is_never_a_refills(stack, ops, storefront):
    """However it begins: its slots are made, and the refill of that name comes."""
    coupon = filled(stack, 10, cap={"total": 100, "per_user": 100}, replenish={"below": 5, "add": 20})
    slots, later = f"/coupons/{coupon}/slots", {"count": 1, "not_before": "2100-01-01T00:00:00Z"}
    job = stack.job(ops.post(slots, {"count": 3}, idempotency_key="replenish-2026-11").expect(202))
    assert job["result"] == {"generated": 3}, job
    for seq in range(stack.counts(coupon)["seq"] + 1, stack.counts(coupon)["seq"] + 40):
        ops.post(slots, later, idempotency_key=f"replenish-0-{seq}").expect(202)
    storefront.take_each(coupon, (f"u-{i}" for i in range(10)))
    wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["slots"] == 33)
    stack.verify(coupon)


def test_an_imported_list_raises_the_event_and_is_not_refilled(stack, storefront):
    coupon = stack.imported([f"CODE-{i}" for i in range(7)], low_stock=2, replenish={"below": 5, "add": 20})
    for i in range(7):
        storefront.take(coupon, f"u-{i}", code=f"CODE-{i}").expect(201)
    assert events(stack, coupon) == [("low_stock", 4), ("sold_out", None)]
    assert [job["kind"] for job in jobs_of(stack, coupon)] == ["import"]
    stack.verify(coupon)
