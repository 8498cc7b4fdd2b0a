"""Exports of codes as jobs: the same rows as the streamed list, once, however often the runner dies; no name is kept in them."""
import csv
import datetime
import io
import os
import signal
import time

import pytest

from stack import age_s, wait_until
from test_import import some_codes

HEAD = ["code", "state", "user", "at"]
PART_SLOTS = 4096  # of the text's parts; not part of the contract


@pytest.fixture(scope="module")
def big(stack):
    """A coupon with 100,000 codes; they only ever stay as they are."""
    name, codes = "export-100000", some_codes(100_000, seed=31)
    stack.client("ops").post("/coupons", {"id": name, "title": name, "state": "active", "cap": {"total": None},
                                          "codes": {"source": "imported"}}).expect(201)
    assert stack.import_codes(name, codes)["imported"] == len(codes)
    return name, codes


def small(stack, *codes):
    name = stack.coupon(cap={"total": None, "per_user": 9}, codes={"source": "imported", "claim": "present"})
    stack.import_codes(name, codes)
    return name


def ask(stack, coupon, body=None, **how):
    return stack.client("ops").post(f"/coupons/{coupon}/codes/export", body, **how).expect(202)


def rows_of(stack, job):
    reply = stack.client("ops").get(f"/coupons/-/jobs/{job['id']}/rows").expect(200)
    assert reply.header("Content-Type") == "text/csv; charset=utf-8" and reply.header("Cache-Control") == "no-store", reply
    reader = csv.DictReader(io.StringIO(reply.body.decode(), newline=""), strict=True)
    assert reader.fieldnames == HEAD, reply
    return list(reader)


def listed(stack, coupon):
    reply = stack.client("ops").get(f"/coupons/{coupon}/codes").expect(200)
    return list(csv.DictReader(io.StringIO(reply.body.decode(), newline=""), strict=True))


def stopped_halfway(stack, coupon):
    """An export of which something is done and something is not, and the runner stands still; its address, the runner."""
    runner = wait_until("a runner that has lived for a second", lambda: (p := stack.pid("runner")) and age_s(p) > 1.1 and p)
    for _ in range(20):
        reply = ask(stack, coupon)
        job = {"_id": reply.json()["id"]}
        wait_until("some progress", lambda: stack.database.jobs.find_one(job)["done"] > 0, every=0)
        os.kill(runner, signal.SIGSTOP)
        if stack.database.jobs.find_one(job)["state"] == "running":
            return reply.header("Location"), runner
        os.kill(runner, signal.SIGCONT)
    raise AssertionError("no export could be stopped before its end")


# ---- rows ----

def test_an_export_has_the_rows_of_the_list(stack, ops, storefront):
    coupon = small(stack, "AAAA", "BB,BB", 'CC"CC', "DD DD", "EEEE", "FFFF")
    storefront.take(coupon, "u-1", code="BB,BB", state="issued").expect(201)
    storefront.take(coupon, 'u,"2"', code='CC"CC').expect(201)
    storefront.take(coupon, "u-3", code="DD DD", state="reserved").expect(201)
    held = storefront.take(coupon, "u-4", code="EEEE", state="issued").ok(201)["id"]
    storefront.post(f"/coupons/{coupon}/redemptions/{held}/reserve", {"order": {"id": "o-1"}}, idempotency_key="hold").expect(201)
    ops.post(f"/coupons/{coupon}/codes/FFFF/retire").expect(200)
    reply = ask(stack, coupon)
    assert reply.json()["kind"] == "export" and reply.header("Location") == f"/coupons/-/jobs/{reply.json()['id']}", reply
    job = stack.job(reply)
    assert (job["done"], job["total"], job["result"], job["error"]) == (6, 6, {"slots": 6}, None), job
    rows = rows_of(stack, job)
    assert rows == listed(stack, coupon)
    assert [(r["code"], r["state"], r["user"]) for r in rows] == [
        ("AAAA", "free", ""), ("BB,BB", "issued", "u-1"), ('CC"CC', "redeemed", 'u,"2"'), ("DD DD", "reserved", "u-3"),
        ("EEEE", "reserved", "u-4"), ("FFFF", "retired", "")], rows
    assert ops.request("HEAD", f"/coupons/-/jobs/{job['id']}/rows").expect(200).body == b""
    stack.verify(coupon)


@pytest.mark.full
def test_a_hundred_thousand_codes(stack, big):
    coupon, codes = big
    job = stack.job(ask(stack, coupon))
    assert (job["done"], job["total"], job["result"]) == (100_000, 100_000, {"slots": 100_000}), job
    rows = rows_of(stack, job)
    assert [r["code"] for r in rows] == codes
    assert rows == listed(stack, coupon)


def test_generated_codes_are_exported_too_and_a_coupon_without_any_gives_the_header(stack, ops):
    coupon = stack.coupon(slots=70, codes={"source": "generated"})
    assert rows_of(stack, stack.job(ask(stack, coupon))) == listed(stack, coupon) != []
    empty = stack.coupon(cap={"total": 5}, codes={"source": "generated"})
    job = stack.job(ask(stack, empty))
    assert (job["total"], rows_of(stack, job)) == (0, []), job
    without = stack.coupon(slots=1)
    ops.post(f"/coupons/{without}/codes/export").problem("bad_request")
    ops.post("/coupons/never-made/codes/export").problem("coupon_not_found")


def test_it_has_what_is_there_when_it_runs(stack, ops):
    coupon = small(stack, "AAAA")
    reply = ask(stack, coupon, {"not_before": "2099-01-01T00:00:00Z"})
    assert (reply.json()["state"], reply.json()["total"]) == ("queued", 1), reply
    stack.import_codes(coupon, ["BBBB", "CCCC"])
    assert ops.get(reply.header("Location")).ok()["state"] == "queued", "it began too early"
    stack.database.jobs.update_one({"_id": reply.json()["id"]}, {"$set": {"not_before": datetime.datetime.now(datetime.timezone.utc)}})
    job = stack.job(reply)
    assert (job["done"], job["total"]) == (3, 3) and [r["code"] for r in rows_of(stack, job)] == ["AAAA", "BBBB", "CCCC"], job


# ---- names ----

def test_a_row_names_nobody_whose_slot_has_gone_on(stack, storefront):
    coupon = small(stack, "AAAA", "BBBB")
    left = storefront.take(coupon, "u-1", code="AAAA", state="issued").ok(201)["id"]
    stays = storefront.take(coupon, "u-2", code="BBBB", state="issued").ok(201)["id"]
    job = stack.job(ask(stack, coupon))
    assert [(r["state"], r["user"]) for r in rows_of(stack, job)] == [("issued", "u-1"), ("issued", "u-2")]
    storefront.post(f"/coupons/{coupon}/redemptions/{left}/cancel").expect(200)
    storefront.take(coupon, "u-3", code="AAAA", state="issued").expect(201)
    storefront.post(f"/coupons/{coupon}/redemptions/{stays}/redeem", idempotency_key="spend").expect(200)
    again = stack.job(ask(stack, coupon))  # when it is done, all of that is in the views
    assert [(r["state"], r["user"]) for r in rows_of(stack, again)] == [("issued", "u-3"), ("redeemed", "u-2")]
    assert [(r["state"], r["user"]) for r in rows_of(stack, job)] == [("issued", ""), ("issued", "u-2")]


def test_an_erased_users_name_is_in_no_export(stack, ops, storefront):
    coupon, user = small(stack, "AAAA", "BBBB"), "erase-me-from-exports"
    storefront.take(coupon, user, code="AAAA").expect(201)
    job = stack.job(ask(stack, coupon))
    assert rows_of(stack, job)[0]["user"] == user
    ops.delete(f"/coupons/-/users/{user}").expect(204)
    assert [(r["code"], r["state"], r["user"]) for r in rows_of(stack, job)] == [("AAAA", "redeemed", ""), ("BBBB", "free", "")]
    for part in stack.database.parts.find({"_id.u": stack.database.jobs.find_one({"_id": job["id"]})["upload"]}):
        assert user.encode() not in part["text"]
    stack.verify(coupon)


# ---- who, and when ----

def test_codes_are_shown_to_ops_alone(stack, ops, reporting, storefront):
    coupon = small(stack, "AAAA")
    reporting.post(f"/coupons/{coupon}/codes/export").problem("forbidden")
    storefront.post(f"/coupons/{coupon}/codes/export").problem("forbidden")
    job = stack.job(ask(stack, coupon))
    reporting.get(f"/coupons/-/jobs/{job['id']}").expect(200)
    assert "AAAA" not in reporting.get(f"/coupons/-/jobs/{job['id']}/rows").problem("forbidden")["detail"]


def test_the_same_key_is_the_same_export(stack, ops):
    coupon = small(stack, "AAAA")
    first = ask(stack, coupon, idempotency_key="export")
    stack.job(first)
    again = ask(stack, coupon, {}, idempotency_key="export")
    assert again.header("Location") == first.header("Location") and again.header("Idempotent-Replayed") == "true", again
    ops.post(f"/coupons/{coupon}/codes/export", {"not_before": "2090-01-01T00:00:00Z"}, idempotency_key="export") \
        .problem("idempotency_key_reused")
    assert ask(stack, coupon).header("Location") != first.header("Location")


@pytest.mark.parametrize("body, pointer", [({"not_before": 5}, "/not_before"), ({"not_before": "soon"}, "/not_before"),
                                           ({"user": "u"}, "/user"), ([], "")])
def test_a_bad_body_is_pointed_at(stack, ops, body, pointer):
    ops.post(f"/coupons/{small(stack, 'AAAA')}/codes/export", body).problem("bad_request", at=pointer)


def test_rows_wait_for_its_end(stack, ops):
    coupon = small(stack, "AAAA")
    at = ask(stack, coupon, {"not_before": "2090-01-01T00:00:00Z"}).header("Location")
    assert "queued" in ops.get(f"{at}/rows").problem("invalid_transition")["detail"]
    ops.post(f"{at}/cancel").expect(200)
    assert "cancelled" in ops.get(f"{at}/rows").problem("invalid_transition")["detail"]


def test_rows_that_were_cleaned_up_are_not_found(stack, ops):
    coupon = small(stack, "AAAA")
    job = stack.job(ask(stack, coupon))
    upload = stack.database.jobs.find_one({"_id": job["id"]})["upload"]
    assert stack.database.parts.delete_many({"_id.u": upload}).deleted_count == 1
    assert "month" in ops.get(f"/coupons/-/jobs/{job['id']}/rows").problem("job_not_found")["detail"]


# ---- interrupted ----

def parts_of(stack, job):
    """When each part of the text was written."""
    return {p["_id"]["p"]: p["at"] for p in stack.database.parts.find({"_id.u": job["upload"]})}


def test_a_killed_runner_goes_on_with_what_is_missing(stack, ops, big):
    coupon, codes = big
    at, runner = stopped_halfway(stack, coupon)
    middle = stack.database.jobs.find_one({"_id": at.rsplit("/", 1)[1]})
    written = parts_of(stack, middle)
    os.kill(runner, signal.SIGKILL)
    job = stack.job_at(at)
    assert (job["done"], job["total"], job["result"]) == (100_000, 100_000, {"slots": 100_000}), job
    assert [r["code"] for r in rows_of(stack, job)] == codes
    after = parts_of(stack, middle)
    assert sorted(after) == list(range(-(-100_000 // PART_SLOTS))) and len(written) < len(after), (written, after)
    again = [p for p, when in written.items() if after[p] != when]
    assert len(again) <= 1, f"of {len(written)} parts these were written twice: {again}"


def test_a_cancelled_export_ends(stack, ops, big):
    at, runner = stopped_halfway(stack, big[0])
    try:
        ops.post(f"{at}/cancel").expect(200)
    finally:
        os.kill(runner, signal.SIGCONT)
    job = stack.job_at(at, "cancelled")
    assert 0 < job["done"] < 100_000 and job["result"] == {"slots": job["done"]}, job
    assert "cancelled" in ops.get(f"{at}/rows").problem("invalid_transition")["detail"]


def test_a_runner_that_sleeps_past_its_lease_disturbs_nobody(stack, ops, big):
    """One of its threads takes over what the other one lost."""
    at, runner = stopped_halfway(stack, big[0])
    time.sleep(3)  # longer than its lease of 2 s
    os.kill(runner, signal.SIGCONT)
    job = stack.job_at(at)
    assert job["done"] == 100_000 and [r["code"] for r in rows_of(stack, job)] == big[1], job


@pytest.mark.heavy
def test_an_export_whose_runner_dies_again_and_again(stack, ops, big):
    coupon, codes = big
    at, runner = stopped_halfway(stack, coupon)
    for _ in range(3):
        os.kill(runner, signal.SIGKILL)
        runner = wait_until("a successor", lambda: stack.pid("runner") not in (None, runner) and stack.pid("runner"))
        stack.has_lived("runner")
    job = stack.job_at(at)
    assert job["done"] == 100_000 and [r["code"] for r in rows_of(stack, job)] == codes, job


# ---- under load ----

def test_takings_during_an_export_tear_no_row(stack, storefront):
    """Each row is as the slot was at some time: what it says of one slot belongs together."""
    coupon = stack.coupon(cap={"total": 10_000}, slots=10_000, codes={"source": "generated"})
    reply = ask(stack, coupon)
    for i in range(200):
        storefront.take(coupon, f"u-{i}", state="issued").expect(201)
    rows = rows_of(stack, stack.job(reply))
    assert len(rows) == 10_000
    assert all((r["state"], r["user"], r["at"]) == ("free", "", "") or (r["state"] == "issued" and r["user"] and r["at"])
               for r in rows), [r for r in rows if r["state"] != "free"][:5]
