"""Slots that come with their coupon: POST /coupons with `generate`, and its Idempotency-Key."""
import concurrent.futures
import contextlib
import datetime

import pytest

from effort import in_full
from halves import asleep
from ledger import LaneLedger, check_chain, read
from stack import WORKERS, wait_until
from test_replenish import forget_what_was_reported
from within import within


def new(ops, cap=None, key=None, may_fail=False, **members):
    return ops.post("/coupons", {"title": "With slots", "state": "active", "cap": {"total": 100, **(cap or {})}, **members},
                    idempotency_key=key, may_fail=may_fail)


def await_job(stack, reply):
    """The coupon that a 201 shows, once its slots are there: the answer names their job unless that is done."""
    made = reply.ok(201)
    job = made.pop("job", None)
    if job:
        stack.job_at(f"/coupons/-/jobs/{job}")
    return made


def slots(stack, coupon):
    counts = stack.counts(coupon)
    return counts["slots"], counts["free"]


def test_a_coupon_that_is_made_with_its_slots_can_be_taken_at_once(stack, ops, storefront):
    made = new(ops, generate=True).ok(201)
    assert "job" not in made and "generate" not in made, made
    assert made == ops.get(f"/coupons/{made['id']}").ok()
    assert slots(stack, made["id"]) == (100, 100)
    assert storefront.take(made["id"], "u-1").ok(201)["after"]["left"] == 99
    assert not ops.get(f"/coupons/-/jobs?coupon={made['id']}").ok()["items"], "no job was needed"
    stack.verify(made["id"])
    check_chain(read(stack, made["id"]))


def test_without_generate_there_are_none(stack, ops, storefront):
    for generate in ({}, {"generate": False}):
        made = new(ops, **generate).ok(201)
        assert slots(stack, made["id"]) == (0, 0)
        storefront.take(made["id"], "u-1").problem("sold_out")


@pytest.mark.parametrize("number", [30, 30.0], ids=str)
def test_a_number_makes_so_many_and_the_rest_can_be_added_later(stack, ops, number):
    """However the integer is written, as for every other member."""
    made = new(ops, generate=number).ok(201)
    assert slots(stack, made["id"]) == (30, 30)
    stack.generate(made["id"], 70)
    assert slots(stack, made["id"]) == (100, 100)
    ops.post(f"/coupons/{made['id']}/slots", {"count": 1}).problem("cap_exceeded")
    stack.verify(made["id"])


@pytest.mark.parametrize("lanes", [1, in_full(4)])
def test_a_thousand_million_are_there_with_the_answer(stack, ops, storefront, lanes):
    made = new(ops, {"total": 10**9}, generate=True, lanes=lanes).ok(201)
    assert "job" not in made, made
    assert slots(stack, made["id"]) == (10**9, 10**9)
    storefront.take_each(made["id"], (f"u-{user}" for user in range(8)))
    assert slots(stack, made["id"]) == (10**9, 10**9 - 8)
    stack.verify(made["id"])


@pytest.mark.parametrize("lanes", [2, 5])
def test_every_lane_gets_its_part_and_none_is_made_twice(stack, ops, storefront, lanes):
    made = new(ops, {"total": 23}, generate=True, lanes=lanes).ok(201)
    assert slots(stack, made["id"]) == (23, 23)
    taken = [storefront.take(made["id"], f"u-{user}").ok(201)["slot"] for user in range(23)]
    assert len(set(taken)) == 23, taken
    storefront.take(made["id"], "late").problem("sold_out")
    stack.verify(made["id"])


@pytest.mark.parametrize("count", [1, 1000])
def test_a_coupon_that_is_made_with_its_codes_has_so_many(stack, ops, storefront, count):
    made = await_job(stack, new(ops, {"total": count}, generate=True, codes={"source": "generated"}))
    assert made == ops.get(f"/coupons/{made['id']}").ok()
    assert slots(stack, made["id"]) == (count, count)
    assert storefront.take(made["id"], "u-1").ok(201)["code"]
    rows = ops.get(f"/coupons/{made['id']}/codes").expect(200).body.decode().split()
    assert len(rows) == count + 1, rows[:3]
    stack.verify(made["id"])


def test_the_answer_names_the_job_that_makes_more_codes(stack, ops):
    made = new(ops, {"total": 1001}, generate=True, codes={"source": "generated"}).ok(201)
    job = stack.job_at(f"/coupons/-/jobs/{made['job']}")
    assert (job["kind"], job["coupon"], job["done"], job["total"]) == ("generate", made["id"], 1001, 1001), job
    assert slots(stack, made["id"]) == (1001, 1001)
    assert "job" not in ops.get(f"/coupons/{made['id']}").ok()
    stack.verify(made["id"])


def test_a_refill_and_the_first_slots_do_not_add_up(stack, ops):
    """Both are wanted from the beginning; there are as many as were asked for."""
    made = new(ops, {"total": 2000}, generate=True, codes={"source": "generated"}, replenish={"below": 500, "add": 600}).ok(201)
    stack.job_at(f"/coupons/-/jobs/{made['job']}")
    wait_until("all jobs to end", lambda: all(job["state"] == "done" for job in
                                              ops.get(f"/coupons/-/jobs?coupon={made['id']}").ok()["items"]))
    assert slots(stack, made["id"]) == (2000, 2000)
    stack.verify(made["id"])


@contextlib.contextmanager
def held_back(stack, ops, **members):
    """A coupon whose job for its first codes waits, whatever else the runner does, until the block ends."""
    with asleep(stack, ["runner"]):
        made = new(ops, codes={"source": "generated"}, **members).ok(201)
        job = {"_id": made["job"]}
        stack.database["jobs"].update_one(job, {"$set": {"not_before": datetime.datetime(2100, 1, 1)}})
    yield made["id"]
    stack.database["jobs"].update_one(job, {"$set": {"not_before": datetime.datetime(2000, 1, 1)}})
    assert stack.job_at(f"/coupons/-/jobs/{made['job']}")["done"] == members["generate"]


def test_slots_that_are_added_before_the_first_ones_come_on_top(stack, ops):
    with held_back(stack, ops, generate=50) as coupon:
        stack.generate(coupon, 50)
        assert slots(stack, coupon) == (50, 50)
    assert slots(stack, coupon) == (100, 100)
    stack.verify(coupon)


@pytest.mark.parametrize("generate, add, until", [(100, 60, 100), (30, 60, 60)])
def test_a_refill_waits_for_the_first_slots(stack, ops, generate, add, until):
    """It was wanted while there were none, and makes what is missing after they came."""
    def refill():
        [job] = stack.database["jobs"].find({"coupon": coupon, "key": {"$regex": "replenish"}})
        return job

    with held_back(stack, ops, generate=generate, replenish={"below": 20, "add": add}) as coupon:
        wait_until("the refill to be looked at twice", lambda: stack.database["jobs"].find_one(
            {"coupon": coupon, "key": {"$regex": "replenish"}, "fence": {"$gte": 2}}))
        assert refill()["state"] in ("queued", "running") and slots(stack, coupon) == (0, 0)
    assert stack.job_at(f"/coupons/-/jobs/{refill()['_id']}")["done"] == until - generate
    assert slots(stack, coupon) == (until, until)
    stack.verify(coupon)


def test_a_refill_that_waits_for_the_first_slots_can_be_cancelled(stack, ops):
    with held_back(stack, ops, generate=30, replenish={"below": 20, "add": 60}) as coupon:
        refill = wait_until("the refill to be looked at", lambda: stack.database["jobs"].find_one(
            {"coupon": coupon, "key": {"$regex": "replenish"}, "fence": {"$gte": 1}}))
        ops.post(f"/coupons/-/jobs/{refill['_id']}/cancel").expect(200)
        stack.job_at(f"/coupons/-/jobs/{refill['_id']}", "cancelled")
    assert slots(stack, coupon) == (30, 30)
    stack.verify(coupon)


# ---- what cannot be ----

@pytest.mark.parametrize("body", [
    {"cap": {"policy": "approximate"}, "generate": True}, {"cap": {"policy": "none"}, "generate": 5},
    {"codes": {"source": "imported"}, "generate": True}, {"codes": {"source": "imported"}, "generate": 5},
    {"generate": 101}, {"generate": 0}, {"generate": -1}, {"generate": 10**9 + 1}, {"generate": 1.5}, {"generate": "yes"},
    {"generate": None}, {"generate": [1]}, {"generate": {}},
], ids=str)
def test_what_cannot_be_generated_is_said_at_generate_and_nothing_is_made(ops, body):
    reply = new(ops, id="never-generated", **body)
    found = [e["pointer"] for e in reply.problem("bad_request")["errors"]]
    assert found == ["/generate"], reply
    ops.get("/coupons/never-generated").problem("coupon_not_found")


def test_generate_is_no_member_of_the_definition(ops):
    coupon = new(ops).ok(201)["id"]
    assert "generate" not in ops.patch(f"/coupons/{coupon}", {"generate": True}).ok()
    assert "generate" not in ops.get(f"/coupons/{coupon}").ok()


# ---- Idempotency-Key ----

@pytest.mark.parametrize("members", [
    {}, {"generate": True}, {"generate": 7}, {"id": "key-with-id", "generate": True},
    {"generate": True, "codes": {"source": "generated"}}, {"generate": True, "lanes": 3},
    {"generate": True, "codes": {"source": "generated"}, "cap": {"total": 1500}},
], ids=str)
def test_a_repeat_gets_the_first_answer_and_makes_nothing(stack, ops, members, request):
    key = request.node.name[-60:].replace('"', "")
    first = new(ops, key=key, **members)
    made = await_job(stack, first)
    before = slots(stack, made["id"]), ops.get(f"/coupons/-/jobs?coupon={made['id']}").ok()["items"]
    ops.patch(f"/coupons/{made['id']}", {"title": "Changed since"}).expect(200)
    for sent in (key, f'"{key}"'):
        again = new(ops, key=sent, **members)
        assert await_job(stack, again) == made
        assert again.header("Idempotent-Replayed") == "true" and first.header("Idempotent-Replayed") is None
        for name in ("Location", "ETag"):
            assert again.header(name) == first.header(name), again
    assert before == (slots(stack, made["id"]), ops.get(f"/coupons/-/jobs?coupon={made['id']}").ok()["items"])
    kinds = [entry["kind"] for entry in LaneLedger(stack, made["id"]).entries()]
    assert kinds.count("define") == 2, kinds
    ops.delete(f"/coupons/{made['id']}").expect(204)
    assert await_job(stack, new(ops, key=key, **members)) == made, "whatever became of the coupon since"
    stack.verify(made["id"])


def test_the_same_key_with_another_body_is_refused(ops):
    body = {"id": "key-of-another-body", "generate": True}
    new(ops, key="k-1", **body).expect(201)
    new(ops, key="k-1", **{**body, "generate": 100}).expect(201)  # which is what true meant
    for other in ({**body, "generate": False}, {**body, "generate": 99}, {**body, "title": "Another"}, {**body, "lanes": 2}):
        new(ops, key="k-1", **other).problem("idempotency_key_reused")
    new(ops, key="k-2", **body).problem("coupon_exists")
    new(ops, **body).problem("coupon_exists")


def test_without_an_id_the_key_stands_for_one_coupon(ops):
    made = new(ops, key="no-id").ok(201)
    new(ops, key="no-id", title="Another").problem("idempotency_key_reused")
    assert new(ops, key="another-no-id").ok(201)["id"] != made["id"]
    new(ops, key="no-id", id="with-an-id").expect(201)


def test_many_who_send_it_at_once_get_one_coupon(stack, ops):
    """To both workers, which both write."""
    callers = [stack.direct(i % WORKERS, "ops") for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(len(callers)) as pool:
        answers = [reply.ok(201) for reply in pool.map(lambda caller: new(caller, key="at once", generate=True), callers)]
    assert all(answer == answers[0] for answer in answers), answers
    assert slots(stack, answers[0]["id"]) == (100, 100)
    kinds = [entry["kind"] for entry in LaneLedger(stack, answers[0]["id"]).entries()]
    assert kinds == ["define", "generate"], kinds
    stack.verify(answers[0]["id"])


def test_a_coupon_that_was_made_without_a_key_is_nobodys_repeat(ops):
    made = new(ops).ok(201)
    new(ops, key="late", id=made["id"]).problem("coupon_exists")


@pytest.mark.parametrize("key", ["", '""', "k" * 65, "kä"])
def test_a_key_that_is_none_is_refused(ops, key):
    new(ops, key=key).problem("idempotency_key_required")


# ---- deaths ----

@pytest.mark.parametrize("codes", [{"source": "none"}, {"source": "generated"}], ids=["slots", "codes"])
def test_a_worker_that_dies_after_the_append_leaves_a_coupon_with_its_slots(monkeypatch, beside, codes):
    """The ledger has the definition; nobody got an answer, and no job was asked for by the worker."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "appended:1")
    stack = beside()
    ops = stack.client("ops")
    lost = new(ops, key="k", id="died", generate=True, codes=codes, may_fail=True)
    assert lost.status >= 500, lost
    wait_until(lambda: stack.log()[-2000:], lambda: "event=crash.point" in stack.log())
    wait_until(lambda: slots(stack, "died"), lambda: slots(stack, "died") == (100, 100))
    again = wait_until("the same answer", lambda: (r := new(ops, key="k", id="died", generate=True, codes=codes, may_fail=True))
                       .status == 201 and r)
    assert again.header("Idempotent-Replayed") == "true" and await_job(stack, again)["id"] == "died", again
    kinds = [entry["kind"] for entry in LaneLedger(stack, "died").entries()]
    assert kinds.count("define") == 1 and kinds.count("generate") == 1, kinds
    stack.verify("died")


def test_where_codes_are_not_made_soon_the_answer_names_their_job(beside):
    """Long before the request's time is up: what waits there holds up others."""
    stack = beside("[worker]\nrequest_deadline_ms = 60000\n")
    ops, body = stack.client("ops"), {"id": "waits", "generate": True, "codes": {"source": "generated"}}
    with asleep(stack, ["runner"]):
        with within(20, "the answer that names the job", stack.all_pids):
            made = new(ops, key="k", may_fail=True, **body).ok(201)
        assert ops.get(f"/coupons/-/jobs/{made['job']}").ok()["state"] == "queued"
        assert slots(stack, "waits") == (0, 0)
    stack.job_at(f"/coupons/-/jobs/{made['job']}")
    assert slots(stack, "waits") == (100, 100)
    again = new(ops, key="k", **body)
    assert again.header("Idempotent-Replayed") == "true"
    assert again.ok(201) == {name: value for name, value in made.items() if name != "job"}, "the job is done"
    stack.verify("waits")


def test_a_request_that_was_met_is_not_met_again(beside):
    stack = beside()
    ops = stack.client("ops")
    coupon = await_job(stack, new(ops, generate=True, codes={"source": "generated"}))["id"]
    ops.post(f"/coupons/{coupon}/slots/retire", {"count": 40}, idempotency_key="less").expect(202)
    wait_until(lambda: stack.counts(coupon), lambda: stack.counts(coupon)["slots"] == 60)
    forget_what_was_reported(stack, coupon)
    ops.patch(f"/coupons/{coupon}", {"title": "So that it is read"}).expect(200)
    [job] = wait_until("the old request", lambda: [j for j in ops.get(f"/coupons/-/jobs?coupon={coupon}").ok()["items"]
                                                if j["state"] == "done"])
    assert job["done"] == 100 and stack.counts(coupon)["slots"] == 60, job
    stack.verify(coupon)
