"""Slots: generating and retiring them as background jobs, the inventory, one slot's history; the job runner's deaths."""
import datetime
import random
import time

import pytest

from halves import asleep
from lanes import check_lanes
from stack import wait_until
from test_coupons import walk

JOB = {"id", "kind", "coupon", "state", "done", "total", "result", "error"}


def in_future():
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).isoformat()


def test_generating_is_a_job_that_tells_its_progress(stack, ops, reporting):
    coupon = stack.coupon(slots=0, cap={"total": 1000})
    reply = ops.post(f"/coupons/{coupon}/slots", {"count": 700}).expect(202)
    location = reply.header("Location")
    assert location.startswith("/coupons/-/jobs/"), reply
    assert JOB <= set(reply.json()) and reply.json()["coupon"] == coupon, reply
    job = stack.job(reply)
    assert location.endswith("/" + job["id"])
    assert (job["done"], job["total"], job["error"]) == (700, 700, None), job
    assert reporting.get(location).ok() == job
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"]) == (700, 700)


def test_until_makes_what_is_missing_only(stack, ops):
    coupon = stack.coupon(slots=0, cap={"total": 100})
    for until, slots in ((40, 40), (70, 70), (70, 70), (50, 70), (100, 100)):
        stack.job(ops.post(f"/coupons/{coupon}/slots", {"until": until}).expect(202))
        assert stack.counts(coupon)["slots"] == slots, until


def test_more_than_the_cap_is_refused(stack, ops):
    coupon = stack.coupon(slots=60, cap={"total": 100})
    ops.post(f"/coupons/{coupon}/slots", {"count": 41}).problem("cap_exceeded")
    ops.post(f"/coupons/{coupon}/slots", {"until": 101}).problem("cap_exceeded")
    assert stack.counts(coupon)["slots"] == 60
    stack.generate(coupon, 40)
    assert stack.counts(coupon)["slots"] == 100


def test_two_jobs_that_together_pass_the_cap_never_do(stack, ops):
    coupon = stack.coupon(slots=0, cap={"total": 20000})
    with asleep(stack, ["runner"]):  # so that there is no slot yet when the second one is asked for
        replies = [ops.post(f"/coupons/{coupon}/slots", {"count": 15000}).expect(202) for _ in range(2)]
    jobs = []
    for reply in replies:
        wait_until(lambda: reply, lambda: ops.get(reply.header("Location")).ok()["state"] in ("done", "failed"))
        jobs.append(ops.get(reply.header("Location")).ok())
    assert sorted(j["state"] for j in jobs) == ["done", "failed"], jobs
    failed = next(j for j in jobs if j["state"] == "failed")
    assert failed["error"] == "cap_exceeded", failed
    assert stack.counts(coupon)["slots"] == sum(j["done"] for j in jobs) <= 20000
    stack.verify(coupon)


def test_the_same_key_is_the_same_job(stack, ops):
    coupon = stack.coupon(slots=0, cap={"total": 100})
    at = f"/coupons/{coupon}/slots"
    first = ops.post(at, {"count": 60}, idempotency_key="gen").expect(202)
    stack.job(first)
    again = ops.post(at, {"count": 60}, idempotency_key="gen").expect(202)
    assert again.header("Location") == first.header("Location") and again.header("Idempotent-Replayed") == "true", again
    ops.post(at, {"count": 40}, idempotency_key="gen").problem("idempotency_key_reused")
    other = stack.coupon(slots=0, cap={"total": 100})
    assert ops.post(f"/coupons/{other}/slots", {"count": 60}, idempotency_key="gen").expect(202).header("Location") \
        != first.header("Location")
    assert stack.counts(coupon)["slots"] == 60


@pytest.mark.parametrize("body, pointer", [
    ({}, ""), ({"count": 1, "until": 1}, ""), ({"count": 0}, "/count"), ({"count": -1}, "/count"), ({"count": "5"}, "/count"),
    ({"count": 1.5}, "/count"), ({"until": 0}, "/until"), ({"count": 10**9 + 1}, "/count"), ({"count": 5, "number": 1}, "/number"),
    ({"count": 5, "not_before": "soon"}, "/not_before"), ({"count": True}, "/count"),
], ids=str)
def test_bad_orders_for_slots_are_refused(stack, ops, body, pointer):
    coupon = stack.coupon(slots=0, cap={"total": 100})
    ops.post(f"/coupons/{coupon}/slots", body).problem("bad_request", at=pointer)
    assert stack.counts(coupon)["slots"] == 0


def test_jobs_are_listed_newest_first_and_found_by_id(stack, ops):
    coupon = stack.coupon(slots=0, cap={"total": 100})
    made = [stack.job(ops.post(f"/coupons/{coupon}/slots", {"count": 1}).expect(202))["id"] for _ in range(5)]
    seen, _ = walk(ops, "/coupons/-/jobs?limit=2")
    assert [j["id"] for j in seen if j["coupon"] == coupon] == made[::-1]
    assert len({j["id"] for j in seen}) == len(seen)
    for unknown in ("nope", "x" * 100, "%C3%28", "..", "a%2Fb"):
        ops.get(f"/coupons/-/jobs/{unknown}").problem("job_not_found")
    ops.post("/coupons/-/jobs/nope/cancel").problem("job_not_found")


def test_a_job_for_later_waits_and_can_be_cancelled(stack, ops):
    coupon = stack.coupon(slots=0, cap={"total": 100})
    reply = ops.post(f"/coupons/{coupon}/slots", {"count": 10, "not_before": in_future()}).expect(202)
    now = stack.job(ops.post(f"/coupons/{coupon}/slots", {"count": 3}).expect(202))
    assert now["state"] == "done", "a later job overtakes the one that waits"
    location = reply.header("Location")
    assert ops.get(location).ok()["state"] == "queued"
    assert ops.post(f"{location}/cancel").ok()["state"] == "cancelled"
    assert ops.post(f"{location}/cancel").ok()["state"] == "cancelled"
    assert ops.get(location).ok()["state"] == "cancelled"
    assert stack.counts(coupon)["slots"] == 3


def test_a_job_with_its_time_in_the_past_runs(stack, ops):
    coupon = stack.coupon(slots=0, cap={"total": 100})
    stack.job(ops.post(f"/coupons/{coupon}/slots", {"count": 10, "not_before": "2020-01-01T00:00:00+02:00"}).expect(202))
    assert stack.counts(coupon)["slots"] == 10


def test_slots_can_be_taken_as_soon_as_they_are_there(stack, ops, storefront):
    coupon = stack.coupon(slots=0, cap={"total": 10**6, "per_user": 1000})
    job = ops.post(f"/coupons/{coupon}/slots", {"count": 400_000}).expect(202)
    reply = wait_until("a slot", lambda: (r := storefront.take(coupon, "u")).status == 201 and r)
    state = ops.get(job.header("Location")).ok()
    assert reply.json()["slot"] < 400_000
    assert state["state"] in ("running", "done"), state
    assert stack.job(job)["done"] == 400_000
    assert stack.counts(coupon)["slots"] == 400_000
    stack.verify(coupon)


def test_a_running_job_stops_when_it_is_cancelled(stack, ops):
    coupon = stack.coupon(slots=0, cap={"total": 10**9})
    reply = ops.post(f"/coupons/{coupon}/slots", {"count": 10**9}).expect(202)  # it would take minutes
    location = reply.header("Location")
    wait_until("some progress", lambda: ops.get(location).ok()["done"] > 0)
    ops.post(f"{location}/cancel").expect(200)
    job = stack.job_at(location, "cancelled")
    assert 0 < job["done"] < 10**9, job
    counts = stack.counts(coupon)
    assert counts["slots"] == job["done"], (counts, job)
    stack.verify(coupon)


def test_retiring_takes_free_slots_out_and_needs_a_key(stack, ops, storefront):
    coupon = stack.coupon(slots=200, cap={"total": 200, "per_user": 200})
    held = [storefront.take(coupon, "u").ok(201)["id"] for _ in range(5)]
    at = f"/coupons/{coupon}/slots/retire"
    ops.post(at, {"count": 20}).problem("idempotency_key_required")
    ops.post(at, {}, idempotency_key="r").problem("bad_request", at="/count")
    reply = ops.post(at, {"count": 150}, idempotency_key="r").expect(202)
    job = stack.job(reply)
    assert job["done"] == 150, job
    again = ops.post(at, {"count": 150}, idempotency_key="r").expect(202)
    assert again.header("Location") == reply.header("Location")
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"], counts["redeemed"]) == (50, 45, 5), counts
    for rid in held:
        assert storefront.get(f"/coupons/{coupon}/redemptions/{rid}").ok()["state"] == "redeemed"
    stack.job(ops.post(at, {"count": 1000}, idempotency_key="all").expect(202))
    assert stack.counts(coupon)["slots"] == 5, "taken slots are never retired"
    storefront.take(coupon, "u").problem("sold_out")
    stack.generate(coupon, 195)
    storefront.take(coupon, "u").expect(201)
    stack.verify(coupon)


def test_the_inventory_is_by_state_and_bucket(stack, ops, reporting, storefront):
    coupon = stack.coupon(slots=200, cap={"total": 200, "per_user": 10})
    storefront.take_each(coupon, ["u"] * 3)

    def inventory():
        items, _ = walk(reporting, f"/coupons/{coupon}/slots?limit=2")
        return items

    wait_until(lambda: inventory(), lambda: sum(b["redeemed"] for b in inventory()) == 3)
    buckets = inventory()
    assert [b["size"] for b in sorted(buckets, key=lambda b: b["bucket"])] == [64, 64, 64, 8]
    assert sum(b["free"] for b in buckets) == 197
    assert buckets == reporting.get(f"/coupons/{coupon}/slots?limit=1000").ok()["items"]


def test_one_slot_tells_its_history(stack, reporting, storefront):
    coupon = stack.coupon(slots=2, cap={"total": 2})
    first = storefront.take(coupon, "a").ok(201)
    at = f"/coupons/{coupon}/slots/{first['slot']}"
    storefront.post(f"/coupons/{coupon}/redemptions/{first['id']}/reverse").expect(200)
    takers = {r["slot"]: r for r in (storefront.take(coupon, user).ok(201) for user in ("b", "c"))}
    said = reporting.get(at).ok()
    assert said["state"] == "redeemed", said
    assert [(h["id"], h["user"], h["state"]) for h in said["history"]] == [
        (takers[first["slot"]]["id"], takers[first["slot"]]["user"], "redeemed"), (first["id"], "a", "reversed")], said
    for unknown in ("2", "-1", "x", "99999999999999999999", "0x1", "01x", "%00"):
        assert reporting.get(f"/coupons/{coupon}/slots/{unknown}").code() in ("slot_not_found", "bad_request"), unknown
    reporting.get(f"/coupons/{coupon}/slots/2").problem("slot_not_found")


def kill_runners(stack, ats, times, ahead, far=None):
    """kill -9 so many times, each when these jobs, or what far() tells, are ahead() further; once at least while one of them runs, which
    another runner takes up then."""
    ops, disturbed, ids = stack.client("ops"), 0, [at.rpartition("/")[2] for at in ats]

    def jobs(name):
        return [ops.get(at).ok()[name] for at in ats]

    far = far or (lambda: sum(jobs("done")))
    for _ in range(times):
        target = far() + ahead()
        wait_until("progress", lambda: far() >= target or set(jobs("state")) == {"done"})
        stack.kill("runner", stopped=True)
        disturbed += "running" in jobs("state")
    taken_up = stack.database.jobs.count_documents({"_id": {"$in": ids}, "fence": {"$gt": 1}})
    assert disturbed or taken_up, "all ended too early to be disturbed"


@pytest.mark.heavy
def test_a_killed_runner_is_resumed_exactly(stack, ops):
    """kill -9 at random moments of five jobs at once: every job ends with exactly its slots."""
    chance = random.Random(3)
    wanted = {}
    for _ in range(5):
        count = chance.randrange(200_000, 400_000)
        coupon = stack.coupon(slots=0, cap={"total": 10**6})
        wanted[ops.post(f"/coupons/{coupon}/slots", {"count": count}).expect(202).header("Location")] = (coupon, count)
    kill_runners(stack, wanted, 6, lambda: chance.randrange(1, 60_000))
    for at, (coupon, count) in wanted.items():
        job = stack.job_at(at)
        assert (job["done"], job["total"]) == (count, count), job
        counts = stack.counts(coupon)
        assert (counts["slots"], counts["free"]) == (count, count), counts
        stack.verify(coupon)


@pytest.mark.heavy
def test_a_runner_that_sleeps_past_its_lease_does_nothing_twice(stack, ops):
    """SIGSTOP: the master's next runner, or the same one woken late, goes on; the fence keeps them apart."""
    coupon = stack.coupon(slots=0, cap={"total": 10**6})
    at = ops.post(f"/coupons/{coupon}/slots", {"count": 500_000}).expect(202).header("Location")
    wait_until("some progress", lambda: ops.get(at).ok()["done"] > 0)
    before = ops.get(at).ok()
    with asleep(stack, ["runner"]):
        time.sleep(3)  # longer than its lease of 2 s
    job = stack.job_at(at)
    assert before["done"] <= job["done"] == 500_000, (before, job)
    assert stack.counts(coupon)["slots"] == 500_000
    stack.verify(coupon)


@pytest.mark.heavy
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_killed_runner_retires_for_each_job_once(stack, ops, lanes):
    """kill -9 while several of them wait, and shortly after one was begun."""
    chance, jobs = random.Random(lanes), []
    coupon = stack.coupon(slots=20_000, lanes=lanes)
    for number in range(3):
        with asleep(stack, ["runner"]):
            jobs += [ops.post(f"/coupons/{coupon}/slots/retire", {"count": 1000}, idempotency_key=f"r-{number}-{i}").expect(202)
                     for i in range(4)]
        time.sleep(chance.uniform(0, 0.1))
        stack.kill("runner")
    assert [stack.job(job)["done"] for job in jobs] == [1000] * 12
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"]) == (8000, 8000), counts
    wait_until("the slots to be retired", lambda: ops.get(f"/coupons/{coupon}/slots").ok()["slots"]["due"] == 0)
    stack.verify(coupon)


@pytest.mark.full
@pytest.mark.heavy
def test_a_killed_runner_makes_the_slots_of_all_lanes_once(stack, ops):
    """And a job that is cancelled stops there, too: what was made until then is what there is."""
    chance, wanted = random.Random(8), 400_000
    coupon, stopped = (stack.coupon(slots=0, lanes=4, cap={"total": 10**9}) for _ in range(2))
    at = ops.post(f"/coupons/{coupon}/slots", {"count": wanted}).expect(202).header("Location")
    kill_runners(stack, [at], 3, lambda: chance.randrange(1, 60_000))
    assert stack.job_at(at)["done"] == wanted
    at = ops.post(f"/coupons/{stopped}/slots", {"count": 10**9}).expect(202).header("Location")
    wait_until("some progress", lambda: ops.get(at).ok()["done"] > 0)
    ops.post(f"{at}/cancel").expect(200)
    done = stack.job_at(at, "cancelled")["done"]
    assert 0 < done < 10**9, done
    for name, slots in ((coupon, wanted), (stopped, done)):
        counts = stack.counts(name)
        assert (counts["slots"], counts["free"]) == (slots, slots), counts
        check_lanes(stack, name)


def test_pregenerate_makes_slots_from_the_command_line(stack):
    coupon = stack.coupon(slots=0, cap={"total": 1000})
    stack.script("pregenerate", coupon, 1000, status=0)
    assert stack.counts(coupon)["slots"] == 1000
    done = stack.script("pregenerate", coupon, 1)
    assert done.returncode != 0 and "cap" in done.stdout, done.stdout
    done = stack.script("pregenerate", coupon, "many")
    assert done.returncode != 0 and "usage" in done.stdout, done.stdout
