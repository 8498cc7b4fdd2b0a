"""Codes that many use: what a shop and a marketer do with SUMMER10."""
import pytest

from client import Http
from stack import wait_until
from swarm import swarm, take
from test_reports import caught_up

CSV = {"Accept": "text/csv"}


def shared(stack, slots=10, codes=("SUMMER10", "ANNA10"), cap_of_each=None, **members):
    """An active coupon whose slots anybody takes with one of the codes."""
    cap = {"per_user": 5, **members.pop("cap", {})}
    return stack.coupon(slots=slots, cap=cap, codes={"source": "shared", "shared": list(codes), "shared_cap": cap_of_each,
                                                     **members.pop("more", {})}, **members)


def resolve(client, code, user="u", **members):
    return client.post("/coupons/-/resolve", {"code": code, "user": user, **members}).ok()["items"]


def by_code(stack, coupon):
    """{code: redeemed} of the report, once it has all that was answered."""
    return {row["code"]: row for row in caught_up(stack, coupon, "period=total&group=code")["items"]}


def test_a_marketer_makes_one_and_customers_use_it(stack, storefront, ops):
    made = ops.post("/coupons", {"title": "Summer", "state": "active", "cap": {"total": 3}, "generate": True,
                                 "codes": {"source": "shared", "shared": ["SUMMER10", "ANNA10"]}}).ok(201)
    assert made["codes"]["claim"] == "present" and made["codes"]["match"] == "loose" and made["codes"]["shared_cap"] is None, made
    coupon = made["id"]
    first = storefront.take(coupon, "ann", code=" summer-10 ").ok(201)
    assert first["code"] == "SUMMER10" and first["slot"] == 0, first
    assert storefront.take(coupon, "bea", code="ａｎｎａ10").ok(201)["code"] == "ANNA10"
    storefront.take(coupon, "cid").problem("code_required")
    storefront.take(coupon, "cid", code="WINTER10").problem("code_not_found")
    held = storefront.take(coupon, "cid", code="ANNA10", state="reserved", order={"id": "o-1"}).ok(201)
    storefront.take(coupon, "dan", code="SUMMER10").problem("sold_out")
    paid = storefront.post(f"/coupons/{coupon}/redemptions/{held['id']}/redeem", {}, idempotency_key="pay").ok()
    assert paid["code"] == "ANNA10" and paid["state"] == "redeemed", paid
    assert storefront.get(f"/coupons/{coupon}/redemptions/{held['id']}").ok()["code"] == "ANNA10"
    stack.verify(coupon)


def test_the_box_at_checkout_finds_every_coupon_that_has_it_and_those_that_accept_it_first(stack, storefront, ops):
    code = "BOX-10"
    out, good, over, other = (shared(stack, slots=n, codes=codes) for n, codes in ((0, [code]), (2, [code, "ELSE"]), (1, [code]), (1, ["ELSE2"])))
    stack.patch(over, {"state": "ended"})
    assert resolve(storefront, "box 10")[0] == {"coupon": good, "ok": True, "problem": None, "discount_minor": 0}
    assert {item["coupon"]: item["problem"] for item in resolve(storefront, code)} == {good: None, out: "sold_out"}
    assert {item["coupon"] for item in resolve(ops, code)} == {good, out, over}
    assert resolve(storefront, "BOX-11") == []
    found = ops.get("/coupons/-/codes?code=box10").ok()["items"]
    assert {(item["coupon"], item["slot"], item["code"]) for item in found} == {(c, None, code) for c in (out, good, over)}, found
    stack.patch(good, {"codes": {"shared": ["NEW-10"]}})
    assert [item["coupon"] for item in resolve(storefront, code)] == [out]
    assert [item["coupon"] for item in resolve(storefront, "new10")] == [good]
    ops.delete(f"/coupons/{out}").expect(204)
    assert resolve(storefront, code) == []


def test_a_page_learns_whether_a_code_is_good(stack):
    coupon = shared(stack, codes=["PAGE-10"])
    page = Http(stack.port, stack.new_key("public", "--origin", "https://shop.example"))
    origin = {"Origin": "https://shop.example"}
    said = page.post("/coupons/-/resolve", {"code": "page10"}, headers=origin).ok()["items"]
    assert said == [{"coupon": coupon, "ok": True, "reason": None, "missing_minor": None, "discount_minor": 0}]
    assert page.post(f"/coupons/{coupon}/check", {"code": "PAGE-10"}, headers=origin).ok()["ok"] is True
    assert page.post(f"/coupons/{coupon}/check", {"code": "PAGE-11"}, headers=origin).ok()["ok"] is False


def test_each_code_is_used_as_often_as_its_cap_allows_and_no_more(stack, storefront):
    coupon = shared(stack, slots=40, cap_of_each=3)
    calls = swarm([stack.way()], [take(coupon, f"u-{i}", f"k-{i}", code=("SUMMER10", "anna-10")[i % 2]) for i in range(20)], connections=20)
    done = sorted((call.reply.status, call.reply.json()["code"]) for call in calls)
    assert done == [(201, "ANNA10")] * 3 + [(201, "SUMMER10")] * 3 + [(409, "code_taken")] * 14, done
    problem = storefront.take(coupon, "late", code="SUMMER10").problem("code_taken")
    assert problem["retry"] is False
    assert {item["coupon"]: item["problem"] for item in resolve(storefront, "SUMMER10")}[coupon] == "code_taken"
    assert {code: row["redeemed"] for code, row in by_code(stack, coupon).items() if code} == {"ANNA10": 3, "SUMMER10": 3}
    stack.verify(coupon)


def test_a_use_that_is_given_back_can_be_had_again(stack, storefront):
    coupon = shared(stack, slots=9, cap_of_each=1)
    held = storefront.take(coupon, "ann", code="ANNA10", state="reserved").ok(201)
    reply = storefront.take(coupon, "bea", code="ANNA10")
    assert reply.problem("transaction_in_progress")["retry"] is True and int(reply.header("Retry-After")) > 0, reply
    storefront.post(f"/coupons/{coupon}/redemptions/{held['id']}/cancel", {}).ok()
    spent = storefront.take(coupon, "bea", code="ANNA10").ok(201)
    storefront.take(coupon, "cid", code="ANNA10").problem("code_taken")
    storefront.post(f"/coupons/{coupon}/redemptions/{spent['id']}/reverse", {}).ok()
    storefront.take(coupon, "cid", code="ANNA10").ok(201)
    stack.verify(coupon)


def test_what_was_used_is_known_after_a_crash_and_to_both_workers(stack, storefront):
    coupon = shared(stack, slots=30, cap_of_each=4)
    ways = [stack.direct(i) for i in range(stack.workers)]
    for i in range(3):
        ways[i % len(ways)].take(coupon, f"u-{i}", code="SUMMER10").ok(201)
    wait_until("the checkpoint", lambda: stack.is_written(coupon))
    assert stack.database.lanes.find_one({"_id.c": coupon})["view"]["codes"] == [{"c": "SUMMER10", "n": 3}]
    stack.kill_workers()
    for i in range(3, 8):
        reply = stack.client("storefront").take(coupon, f"u-{i}", code="SUMMER10")
        reply.ok(201) if i == 3 else reply.problem("code_taken")
    stack.verify(coupon)


def test_the_list_changes_and_nothing_else_of_the_codes(stack, storefront, ops):
    coupon = shared(stack, slots=9, cap_of_each=2)
    storefront.take(coupon, "ann", code="SUMMER10").ok(201)
    changed = stack.patch(coupon, {"codes": {"shared": ["Summer-10", "EVE10"]}})
    assert changed["codes"]["shared"] == ["Summer-10", "EVE10"], changed
    storefront.take(coupon, "bea", code="ANNA10").problem("code_not_found")
    assert storefront.take(coupon, "bea", code="summer10").ok(201)["code"] == "Summer-10"
    storefront.take(coupon, "cid", code="SUMMER10").problem("code_taken")  # another spelling is no other code
    for member, value in (("shared_cap", 9), ("claim", "any"), ("match", "exact"), ("source", "none")):
        body = {"codes": {member: value, **({"shared": None, "shared_cap": None} if value == "none" else {})}}
        ops.patch(f"/coupons/{coupon}", body).problem("field_fixed")
    ops.patch(f"/coupons/{coupon}", {"codes": {"shared": []}}).problem("bad_request", at="/codes/shared")
    ops.patch(f"/coupons/{coupon}", {"codes": {"shared": ["EVE10", "eve-10"]}}).problem("bad_request", at="/codes/shared/1")
    stack.verify(coupon)


@pytest.mark.parametrize("policy", ["approximate", "none"])
def test_a_coupon_without_slots_has_them_too(stack, storefront, policy):
    coupon = shared(stack, slots=0, cap={"policy": policy, "total": 9}, cap_of_each=1)
    said = storefront.take(coupon, "ann", code="ANNA10").ok(201)
    assert said["slot"] is None and said["code"] == "ANNA10", said
    storefront.take(coupon, "bea", code="ANNA10").problem("code_taken")
    assert by_code(stack, coupon)["ANNA10"]["redeemed"] == 1
    stack.verify(coupon)


def test_reports_and_lists_say_by_whose_code(stack, storefront, reporting):
    coupon = shared(stack, slots=9, codes=["A.NNA$10%", "BEA10", "NOBODY"], more={"claim": "any"},
                    discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"})
    storefront.take(coupon, "u1", code="a.nna$10%").ok(201)
    kept = storefront.take(coupon, "u2", code="A.NNA$10%").ok(201)
    storefront.take(coupon, "u3", code="BEA10", state="reserved").ok(201)
    storefront.take(coupon, "u4").ok(201)
    storefront.post(f"/coupons/{coupon}/redemptions/{kept['id']}/reverse", {}).ok()
    rows = by_code(stack, coupon)
    assert {code: (row["redeemed"], row["reserved"], row["reversed"], row["discount_minor"]) for code, row in rows.items()} == {
        "A.NNA$10%": (2, 0, 1, 500), "BEA10": (0, 1, 0, 0), "NOBODY": (0, 0, 0, 0), None: (1, 0, 0, 500)}
    rows = reporting.get(f"/coupons/{coupon}/reports?period=total&group=code", headers=CSV).expect(200).rows()
    table = {row["code"]: row["redeemed"] for row in rows}
    assert table == {"A.NNA$10%": "2", "BEA10": "0", "NOBODY": "0", "": "1"}
    several = reporting.get(f"/coupons/-/reports?coupon={coupon}&period=total&group=code").ok()["items"]
    assert {row["code"]: row["redeemed"] for row in several} == {"A.NNA$10%": 2, "BEA10": 0, None: 1}
    reporting.get(f"/coupons/{coupon}/reports?group=coupon").problem("bad_request")
    listed = storefront.get(f"/coupons/{coupon}/redemptions").ok()["items"]
    assert sorted(str(item["code"]) for item in listed) == ["A.NNA$10%", "A.NNA$10%", "BEA10", "None"]
    stack.verify(coupon)


def test_a_code_of_coupons_in_several_currencies_is_one_row_with_the_money_of_each(stack, storefront, reporting):
    def euros(amount):
        return {"amount_minor": amount, "currency": "EUR"}

    def yen(amount):
        return {"amount_minor": amount, "currency": "JPY"}
    europe = shared(stack, codes=["SUN1", "SUN10"], discount={"kind": "amount", **euros(500)})
    japan = shared(stack, codes=["SUN1", "SUN10"], discount={"kind": "amount", **yen(300)})
    anywhere = shared(stack, codes=["SUN1"], discount={"kind": "percent", "percent_bp": 1000})
    for coupon, code, order in ((europe, "SUN1", euros(2000)), (japan, "SUN1", yen(4000)), (japan, "SUN10", yen(5000)),
                                (anywhere, "SUN1", euros(100)), (anywhere, "SUN1", yen(200))):
        storefront.take(coupon, "u", code=code, order=order).expect(201)
    for coupon in (europe, japan, anywhere):
        by_code(stack, coupon)

    def said(*coupons, **how):
        return reporting.get(f"/coupons/-/reports?coupon={','.join(coupons)}&period=total&group=code", **how)

    def money(*coupons):
        return {row["code"]: (row["redeemed"], row["discount_minor"], [tuple(m.values()) for m in row["money"]])
                for row in said(*coupons).ok()["items"]}
    assert money(europe, japan) == {"SUN1": (2, None, [("EUR", 500, 2000), ("JPY", 300, 4000)]), "SUN10": (1, 300, [("JPY", 300, 5000)])}
    assert money(anywhere) == {"SUN1": (2, None, [("EUR", 10, 100), ("JPY", 20, 200)])}, "also of one coupon"
    rows = said(europe, japan, headers=CSV).expect(200).rows()
    assert [row["code"] for row in rows] == ["SUN1", "SUN10"], rows


def test_the_ledger_says_which_code_and_keeps_it_when_the_user_is_erased(stack, storefront, ops, reporting):
    coupon = shared(stack, slots=3)
    storefront.take(coupon, "gone", code="ANNA10").ok(201)
    ops.delete("/coupons/-/users/gone").expect(204)
    lines = reporting.get(f"/coupons/{coupon}/ledger").expect(200).lines()
    assert [entry["code"] for line in lines for entry in line["entries"] if "code" in entry] == ["ANNA10"]
    assert by_code(stack, coupon)["ANNA10"]["redeemed"] == 1
    stack.verify(coupon)


def test_verify_finds_and_reconcile_mends_counts_of_codes(stack, storefront):
    coupon = shared(stack, slots=9, cap_of_each=5)
    storefront.take(coupon, "ann", code="ANNA10").ok(201)
    by_code(stack, coupon)
    wait_until("the checkpoint", lambda: stack.is_written(coupon))
    stack.verify(coupon)
    lane, row = stack.database.lanes.find_one({"_id.c": coupon}), stack.database.totals.find_one({"_id.c": coupon})
    assert row["by"] == {"ANNA10|": {name: int(name == "redeemed") for name in row["by"]["ANNA10|"]}}, row
    stack.database.lanes.update_one({"_id": lane["_id"]}, {"$set": {"view.codes": [{"c": "ANNA10", "n": 4}]}})
    stack.database.totals.update_one({"_id": row["_id"]}, {"$inc": {"by.ANNA10|.redeemed": 1}})
    said = stack.couponctl("verify", coupon)
    assert said.returncode == 1 and "codes" in said.stdout and "ANNA10" in said.stdout, said.stdout
    stack.ctl("reconcile", "--online", "--apply", coupon)
    stack.verify(coupon)
    assert stack.database.lanes.find_one({"_id": lane["_id"]})["view"]["codes"] == lane["view"]["codes"]
    assert stack.database.totals.find_one({"_id": row["_id"]})["by"] == row["by"]
