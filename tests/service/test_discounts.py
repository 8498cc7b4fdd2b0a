"""What an order earns: integer arithmetic, compared with a model in Python; and the budget."""
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    """(reason, missing, discount) by the contract."""
    only = rule.get("only", {})
    lines = order.get("items", [])
    admitted = [i["amount_minor"] for i in lines if not only or i["category"] in only.get("categories", [])
                or i["sku"] in only.get("skus", [])]
    if order["currency"] != rule["currency"]:
        return "currency", None, 0
    if only and not admitted:
        return "no_matching_item", None, 0
    total = sum(admitted) if lines else order["amount_minor"]
    missing = rule.get("min_spend_minor", 0) - total
    if missing > 0:
        return "min_spend", missing, 0
    if rule["kind"] == "amount":
        discount = rule["amount_minor"]
    else:
        discount = total * rule["percent_bp"] // 10000
    return None, None, min(discount, total, rule.get("max_minor", discount))


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
            reason, missing, discount = expected_discount(rule, order)
            told = storefront.post(f"/coupons/{coupon}/check", {"user": "u", "order": order}).ok()
            assert (told.get("reason"), told.get("missing_minor"), told["discount_minor"]) == (reason, missing, discount), (rule, order, told)
            assert (told["ok"], told["code"]) == ((False, "order_not_eligible") if reason else (True, None)), (rule, order, told)

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
    assert [(a["code"], a["reason"], a["missing_minor"]) for a in answers] == [("order_not_eligible", reason, missing)] * 4, answers
    assert stack.counts(coupon)["taken_total"] == 1


def test_items_that_are_excepted_earn_nothing_and_no_order_earns_more_than_it_costs(stack, storefront):
    coupon = stack.coupon(slots=3, cap={"per_user": 3}, discount={"kind": "percent", "percent_bp": 5000, "currency": "EUR", "except": {"skus": ["A1"]}})
    sock = {"sku": "B2", "amount_minor": 999}

    def given(amount, *items):
        return storefront.take(coupon, "u", order=order(amount, items=list(items))).ok(201)["discount_minor"]

    assert given(5999, HAT, sock) == 499  # rounded down
    assert given(300, sock, sock) == 300  # a voucher has paid the rest


def test_a_budget_needs_a_currency(ops):
    body = {"title": "t", "cap": {"total": 1, "discount_minor": 1000}, "discount": {"kind": "percent", "percent_bp": 1000}}
    ops.post("/coupons", body).problem("bad_request", at="/discount/currency")
    body["discount"]["currency"] = "EUR"
    ops.post("/coupons", body).ok(201)


def test_a_reason_is_given_for_orders_alone(stack, storefront):
    coupon = stack.coupon(slots=1, discount={**AMOUNT, "currency": "EUR"})
    answers = [storefront.post(f"/coupons/{coupon}/check", {"user": "u", "order": order(900)}).ok()]
    storefront.take(coupon, "u", order=order(900)).expect(201)
    answers.append(storefront.take(coupon, "u", order=order(900)).problem("user_cap_reached"))
    answers.append(storefront.post(f"/coupons/{coupon}/check", {"user": "u", "order": order(900)}).ok())
    assert [a["code"] for a in answers] == [None, "user_cap_reached", "user_cap_reached"]
    assert not [a for a in answers if {"reason", "missing_minor"} & set(a)], answers


def test_the_discount_that_was_given_is_in_the_redemption(stack, storefront):
    coupon = stack.coupon(slots=3, discount={"kind": "percent", "percent_bp": 3333, "max_minor": 1000, "currency": "EUR"})
    for user, amount, discount in (("a", 1001, 333), ("b", 10**6, 1000), ("c", 0, 0)):
        assert storefront.take(coupon, user, order=order(amount)).ok(201)["discount_minor"] == discount
    assert stack.counts(coupon)["discount_minor"] == 1333


def test_an_amount_without_rules_needs_no_order(stack, storefront):
    coupon = stack.coupon(slots=1, discount={"kind": "amount", "amount_minor": 700, "currency": "EUR"})
    assert storefront.take(coupon, "u").ok(201)["discount_minor"] == 700


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
