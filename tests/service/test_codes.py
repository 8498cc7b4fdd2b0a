"""Codes: lists in and out, one code's state, taking by code, and finding the coupon from the code; what others may not learn."""
import urllib.parse

import pytest

from effort import in_full
from stack import WORKERS, wait_until

PLAIN = {"Content-Type": "text/plain"}
CSV = {"Content-Type": "text/csv; charset=utf-8"}
BOM = b"\xef\xbb\xbf"


def send(stack, coupon, text, headers=PLAIN, **how):
    """Import the text; the job's result."""
    text = text if isinstance(text, bytes) else text.encode()
    return stack.job(stack.client("ops").post(f"/coupons/{coupon}/codes", text, headers=headers, **how).expect(202))["result"]


def export(client, coupon):
    """The rows of GET /codes by code."""
    reply = client.get(f"/coupons/{coupon}/codes").expect(200)
    assert reply.header("Content-Type") == "text/csv; charset=utf-8" and reply.header("Cache-Control") == "no-store", reply
    rows = reply.rows()
    assert all(set(r) == {"code", "state", "user", "at"} for r in rows), rows[:3]
    assert len({r["code"] for r in rows}) == len(rows), "a code stands twice"
    return {r["code"]: r for r in rows}


def of(client, coupon, code):
    return client.get(f"/coupons/{coupon}/codes/{urllib.parse.quote(code, safe='')}")


# ---- one code, in all coupons ----

def test_a_code_is_found_in_every_coupon_that_has_it_whatever_became_of_it(stack, ops, storefront, reporting):
    exact, loose, other = (stack.imported(codes={"claim": "any", "match": match}) for match in ("exact", "loose", "exact"))
    for coupon, codes in ((exact, ["FIND-ME", "GONE"]), (loose, ["find me"]), (other, ["NOT-ME"])):
        stack.import_codes(coupon, codes)
    storefront.take(exact, "owner", code="FIND-ME", state="issued").expect(201)
    ops.post(f"/coupons/{exact}/codes/GONE/retire").expect(200)

    def found(code):
        items = ops.get(f"/coupons/-/codes?{urllib.parse.urlencode({'code': code})}").ok()["items"]
        for item in items:
            assert of(ops, item["coupon"], item["code"]).ok() == {name: item[name] for name in item if name != "coupon"}
        return {item["coupon"]: (item["code"], item["state"], item["user"]) for item in items if item["coupon"] in (exact, loose, other)}

    assert found("FIND-ME") == {exact: ("FIND-ME", "issued", "owner"), loose: ("find me", "free", None)}
    assert found("findme") == {loose: ("find me", "free", None)}
    assert found("GONE") == {exact: ("GONE", "retired", None)}
    assert found("no/such") == found("x" * 100) == {}
    for client in (storefront, reporting):
        client.get("/coupons/-/codes?code=FIND-ME").problem("forbidden")
    for query in ("", "?code="):
        assert "code" in ops.get("/coupons/-/codes" + query).problem("bad_request")["detail"]


# ---- import ----

@pytest.mark.parametrize("text, headers", [
    (b"", PLAIN), (b"\r\n \t \n\n", PLAIN), (BOM, PLAIN), (b"code\n", CSV), (b"code\n\n\n", CSV), (b"number\nAAAA\n", CSV),
    (b"", CSV), (b"AAAA\nBBBB\n", CSV), (b'"code\nAAAA\n', CSV)])
def test_a_list_without_a_row_or_a_column_is_refused(stack, ops, text, headers):
    coupon = stack.imported()
    problem = ops.post(f"/coupons/{coupon}/codes", text, headers=headers).problem("bad_request")
    assert "code" in problem["detail"], problem
    assert not [j for j in ops.get(f"/coupons/-/jobs?coupon={coupon}").ok()["items"]]


@pytest.mark.parametrize("headers", [{"Content-Type": "application/json"}, {"Content-Type": "text/html"}, {"Content-Type": "text/plain; charset=latin1"},
                                     {"Content-Type": None}])
def test_other_media_types_are_refused(stack, ops, headers):
    ops.post(f"/coupons/{stack.imported()}/codes", b"AAAA\n", headers=headers).problem("unsupported_media_type")


def test_codes_go_into_coupons_that_import_them_only(stack, ops):
    for source in ("none", "generated"):
        coupon = stack.coupon(cap={"total": 5}, codes={"source": source})
        assert "source" in ops.post(f"/coupons/{coupon}/codes", b"AAAA\n", headers=PLAIN).problem("bad_request")["detail"]
    ops.post("/coupons/never-made/codes", b"AAAA\n", headers=PLAIN).problem("coupon_not_found")
    problem = ops.post(f"/coupons/{stack.imported()}/slots", {"count": 5}).problem("bad_request")
    assert "codes" in problem["detail"], problem


def test_an_import_under_the_same_key_is_the_same_job(stack, ops):
    coupon = stack.imported()
    at = f"/coupons/{coupon}/codes"
    first = ops.post(at, b"AAAA\n", headers=PLAIN, idempotency_key="k").expect(202)
    again = ops.post(at, b"AAAA\n", headers=PLAIN, idempotency_key="k").expect(202)
    assert again.header("Location") == first.header("Location") and again.header("Idempotent-Replayed") == "true", again
    ops.post(at, b"BBBB\n", headers=PLAIN, idempotency_key="k").problem("idempotency_key_reused")
    ops.post(at, b"code\nBBBB\n", headers=CSV, idempotency_key="k").problem("idempotency_key_reused")
    stack.job(first)
    again = ops.post(at, b"AAAA\n", headers=PLAIN, idempotency_key="k").expect(202)
    assert again.header("Location") == first.header("Location"), "also when it is done"
    assert set(export(ops, coupon)) == {"AAAA"}


def test_an_import_can_wait_for_its_time(stack, ops):
    coupon = stack.imported()
    at = f"/coupons/{coupon}/codes"
    reply = ops.post(f"{at}?not_before=2126-01-01T00:00:00Z", b"AAAA\n", headers=PLAIN).expect(202)
    job = stack.job_at(reply.header("Location"), "queued")
    assert job["not_before"] == "2126-01-01T00:00:00.000Z", job
    ops.post(f"{at}?not_before=soon", b"AAAA\n", headers=PLAIN).problem("bad_request")
    assert ops.post(f"{reply.header('Location')}/cancel").ok()["state"] == "cancelled"


def test_bad_rows_can_be_fetched_as_csv(stack, ops, reporting):
    coupon = stack.imported(["KNOWN-1"])
    rows = [f"CODE-{i:04}" if i % 3 else "x" for i in range(1000)] + ["KNOWN-1", "CODE-0001", "ä" * 5]
    job = stack.job(ops.post(f"/coupons/{coupon}/codes", "\n".join(rows).encode(), headers=PLAIN).expect(202))
    assert len(job["result"]["bad_rows"]) == 100
    at = f"/coupons/-/jobs/{job['id']}/rows"

    def lines(query, kind=None):
        reply = reporting.get(at + query).expect(200)
        assert reply.header("Content-Type") == "text/csv; charset=utf-8", reply
        said = reply.rows()
        assert all(set(r) == {"line", "kind", "reason", "text"} and r["reason"] for r in said), said[:3]
        assert kind is None or {r["kind"] for r in said} == {kind}
        return [int(r["line"]) for r in said]

    invalid = [i + 1 for i, row in enumerate(rows) if len(row) < 4 or "ä" in row]
    assert lines("?kind=invalid", "invalid") == invalid
    assert lines("?kind=duplicate", "duplicate") == [1001, 1002]
    assert sorted(lines("")) == sorted(invalid + [1001, 1002])
    ops.get(f"{at}?kind=other").problem("bad_request")
    ops.get("/coupons/-/jobs/nothing/rows").problem("job_not_found")
    other = stack.coupon(slots=1)
    jobs = ops.get(f"/coupons/-/jobs?coupon={other}").ok()["items"]
    assert ops.get(f"/coupons/-/jobs/{jobs[0]['id']}/rows").expect(200).body == b"line,kind,reason,text\r\n"


def test_a_list_of_many_parts_is_imported_whole_and_in_order(stack, ops):
    coupon, count = stack.imported(), 30_000
    codes = [f"LONG-{i:06}" for i in range(count)]
    text = "code,other\r\n" + "".join(f"{code},{'x' * (i % 50)}\r\n" for i, code in enumerate(codes))
    result = send(stack, coupon, text, CSV)
    assert (result["rows"], result["imported"], result["invalid"]) == (count, count, 0), result
    assert list(export(ops, coupon)) == codes


def test_absurd_lists_are_invalid_rows_and_no_harm(stack, ops):
    coupon = stack.imported()
    text = b"GOOD-1\n" + b"x" * 300_000 + b"\n" + b"\0\0\0\0\0\n\xff\xfe\xfd\xfc\n" + b"GOOD-2\n" + b"\n" * 200_000 + b"GOOD-3"
    result = send(stack, coupon, text)
    assert (result["imported"], result["invalid"]) == (3, 3), result
    assert {b["line"] for b in result["bad_rows"]} == {2, 3, 4}, result
    assert set(export(ops, coupon)) == {"GOOD-1", "GOOD-2", "GOOD-3"}
    stack.verify(coupon)


def test_a_worker_reads_an_import_of_any_length_and_the_connection_goes_on(stack):
    """Past nginx: without a length, with a wrong role, for no coupon, of a wrong type; each followed by another request."""
    coupon, large = stack.imported(), b"LONG-CODE-0001\n" * 200_000
    for worker in range(WORKERS):
        ops, storefront = stack.direct(worker, "ops"), stack.direct(worker)
        for _ in range(2):
            storefront.post(f"/coupons/{coupon}/codes", large, headers=PLAIN).problem("forbidden")
            ops.post("/coupons/never-made/codes", large, headers=PLAIN).problem("coupon_not_found")
            ops.post("/coupons/-x/codes", large, headers=PLAIN).problem("coupon_not_found")
            ops.post(f"/coupons/{coupon}/codes", b"no\n" + large, headers=CSV).problem("bad_request")
            ops.post(f"/coupons/{coupon}/codes", large).problem("unsupported_media_type")
            ops.get(f"/coupons/{coupon}").expect(200)


# ---- export, one code ----

def test_a_taken_code_shows_to_whom_and_when(stack, ops, storefront):
    coupon = stack.imported(["AAAA-1", "BBBB-2", "CCCC-3", "DDDD,4", "E/E%E"])
    taken = storefront.take(coupon, "u,\"1\"", code="BBBB-2").ok(201)
    held = storefront.take(coupon, "ü", state="reserved", code="CCCC-3").ok(201)
    assert (taken["code"], held["code"]) == ("BBBB-2", "CCCC-3")
    rows = export(ops, coupon)
    assert rows["AAAA-1"] == {"code": "AAAA-1", "state": "free", "user": "", "at": ""}
    assert rows["BBBB-2"] == {"code": "BBBB-2", "state": "redeemed", "user": "u,\"1\"", "at": taken["at"]}
    assert (rows["CCCC-3"]["state"], rows["CCCC-3"]["user"]) == ("reserved", "ü")
    assert "DDDD,4" in rows
    one = of(ops, coupon, "BBBB-2").ok()
    assert (one["code"], one["state"], one["user"], one["at"], one["slot"]) == ("BBBB-2", "redeemed", "u,\"1\"", taken["at"], taken["slot"])
    assert of(ops, coupon, "CCCC-3").ok()["due"] == held["reserved_until"]
    assert of(ops, coupon, "E/E%E").ok()["state"] == "free"
    assert ops.get(f"/coupons/{coupon}/slots/{taken['slot']}").ok()["code"] == "BBBB-2"
    for unknown in ("AAAA", "aaaa-1", "x", "ä", "y" * 300, "AAAA-1 x"):
        of(ops, coupon, unknown).problem("code_not_found")
    of(ops, stack.coupon(slots=1), "AAAA-1").problem("code_not_found")
    assert export(ops, stack.coupon(slots=1)) == {}
    head = ops.request("HEAD", f"/coupons/{coupon}/codes").expect(200)
    assert head.body == b"", head


def test_a_retired_code_is_never_usable_again(stack, ops, storefront):
    coupon = stack.imported(["FREE-1", "ISSUED-2", "HELD-3", "SPENT-4"])
    issued = storefront.take(coupon, "a", state="issued", code="ISSUED-2").ok(201)
    storefront.take(coupon, "b", state="reserved", code="HELD-3", reserve_s=600).expect(201)
    storefront.take(coupon, "c", code="SPENT-4").expect(201)
    for code in ("FREE-1", "ISSUED-2"):
        for _ in range(2):
            assert ops.post(f"/coupons/{coupon}/codes/{code}/retire").ok()["state"] == "retired"
        assert export(ops, coupon)[code]["state"] == "retired"
        storefront.take(coupon, "d", code=code).problem("code_not_found")
    assert storefront.get(f"/coupons/{coupon}/redemptions/{issued['id']}").ok()["state"] == "cancelled"
    storefront.post(f"/coupons/{coupon}/redemptions/{issued['id']}/redeem", idempotency_key="k").problem("invalid_transition")
    reply = ops.post(f"/coupons/{coupon}/codes/HELD-3/retire")
    reply.problem("transaction_in_progress")
    assert 500 <= int(reply.header("Retry-After")) <= 600, reply
    ops.post(f"/coupons/{coupon}/codes/SPENT-4/retire").problem("code_taken")
    ops.post(f"/coupons/{coupon}/codes/NONE-5/retire").problem("code_not_found")
    assert send(stack, coupon, "FREE-1\n")["duplicates_in_coupon"] == 1, "and never comes back by an import"
    assert stack.counts(coupon)["slots"] == 2
    stack.verify(coupon)


# ---- taking by code ----

def same(*replies):
    """The replies do not differ, but for the request's id."""
    said = [{k: v for k, v in r.json().items() if k != "request_id"} for r in replies]
    heads = [sorted(n.lower() for n, _ in r.headers) for r in replies]
    assert all(t == said[0] for t in said) and all(h == heads[0] for h in heads), "\n".join(map(str, replies))


def test_an_unknown_code_and_somebody_else_s_look_alike(stack, storefront):
    coupon = stack.imported(["THEIRS-1", "THEIRS-2", "THEIRS-3", "GONE-4"], codes={"claim": "any"})
    for code, state in (("THEIRS-1", "issued"), ("THEIRS-2", "reserved"), ("THEIRS-3", "redeemed")):
        storefront.take(coupon, "other", state=state, code=code).expect(201)
    stack.client("ops").post(f"/coupons/{coupon}/codes/GONE-4/retire").expect(200)
    asked = ["UNKNOWN", "x", "THEIRS-1", "THEIRS-2", "THEIRS-3", "GONE-4"]
    for state in ("issued", "reserved", "redeemed"):
        replies = [storefront.take(coupon, "me", state=state, code=code) for code in asked]
        replies.append(storefront.take(stack.coupon(slots=1), "me", state=state, code="THEIRS-1"))
        for reply in replies:
            reply.problem("code_not_found")
        same(*replies)
    same(*[storefront.post(f"/coupons/{coupon}/check", {"user": "me", "code": code}).expect(200) for code in asked])
    same(*[storefront.post("/coupons/-/resolve", {"user": "me", "code": code}).expect(200) for code in asked + ["", "ä", "y" * 256]])
    assert storefront.post("/coupons/-/resolve", {"user": "me", "code": "THEIRS-1"}).ok()["items"] == []


def test_the_code_of_an_issued_slot_acts_on_that(stack, storefront):
    coupon = stack.imported(["CODE-1", "CODE-2"])
    issued = storefront.take(coupon, "u", state="issued", code="CODE-1").ok(201)
    hold = storefront.take(coupon, "u", state="reserved", code="CODE-1", order={"id": "o"}).ok(201)
    assert hold["from"] == issued["id"] and hold["code"] == "CODE-1", hold
    storefront.take(coupon, "u", code="CODE-1", order={"id": "p"}).problem("transaction_in_progress")
    spent = storefront.take(coupon, "u", code="CODE-1", order={"id": "o"}).ok(200)
    assert spent["id"] == hold["id"], spent
    storefront.post(f"/coupons/{coupon}/redemptions/{hold['id']}/redeem", idempotency_key="k").expect(200)
    storefront.take(coupon, "u", code="CODE-1", order={"id": "p"}).problem("code_taken")
    assert storefront.get(f"/coupons/{coupon}/users/u").ok()["total"] == 1
    stack.verify(coupon)


# ---- codes on paper ----

@pytest.mark.parametrize("stored, claim", [in_full({"$set": {"view.def.codes.claim": "any"}}, "any"), ({"$unset": {"view.def.codes.claim": 1}}, "any"),
                                           ({"$set": {"view.def.codes.claim": "present"}}, "present")])
def test_a_definition_that_was_stored_before_keeps_its_claim(beside, stored, claim):
    stack = beside()
    coupon = stack.imported(["AAAA-1", "BBBB-2"], codes={"claim": claim})
    wait_until("the view", lambda: stack.database.coupons.find_one({"_id": coupon, "view.def.codes.claim": claim}))
    stack.stop()
    stack.start()
    stack.database.coupons.update_one({"_id": coupon}, stored)
    assert stack.client("ops").get(f"/coupons/{coupon}").ok()["codes"]["claim"] == claim
    reply = stack.client("storefront").take(coupon, "u")
    if claim == "any":
        reply.expect(201)
    else:
        reply.problem("code_required")
    assert stack.patch(coupon, {"title": "another"})["codes"]["claim"] == claim
    stack.verify(coupon)


def said(client, coupon, user, code, want):
    """Whatever is asked for, and by a check. The last reply."""
    for state in ("issued", "reserved", "redeemed"):
        reply = client.take(coupon, user, code=code, state=state)
        reply.problem(want)
        assert (reply.header("Retry-After") is not None) == (want == "transaction_in_progress"), reply
    checked = client.post(f"/coupons/{coupon}/check", {"user": user, "code": code}).ok()
    assert (checked["ok"], checked["problem"]) == (False, want), checked
    return reply


def found(client, coupon, code, user):
    """Why it is not to be had, by resolve; None: it shows nothing."""
    shown = [item for item in items(client, code, user) if item["coupon"] == coupon]
    assert all(item == {"coupon": coupon, "ok": False, "problem": item["problem"], "discount_minor": 0} for item in shown), shown
    return shown[0]["problem"] if shown else None


def test_a_code_on_paper_is_nobody_s_until_it_is_spent(stack, storefront):
    coupon, code = stack.imported(["FLYER-1"]), "FLYER-1"
    held = storefront.take(coupon, "a", code=code, state="reserved", reserve_s=600).ok(201)
    reply = said(storefront, coupon, "b", code, "transaction_in_progress")
    assert 500 <= int(reply.header("Retry-After")) <= 600, reply
    assert "retry" in reply.json() and reply.json()["retry"] is True
    said(storefront, coupon, "a", code, "transaction_in_progress")
    assert found(storefront, coupon, code, "b") == found(storefront, coupon, code, "a") == "transaction_in_progress"
    storefront.post(f"/coupons/{coupon}/redemptions/{held['id']}/cancel").expect(200)
    held = storefront.take(coupon, "b", code=code, state="reserved").ok(201)
    storefront.post(f"/coupons/{coupon}/redemptions/{held['id']}/redeem", {}, idempotency_key="r").expect(200)
    for user in ("a", "b", "c"):
        said(storefront, coupon, user, code, "code_taken")
        assert found(storefront, coupon, code, user) == "code_taken"
    storefront.post(f"/coupons/{coupon}/redemptions/{held['id']}/reverse").expect(200)
    storefront.take(coupon, "a", code=code).expect(201)
    stack.verify(coupon)


def test_a_hold_on_a_code_on_paper_that_ran_out_is_in_nobody_s_way(stack, storefront):
    coupon = stack.imported(["FLYER-1"])
    storefront.take(coupon, "a", code="FLYER-1", state="reserved", reserve_s=1).expect(201)
    wait_until("the hold to end", lambda: storefront.take(coupon, "b", code="FLYER-1").status == 201)
    said(storefront, coupon, "a", "FLYER-1", "code_taken")
    stack.verify(coupon)


def test_a_code_that_was_issued_is_unknown_to_others_whatever_became_of_it(stack, storefront, ops):
    codes = ["ISSUED-1", "HELD-2", "SPENT-3", "SPENT-4", "BACK-5"]
    coupon, a = stack.imported(codes), f"a-{next(stack.names)}"  # whom others do not have erased with it
    at = f"/coupons/{coupon}/redemptions"
    issued = {code: storefront.take(coupon, a, code=code, state="issued").ok(201)["id"] for code in codes}
    storefront.take(coupon, a, code="HELD-2", state="reserved").expect(201)
    storefront.take(coupon, a, code="SPENT-3").expect(200)
    hold = storefront.post(f"{at}/{issued['SPENT-4']}/reserve", {}, idempotency_key="h").ok(201)
    storefront.post(f"{at}/{hold['id']}/redeem", {}, idempotency_key="r").expect(200)
    hold = storefront.post(f"{at}/{issued['BACK-5']}/reserve", {}, idempotency_key="h2").ok(201)
    storefront.post(f"{at}/{hold['id']}/cancel").expect(200)  # issued as before
    unknown = storefront.take(coupon, "b", code="UNKNOWN")
    for code in codes:
        same(unknown, said(storefront, coupon, "b", code, "code_not_found"))
        assert found(storefront, coupon, code, "b") is None
    said(storefront, coupon, a, "SPENT-3", "code_taken")
    ops.delete(f"/coupons/-/users/{a}").expect(204)
    for code in ("SPENT-3", "SPENT-4"):
        said(storefront, coupon, "b", code, "code_not_found")
        assert found(storefront, coupon, code, "b") is None
    storefront.take(coupon, "b", code="BACK-5").expect(201)
    stack.verify(coupon)


def test_a_spent_code_on_paper_stays_taken_when_its_user_is_erased_and_the_service_begins_anew(beside):
    stack = beside()
    storefront = stack.client("storefront")
    coupon = stack.imported(["FLYER-1", "ISSUED-2"])
    storefront.take(coupon, "a", code="FLYER-1").expect(201)
    storefront.take(coupon, "a", code="ISSUED-2", state="issued").expect(201)
    storefront.take(coupon, "a", code="ISSUED-2").expect(200)
    stack.client("ops").delete("/coupons/-/users/a").expect(204)
    for again in (False, True):
        if again:
            stack.stop()
            stack.start()
        for user in ("a", "b"):
            said(storefront, coupon, user, "FLYER-1", "code_taken")
            assert found(storefront, coupon, "FLYER-1", user) == "code_taken"
            said(storefront, coupon, user, "ISSUED-2", "code_not_found")
    stack.verify(coupon)


def test_handed_out_codes_tell_others_nothing(stack, storefront):
    """With claim any a held or spent code is its user's, as before."""
    coupon = stack.imported(["ANY-1", "ANY-2"], codes={"claim": "any"})
    storefront.take(coupon, "a", code="ANY-1", state="reserved").expect(201)
    storefront.take(coupon, "a", code="ANY-2").expect(201)
    for code in ("ANY-1", "ANY-2"):
        said(storefront, coupon, "b", code, "code_not_found")
        assert found(storefront, coupon, code, "b") is None


def test_codes_may_be_matched_loosely(stack, storefront, ops):
    loose, exact = stack.imported(["Ab-Cd 12", "XYZ-9"], codes={"match": "loose"}), stack.imported(["Ab-Cd-12"])
    assert storefront.take(loose, "u", code=" aB c-D12 ").ok(201)["code"] == "Ab-Cd 12"
    assert of(ops, loose, "xyz9").ok()["code"] == "XYZ-9"
    assert send(stack, loose, "x y z 9\n")["duplicates_in_coupon"] == 1
    storefront.take(exact, "u", code="ab-cd-12").problem("code_not_found")
    assert storefront.take(exact, "u", code="Ab-Cd-12").ok(201)["code"] == "Ab-Cd-12"


def test_generated_codes_have_their_form_and_are_handed_out(stack, storefront, ops):
    coupon = stack.coupon(slots=200, cap={"total": 200}, codes={"source": "generated", "length": 8, "prefix": "SALE-"})
    rows = export(ops, coupon)
    assert len(rows) == 200 and all(code.startswith("SALE-") and len(code) == 13 for code in rows), list(rows)[:3]
    issued = storefront.take(coupon, "u", state="issued").ok(201)
    assert export(ops, coupon)[issued["code"]]["user"] == "u"
    assert of(ops, coupon, issued["code"]).ok()["slot"] == issued["slot"]


# ---- resolve ----

def items(client, code, user="me", **members):
    return client.post("/coupons/-/resolve", {"code": code, "user": user, **members}).ok()["items"]


def test_a_code_alone_finds_its_coupons(stack, storefront, ops):
    amount = {"kind": "amount", "amount_minor": 300, "currency": "EUR"}
    one = stack.imported(["IN-TWO-1", "ONLY-1"], discount=amount)
    two = stack.imported(["IN-TWO-1"], discount={**amount, "min_spend_minor": 1000})
    assert items(storefront, "ONLY-1") == [{"coupon": one, "ok": True, "problem": None, "discount_minor": 300}]
    found = {i["coupon"]: i for i in items(storefront, "IN-TWO-1")}
    assert found == {one: {"coupon": one, "ok": True, "problem": None, "discount_minor": 300},
                     two: {"coupon": two, "ok": False, "problem": "order_not_eligible", "reason": "no_order", "missing_minor": None,
                           "discount_minor": 0}}
    short = {i["coupon"]: i for i in items(storefront, "IN-TWO-1", order={"amount_minor": 580, "currency": "EUR"})}
    assert (short[two]["reason"], short[two]["missing_minor"]) == ("min_spend", 420) and "reason" not in short[one], short
    with_order = items(storefront, "IN-TWO-1", order={"amount_minor": 1000, "currency": "EUR"})
    assert {i["coupon"]: (i["ok"], i["discount_minor"]) for i in with_order} == {one: (True, 300), two: (True, 300)}
    storefront.take(one, "me", code="ONLY-1").expect(201)
    for user in ("me", "other"):
        assert items(storefront, "ONLY-1", user) == [{"coupon": one, "ok": False, "problem": "code_taken", "discount_minor": 0}]


def test_a_storefront_finds_active_coupons_only(stack, storefront, ops):
    coupon = stack.imported(["PAUSED-CODE"])
    stack.patch(coupon, {"state": "paused"})
    assert items(storefront, "PAUSED-CODE") == []
    assert items(ops, "PAUSED-CODE") == [{"coupon": coupon, "ok": False, "problem": "coupon_not_active", "discount_minor": 0}]
    stack.patch(coupon, {"state": "active", "ends_at": "2020-01-01T00:00:00Z"})
    assert items(storefront, "PAUSED-CODE") == [{"coupon": coupon, "ok": False, "problem": "coupon_ended", "discount_minor": 0}]


TYPED_BY_NOBODY = ["", " ", "x", "\u00e4\u00f6\u00fc", "SUMMER\u2028", "\U0001f600", "a\tb\nc\x01", "'\"$ne", "----", "\u200b", "x" * 65, "\u00df" * 256,
                   "\u0000", "REAL-CODE\u0000", "REAL-CODE\u0000x", "\u0000REAL-CODE", "\ud800", "\udc00", "REAL-CODE\udfff", "\u0000" * 256, "\ud800" * 256]


@pytest.fixture(scope="module")
def typed_at(stack):
    """Coupons that match loosely and exactly, and one without codes."""
    return [stack.imported(["REAL-CODE"], codes={"match": match}) for match in ("loose", "exact")], stack.coupon(slots=1)


@pytest.mark.parametrize("typed", TYPED_BY_NOBODY, ids=range(len(TYPED_BY_NOBODY)))
def test_whatever_is_typed_as_a_code_is_a_code_that_does_not_exist(storefront, ops, typed_at, typed):
    coupons, plain = typed_at
    for coupon in coupons:
        storefront.take(coupon, "u", code=typed).problem("code_not_found")
        checked = storefront.post(f"/coupons/{coupon}/check", {"user": "u", "code": typed}).ok()
        assert not checked["ok"] and "code_not_found" in checked.values(), checked
        batch = storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": [{"key": "k", "user": "u", "code": typed}]}).ok()
        assert batch["items"][0]["status"] == 404, batch
    assert items(storefront, typed) == []
    sent = urllib.parse.quote(typed.encode(errors="surrogatepass"))
    assert not typed or ops.get(f"/coupons/-/codes?code={sent}").ok()["items"] == []
    storefront.take(plain, "u", code=typed).problem("code_not_found")


def test_more_than_anybody_types_is_malformed(storefront, typed_at):
    (coupon, _), _ = typed_at
    for typed in ("x" * 257, "\u0000" * 257, "\ud800" * 257):
        storefront.take(coupon, "u", code=typed).problem("bad_request", at="/code")
        storefront.post("/coupons/-/resolve", {"code": typed, "user": "u"}).problem("bad_request", at="/code")


def test_a_generated_code_is_taken_however_it_is_typed(stack, storefront, ops):
    coupon = stack.coupon(slots=4, cap={"total": 4, "per_user": 4}, codes={"source": "generated", "claim": "present", "prefix": "GO-"})
    assert ops.get(f"/coupons/{coupon}").ok()["codes"]["match"] == "loose"
    wide = {ord(c): ord(c) + 0xFEE0 for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"}
    ways = (lambda code: code.lower(), lambda code: code.translate(wide), lambda code: "\u00a0" + code.replace("-", "\u2014") + "\u3000",
            lambda code: "\u200b".join(code))
    for code, way in zip(list(export(ops, coupon)), ways):
        assert not set(code[3:]) & set("AEY"), code
        assert [i["coupon"] for i in items(storefront, way(code))] == [coupon]
        assert storefront.take(coupon, "me", code=way(code)).ok(201)["code"] == code


def test_blanks_around_an_exact_code_fall_away(stack, storefront):
    coupon = stack.imported(["Exact-1"])
    storefront.take(coupon, "u", code="exact-1").problem("code_not_found")
    storefront.take(coupon, "u", code="Exact\u20101").problem("code_not_found")
    assert [i["coupon"] for i in items(storefront, "\u3000Exact-1\r\n", user="u")] == [coupon]
    assert storefront.take(coupon, "u", code=" \tExact-1\u00a0").ok(201)["code"] == "Exact-1"


@pytest.mark.parametrize("body, pointer", [({}, "/code"), ({"code": "AAAA"}, "/user"), ({"code": 5, "user": "u"}, "/code"),
                                           ({"code": "AAAA", "user": ""}, "/user"), ({"code": "AAAA", "user": "u", "x": 1}, "/x")])
def test_a_bad_question_is_pointed_at(storefront, reporting, body, pointer):
    storefront.post("/coupons/-/resolve", body).problem("bad_request", at=pointer)
    reporting.post("/coupons/-/resolve", {"code": "AAAA", "user": "u"}).problem("forbidden")


# ---- what is written down ----

def test_neither_users_nor_codes_nor_keys_stand_in_a_log(another_stack, monkeypatch):
    monkeypatch.setenv("COUPONS_ACCESS_LOG", "1")
    stack = another_stack()
    storefront, ops = stack.client("storefront"), stack.client("ops")
    coupon = stack.imported(["SECRETCODE1", "SECRETCODE2"])
    storefront.take(coupon, "secret-user", "secret-key", code="SECRETCODE1").expect(201)
    storefront.take(coupon, "other", "k", code="SECRETCODE1").problem("code_taken")
    for path in (f"/coupons/{coupon}/users/secret-user", "/coupons/-/users/secret-user?limit=5", "/coupons/-/users/secret%2Duser",
                 f"/coupons/{coupon}/redemptions?user=secret-user", f"/coupons/{coupon}/%75sers/secret-user"):
        assert storefront.get(path).status in (200, 404)
    for path in ("/%63oupons/{}/users/secret-user", "/./coupons/{}/users/secret-user", "//coupons/{}/users/secret-user", "/coupons/x/../{}/users/secret-user",
                 "/coupons/-/jobs/../../{}/users/secret-user", "/coupons/{}//users/secret-user", "/coupons/{}/users//secret-user",
                 "/coupons/{}/users/a/secret-user", "/coupons/{}/slots/secret-user", "/%63oupons/-/users/secret-user",
                 "/coupons/{}/redemptions/secret-user/redeem", "/Coupons/{}/users/secret-user", "/coupons/{}/users;/secret-user"):
        assert 400 <= storefront.get(path.format(coupon)).status < 500 or "%63" in path or "./" in path, path
    for path in (f"/coupons/{coupon}/codes/SECRETCODE2", f"/coupons/{coupon}/codes/SECRETCODE2?x=1"):
        ops.get(path).expect(200)
    ops.post(f"/coupons/{coupon}/codes/SECRETCODE2/retire").expect(200)
    storefront.post("/coupons/-/resolve", {"code": "SECRETCODE1", "user": "secret-user"}).expect(200)
    ops.delete("/coupons/-/users/secret-user").expect(204)
    logs = stack.var / "log"
    access = logs / "access.log"
    wait_until("the access log", lambda: access.exists() and "DELETE /coupons/-/users/*" in access.read_text())
    assert f"/coupons/{coupon}/codes/*/retire " in access.read_text(), access.read_text()
    for path in logs.iterdir():
        text = path.read_text(errors="replace")
        for secret in ("secret-user", "secret%2D", "SECRETCODE", "secret-key", storefront.key, ops.key):
            assert secret not in text, f"{secret} stands in {path.name}"
