"""What an order earns: integer arithmetic, compared with a model in Python; and the budget."""
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model import Refused, discount_of
from test_reports import caught_up

MONEY = st.integers(0, 10**6) | st.integers(0, 30) | st.just(10**13)
CATEGORIES = ["shoes", "hats", "Gürtel"]
LINE = st.fixed_dictionaries({"sku": st.sampled_from(["A1", "B2", "C3"]), "category": st.sampled_from(CATEGORIES),
                              "amount_minor": st.integers(0, 10**5), "quantity": st.integers(1, 9)})


@st.composite
def rules(draw):
    rule = {"currency": "EUR"}
    if draw(st.booleans()):
        rule |= {"kind": "amount", "amount_minor": draw(st.integers(1, 10**5))}
    else:
        rule |= {"kind": "percent", "percent_bp": draw(st.integers(1, 10000))}
        if draw(st.booleans()):
            rule["max_minor"] = draw(st.integers(1, 10**4))
    if draw(st.booleans()):
        rule["min_spend_minor"] = draw(st.integers(1, 10**5))
    which = draw(st.sampled_from(["all", "categories", "skus"]))
    if which == "categories":
        rule["only"] = {"categories": draw(st.lists(st.sampled_from(CATEGORIES), min_size=1, max_size=2, unique=True))}
    elif which == "skus":
        rule["only"] = {"skus": draw(st.lists(st.sampled_from(["A1", "B2"]), min_size=1, max_size=2, unique=True))}
    return rule


@st.composite
def orders(draw):
    order = {"currency": draw(st.sampled_from(["EUR"] * 8 + ["USD", None]))}
    if draw(st.booleans()):
        order["items"] = draw(st.lists(LINE, min_size=1, max_size=5))
        order["amount_minor"] = sum(i["amount_minor"] for i in order["items"])
    else:
        order["amount_minor"] = draw(MONEY)
    return order


def expected_discount(rule, order):
    """(reason, missing, discount) by the model."""
    try:
        return None, None, discount_of(rule, order)
    except Refused as refusal:
        return *refusal.misfit, 0


def whole(rule):
    """The rule as a merge patch that leaves nothing of the one before."""
    only = {"categories": [], "skus": [], **rule.get("only", {})}
    patch = {"min_spend_minor": None, **rule, "only": only}
    if rule["kind"] == "percent":
        patch.setdefault("max_minor", None)
    return {"discount": patch}


def test_discounts_are_what_the_contract_says(stack, storefront):
    coupon = stack.coupon(slots=1, discount={"kind": "amount", "amount_minor": 1, "currency": "EUR"})

    @settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(rules(), st.lists(orders(), min_size=8, max_size=8))
    def compare(rule, many):
        stack.patch(coupon, whole(rule))
        for order in many:
            reason, missing, discount = expected_discount(whole(rule)["discount"], order)
            said = storefront.post(f"/coupons/{coupon}/check", {"user": "u", "order": order}).ok()
            assert (said.get("reason"), said.get("missing_minor"), said["discount_minor"]) == (reason, missing, discount), (rule, order, said)
            assert (said["ok"], said["problem"]) == ((False, "order_not_eligible") if reason else (True, None)), (rule, order, said)

    compare()
    assert stack.counts(coupon)["taken_total"] == 0


def order(amount, **members):
    return {"amount_minor": amount, "currency": "EUR", **members}


AMOUNT = {"kind": "amount", "amount_minor": 500}
SHOES = {**AMOUNT, "only": {"categories": ["shoes"]}}
HAT = {"sku": "A1", "category": "hats", "amount_minor": 5000, "quantity": 1}


@pytest.mark.parametrize("rule, sent, reason, missing", [
    ({"kind": "percent", "percent_bp": 1000}, None, "no_order", None),
    ({"kind": "percent", "percent_bp": 1000}, {"id": "o", "currency": "EUR"}, "no_order", None),
    ({**AMOUNT, "min_spend_minor": 2000}, None, "no_order", None),
    ({**AMOUNT, "min_spend_minor": 2000}, order(1580), "min_spend", 420),
    ({**SHOES, "min_spend_minor": 6000}, order(9000, items=[{**HAT, "category": "shoes"}, HAT]), "min_spend", 1000),
    (SHOES, None, "no_order", None),
    (SHOES, order(5000), "no_matching_item", None),
    (SHOES, order(5000, items=[HAT]), "no_matching_item", None),
    ({**AMOUNT, "except": {"categories": ["hats"]}}, order(5000, items=[HAT]), "no_matching_item", None),
    ({**AMOUNT, "except": {"skus": ["gift-card"]}}, order(5000), "no_matching_item", None),
    (AMOUNT, {"amount_minor": 5000, "currency": "USD"}, "currency", None),
    (AMOUNT, {"amount_minor": 5000}, "currency", None),
    (AMOUNT, {"id": "o"}, "currency", None),
], ids=lambda v: v if isinstance(v, str) else "")
def test_an_order_that_misses_a_rule_is_told_which(stack, storefront, rule, sent, reason, missing):
    """A taking, an item of a batch, a step of an issued one and a check all say the same."""
    coupon = stack.coupon(slots=2, discount={"currency": "EUR", **rule})
    members = {} if sent is None else {"order": sent}
    item = {"key": "in-a-batch", "user": "u", **members}
    issued = storefront.take(coupon, "holder", state="issued").ok(201)["id"]
    [of_batch] = storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": [item]}).ok()["items"]
    answers = [storefront.take(coupon, "u", **members).problem("order_not_eligible"), of_batch["body"],
               storefront.post(f"/coupons/{coupon}/redemptions/{issued}/redeem", members,
                               idempotency_key="step").problem("order_not_eligible"),
               storefront.post(f"/coupons/{coupon}/check", {"user": "u", **members}).ok()]
    assert [(a.get("code") or a["problem"], a["reason"], a["missing_minor"]) for a in answers] == [("order_not_eligible", reason, missing)] * 4, answers
    assert stack.counts(coupon)["taken_total"] == 1


def test_items_that_are_excepted_earn_nothing_and_no_order_earns_more_than_it_costs(stack, storefront):
    coupon = stack.coupon(slots=3, cap={"per_user": 3}, discount={"kind": "percent", "percent_bp": 5000, "currency": "EUR", "except": {"skus": ["A1"]}})
    sock = {"sku": "B2", "amount_minor": 999}

    def given(amount, *items):
        return storefront.take(coupon, "u", order=order(amount, items=list(items))).ok(201)["discount_minor"]

    assert given(5999, HAT, sock) == 499  # rounded down
    assert given(300, sock, sock) == 300  # a voucher has paid the rest


def test_a_reason_is_given_for_orders_alone(stack, storefront):
    coupon = stack.coupon(slots=1, discount={**AMOUNT, "currency": "EUR"})
    answers = [storefront.post(f"/coupons/{coupon}/check", {"user": "u", "order": order(900)}).ok()]
    storefront.take(coupon, "u", order=order(900)).expect(201)
    answers.append(storefront.take(coupon, "u", order=order(900)).problem("user_cap_reached"))
    answers.append(storefront.post(f"/coupons/{coupon}/check", {"user": "u", "order": order(900)}).ok())
    assert [a.get("code") or a["problem"] for a in answers] == [None, "user_cap_reached", "user_cap_reached"]
    assert not [a for a in answers if {"reason", "missing_minor"} & set(a)], answers


def test_the_budget_is_never_passed_and_comes_back_with_a_reverse(stack, storefront):
    coupon = stack.coupon(slots=10, cap={"total": 10, "discount_minor": 1000},
                          discount={"kind": "percent", "percent_bp": 5000, "currency": "EUR"})
    first = storefront.take(coupon, "a", order=order(1200)).ok(201)
    assert first["discount_minor"] == 600
    storefront.take(coupon, "b", order=order(802)).problem("budget_reached")
    assert storefront.take(coupon, "b", order=order(801)).ok(201)["discount_minor"] == 400
    storefront.take(coupon, "c", order=order(2)).problem("budget_reached")
    assert storefront.take(coupon, "c", order=order(1)).ok(201)["discount_minor"] == 0
    storefront.post(f"/coupons/{coupon}/redemptions/{first['id']}/reverse").expect(200)
    assert stack.counts(coupon)["discount_minor"] == 400
    assert storefront.take(coupon, "d", order=order(1200)).ok(201)["discount_minor"] == 600
    stack.verify(coupon)


def test_what_was_promised_at_the_hold_stands(stack, storefront):
    """The customer has paid by what the hold said; a manager changed the coupon meanwhile."""
    coupon = stack.coupon(slots=5, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"})
    sent = order(4200, items=[{**HAT, "amount_minor": 4200}])
    holds = [storefront.take(coupon, f"u{i}", state="reserved", order={"id": f"o{i}", **sent}).ok(201) for i in range(5)]
    money = [{"currency": "EUR", "discount_minor": 500, "order_minor": 4200}]
    assert [(h["discount_minor"], h["version"], h["money"]) for h in holds] == [(500, 1, money)] * 5
    stack.patch(coupon, {"discount": {"amount_minor": 200, "min_spend_minor": 4300}})
    answers = [storefront.step(holds[0], "redeem").ok(), storefront.step(holds[1], "redeem", order={"id": "o1"}).ok(),
               storefront.step(holds[2], "redeem", order={"id": "other", **sent}).ok()]
    assert [(a["discount_minor"], a["version"], a["money"]) for a in answers] == [(500, 1, money)] * 3
    refused = storefront.step(holds[3], "redeem", order={"id": "o3", **sent, "amount_minor": 4201})
    assert refused.problem("order_not_eligible")["reason"] == "min_spend"
    said = storefront.step(holds[3], "redeem", order={"id": "o3", **order(9000)}).ok()
    assert (said["discount_minor"], said["version"], said["money"][0]["order_minor"]) == (200, 2, 9000)
    assert storefront.get(f"/coupons/{coupon}/redemptions/{holds[0]['id']}").ok() == answers[0]
    assert stack.counts(coupon)["discount_minor"] == 3 * 500 + 200 + 500
    stack.verify(coupon)


def test_an_answer_says_money_with_its_currency(stack, storefront, reporting):
    coupon = stack.coupon(slots=4, discount={"kind": "percent", "percent_bp": 1000})
    taken = [storefront.take(coupon, "a", order={"id": "o", "amount_minor": 3000, "currency": "JPY"}), storefront.take(coupon, "b", state="issued")]
    assert [t.ok(201)["money"] for t in taken] == [[{"currency": "JPY", "discount_minor": 300, "order_minor": 3000}], []]
    rows = reporting.get(f"/coupons/{coupon}/redemptions", headers={"Accept": "text/csv"}).expect(200).body.decode().splitlines()
    names = rows[0].split(",")
    assert [[dict(zip(names, row.split(",")))[n] for n in ("discount_minor", "currency", "order_minor", "version")] for row in rows[1:]] == \
        [["0", "", "0", "1"], ["300", "JPY", "3000", "1"]]


def test_each_line_has_its_share(stack, storefront):
    """So that a shop can refund one of them."""
    coupon = stack.coupon(slots=3, cap={"total": 3, "per_user": 3},
                          discount={"kind": "amount", "amount_minor": 500, "currency": "EUR", "only": {"categories": ["shoes"]}})
    shoe = {"sku": "S", "category": "shoes", "amount_minor": 1000, "quantity": 1}
    taken = storefront.take(coupon, "u", "k", order=order(8000, items=[shoe, HAT, shoe, shoe])).ok(201)
    assert taken["allocations"] == [{"item": i, "discount_minor": n} for i, n in enumerate((167, 0, 167, 166))]
    assert storefront.take(coupon, "u", "k", order=order(8000, items=[shoe, HAT, shoe, shoe])).ok(201) == taken
    assert storefront.get(f"/coupons/{coupon}/redemptions/{taken['id']}").ok() == taken
    stack.patch(coupon, {"discount": {"only": {"categories": []}}})
    assert storefront.take(coupon, "u", "k", order=order(8000, items=[shoe, HAT, shoe, shoe])).ok(201) == taken
    assert "allocations" not in storefront.take(coupon, "u", order=order(8000)).ok(201)
    stack.verify(coupon)


def shares_add_up(storefront, coupon, amounts):
    items = [{"amount_minor": n} for n in amounts]
    taken = storefront.take(coupon, "u", order={"currency": "EUR", "items": items}).ok(201)
    shares = [a["discount_minor"] for a in taken["allocations"]]
    exact = [taken["discount_minor"] * n / max(1, sum(amounts)) for n in amounts]
    assert sum(shares) == taken["discount_minor"] == sum(amounts) * 3333 // 10000
    assert all(0 <= s <= n for s, n in zip(shares, amounts)) and all(abs(s - e) < 1.01 for s, e in zip(shares, exact))


def test_shares_add_up_exactly(stack, storefront):
    coupon = stack.coupon(slots=60, cap={"total": 60, "per_user": 60}, discount={"kind": "percent", "percent_bp": 3333, "currency": "EUR"})

    @settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.integers(0, 10**13 // 500) | st.integers(0, 3), min_size=1, max_size=500))
    def compare(amounts):
        shares_add_up(storefront, coupon, amounts)

    compare()
    stack.verify(coupon)


@pytest.mark.parametrize("verb, body, pointer", [
    ("reverse", {"amount_minor": 5000}, "/amount_minor"), ("cancel", {"amount_minor": 5000}, "/amount_minor"),
    ("cancel", {"keep_use": True}, "/keep_use"), ("reverse", {"keep_use": 1}, "/keep_use"), ("reverse", {"keep_use": None}, "/keep_use")])
def test_a_body_that_asks_for_something_else_gives_nothing_back(stack, storefront, verb, body, pointer):
    """A shop that means to give back a part must not lose all of it."""
    coupon = stack.coupon(slots=1, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"})
    taken = storefront.take(coupon, "u").ok(201)
    problem = storefront.post(f"/coupons/{coupon}/redemptions/{taken['id']}/{verb}", body).problem("bad_request")
    assert [e["pointer"] for e in problem["errors"]] == [pointer]
    assert stack.counts(coupon)["redeemed"] == 1


def test_the_money_may_come_back_and_the_use_not(stack, storefront):
    coupon = stack.coupon(slots=2, cap={"total": 2, "per_user": 1}, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"})
    taken = storefront.take(coupon, "u").ok(201)
    for _ in range(2):
        said = storefront.post(f"/coupons/{coupon}/redemptions/{taken['id']}/reverse", {"keep_use": True}).ok()
        assert said["state"] == "reversed"
    assert {k: stack.counts(coupon)[k] for k in ("free", "redeemed", "discount_minor")} == {"free": 2, "redeemed": 0, "discount_minor": 0}
    assert storefront.get(f"/coupons/{coupon}/users/u").ok()["remaining"] == 0
    storefront.take(coupon, "u").problem("user_cap_reached")
    other = storefront.take(coupon, "v").ok(201)
    storefront.post(f"/coupons/{coupon}/redemptions/{other['id']}/reverse", {"keep_use": False}).expect(200)
    storefront.take(coupon, "v").expect(201)
    stack.verify(coupon)


def adjust(client, redemption, key, **body):
    return client.post(f"/coupons/{redemption['coupon']}/redemptions/{redemption['id']}/adjust", body, idempotency_key=key)


def test_a_shop_takes_back_one_of_three_pairs(stack, storefront, reporting):
    """The discount goes down in place: the slot and the use stay, and budget, counts and reports follow."""
    shoes = [{"sku": "S", "category": "shoes", "amount_minor": 1000, "quantity": 1}] * 3
    coupon = stack.coupon(slots=3, cap={"total": 3, "per_user": 1, "discount_minor": 500},
                          discount={"kind": "percent", "percent_bp": 1667, "currency": "EUR"})
    taken = storefront.take(coupon, "u", "k", order={"id": "o", **order(3000, items=shoes)}).ok(201)
    assert taken["discount_minor"] == 500 and stack.counts(coupon)["discount_minor"] == 500
    storefront.take(coupon, "v", order=order(3000)).problem("budget_reached")
    said = adjust(storefront, taken, "a-1", order={"id": "o", **order(2000, items=shoes[:2])}).ok()
    assert (said["id"], said["state"], said["discount_minor"], said["ordinal"]) == (taken["id"], "redeemed", 333, taken["ordinal"])
    assert said["money"] == [{"currency": "EUR", "discount_minor": 333, "order_minor": 2000}]
    assert [a["discount_minor"] for a in said["allocations"]] == [167, 166]
    less = adjust(storefront, taken, "a-2", discount_minor=100).ok()
    assert [a["discount_minor"] for a in less["allocations"]] == [50, 50] and less["money"][0]["order_minor"] == 2000
    again = adjust(storefront, taken, "a-1", order={"id": "o", **order(2000, items=shoes[:2])})
    assert again.ok() == said and again.header("Idempotent-Replayed") == "true"
    assert storefront.take(coupon, "u", "k", order={"id": "o", **order(3000, items=shoes)}).ok(201) == taken
    assert storefront.get(f"/coupons/{coupon}/redemptions/{taken['id']}").ok() == less
    assert {k: stack.counts(coupon)[k] for k in ("redeemed", "free", "discount_minor")} == {"redeemed": 1, "free": 2, "discount_minor": 100}
    assert storefront.get(f"/coupons/{coupon}/users/u").ok()["remaining"] == 0
    storefront.take(coupon, "v", order=order(2000)).expect(201)
    receipt = storefront.get(f"/coupons/{coupon}/redemptions/{taken['id']}/receipt").ok()
    assert receipt
    row = caught_up(stack, coupon, "period=total")["items"][0]
    assert row["money"] == [{"currency": "EUR", "discount_minor": 433, "order_minor": 4000}] and row["redeemed"] == 2
    stack.verify(coupon)
    storefront.post(f"/coupons/{coupon}/redemptions/{taken['id']}/reverse").expect(200)
    adjust(storefront, taken, "a-3", discount_minor=0).problem("invalid_transition")
    adjust(storefront, {"coupon": coupon, "id": "2-9"}, "a", discount_minor=1).problem("redemption_not_found")
    assert adjust(storefront, taken, "a-2", discount_minor=100).ok() == less
    row = caught_up(stack, coupon, "period=total")["items"][0]
    assert row["money"] == [{"currency": "EUR", "discount_minor": 333, "order_minor": 2000}]
    stack.verify(coupon)


@pytest.mark.parametrize("body, at", [
    ({}, ""), ({"discount_minor": 1, "order": {"amount_minor": 1}}, ""), ({"discount_minor": -1}, "/discount_minor"),
    ({"discount_minor": None}, "/discount_minor"), ({"amount_minor": 1}, "/amount_minor"), ({"discount_minor": 501}, "/discount_minor"),
    ({"order": {"id": "another", "amount_minor": 1, "currency": "EUR"}}, "/order/id")])
def test_a_bad_adjustment_is_refused(stack, storefront, body, at):
    coupon = stack.coupon(slots=1, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"})
    taken = storefront.take(coupon, "u", order={"id": "o", **order(4000)}).ok(201)
    adjust(storefront, taken, "a", **body).problem("bad_request", at=at)
    storefront.post(f"/coupons/{coupon}/redemptions/{taken['id']}/adjust", {"discount_minor": 1}).problem("idempotency_key_required")
    assert stack.counts(coupon)["discount_minor"] == 500


def test_an_adjustment_keeps_the_currency(stack, storefront):
    coupon = stack.coupon(slots=1, discount={"kind": "percent", "percent_bp": 1000})
    taken = storefront.take(coupon, "u", order={"id": "o", "amount_minor": 100, "currency": "EUR"}).ok(201)
    for other in ({"currency": "USD"}, {}):
        adjust(storefront, taken, "a-1", order={"id": "o", "amount_minor": 50, **other}).problem("bad_request", at="/order/currency")
    said = adjust(storefront, taken, "a-1", order={"id": "o", "amount_minor": 50, "currency": "EUR"}).ok()
    assert said["discount_minor"] == 5, said
    stack.verify(coupon)
