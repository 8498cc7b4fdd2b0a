"""Handing out, holding, redeeming, cancelling and returning: the table of calls and states, call by call."""
import time
from datetime import datetime, timedelta

import pytest

from client import keys
from stack import wait_until
from swarm import Call, swarm
from swarm import step as swarm_step
from swarm import take as swarm_take
from test_coupons import walk
from test_redemptions import later

VERBS = ("reserve", "redeem", "cancel", "reverse")


def get(client, redemption):
    return client.get(f"/coupons/{redemption['coupon']}/redemptions/{redemption['id']}").ok()


def expired(client, redemption):
    """The redemption, once its time has passed."""
    return wait_until("the hold's end", lambda: (r := get(client, redemption))["state"] == "expired" and r)


def make(stack, client, state):
    """A redemption in this state; `held`: an issued one that another checkout holds."""
    coupon = stack.coupon(slots=4, cap={"total": 4, "per_user": 4})
    if state == "issued":
        return client.take(coupon, "u", state="issued").ok(201)
    if state == "held":
        issued = client.take(coupon, "u", state="issued").ok(201)
        client.step(issued, "reserve", order={"id": "theirs"}).expect(201)
        return issued
    if state == "redeemed":
        return client.take(coupon, "u", order={"id": "first"}).ok(201)
    if state == "expired":
        return expired(client, client.take(coupon, "u", state="reserved", reserve_s=1).ok(201))
    made = client.take(coupon, "u", state="reserved" if state in ("reserved", "cancelled") else "redeemed").ok(201)
    if state != "reserved":
        return client.step(made, {"cancelled": "cancel", "reversed": "reverse"}[state]).ok()
    return made


T, E = "invalid_transition", "reservation_expired"
TABLE = {  # now: what (reserve, redeem, cancel, reverse) get: a status, or a problem's code
    "issued": (201, 200, 200, T),
    "held": ("transaction_in_progress", "transaction_in_progress", "transaction_in_progress", T),
    "reserved": (200, 200, 200, T),
    "redeemed": ("code_taken", 200, T, 200),
    "cancelled": (T, T, 200, T),
    "expired": (E, E, 200, T),
    "reversed": (T, T, T, 200),
}
BECOMES = {"reserve": "reserved", "redeem": "redeemed", "cancel": "cancelled", "reverse": "reversed"}


@pytest.mark.parametrize("now", TABLE)
@pytest.mark.parametrize("verb", VERBS)
def test_every_call_in_every_state_is_answered_by_the_table(stack, storefront, now, verb):
    redemption, wanted = make(stack, storefront, now), TABLE[now][VERBS.index(verb)]
    before = get(storefront, redemption)
    reply = storefront.step(redemption, verb)
    if isinstance(wanted, str):
        reply.problem(wanted)
        assert get(storefront, redemption) == before, "a refusal changes nothing"
    else:
        said = reply.ok(wanted)
        assert said["state"] == (before["state"] if before["state"] in ("cancelled", "expired") else BECOMES[verb]), said
        assert get(storefront, said) == said
        assert (reply.header("Location") == f"/coupons/{said['coupon']}/redemptions/{said['id']}") is (wanted == 201), reply
    stack.verify(redemption["coupon"])


def test_a_hold_on_an_issued_one_is_a_redemption_of_its_own(stack, storefront):
    coupon = stack.coupon(slots=1)
    issued = storefront.take(coupon, "u", state="issued", metadata={"a": 1}).ok(201)
    assert (issued["state"], issued["reserved_until"], issued["valid_until"], issued["from"]) == ("issued", None, None, None)
    hold = storefront.step(issued, "reserve", order={"id": "o"}).ok(201)
    assert (hold["id"], hold["from"], hold["slot"]) == (f"{issued['slot']}-2", issued["id"], issued["slot"]), hold
    assert (hold["ordinal"], hold["after"], hold["metadata"]) == (issued["ordinal"], issued["after"], {"a": 1}), "no new taking"
    assert get(storefront, issued)["state"] == "issued"
    user = storefront.get(f"/coupons/{coupon}/users/u").ok()
    assert user["total"] == 1 and {r["id"] for r in user["redemptions"]} == {issued["id"], hold["id"]}, user
    assert storefront.step(hold, "cancel").ok()["state"] == "cancelled"
    assert get(storefront, issued)["state"] == "issued", "issued as before"
    second = storefront.step(issued, "reserve", order={"id": "o"}).ok(201)
    assert second["id"] == f"{issued['slot']}-3", second
    assert storefront.step(second, "redeem").ok()["state"] == "redeemed"
    assert get(storefront, issued)["state"] == "redeemed"
    assert storefront.step(issued, "reverse").ok()["state"] == "reversed"
    assert {get(storefront, r)["state"] for r in (issued, second)} == {"reversed"}
    assert stack.counts(coupon)["free"] == 1
    states = [(second["id"], "reversed"), (hold["id"], "cancelled"), (issued["id"], "reversed")]
    listed = wait_until("the list", lambda: (seen := walk(storefront, f"/coupons/{coupon}/redemptions?limit=1")[0])
                        and [(r["id"], r["state"]) for r in seen] == states and seen)
    assert [r["id"] for r in walk(storefront, f"/coupons/{coupon}/redemptions?user=u&limit=1")[0]] == [r["id"] for r in listed]
    stack.verify(coupon)


def test_the_return_page_and_the_payment_webhook_both_redeem(stack, storefront):
    """Neither knows of the other, and the shop has named no order: both get the redemption. Another order does not."""
    for redemption in (storefront.take(stack.coupon(slots=1), "u", state="reserved").ok(201), make(stack, storefront, "issued")):
        page = storefront.step(redemption, "redeem", "return-page").ok()
        assert storefront.step(redemption, "redeem", "webhook").ok() == page
        storefront.step(redemption, "redeem", "another", order={"id": "other"}).problem("code_taken")
        assert get(storefront, redemption) == page
        stack.verify(redemption["coupon"])


def test_whom_their_own_holds_stop_is_told_which_and_goes_on(stack, storefront):
    """Two tabs: the second basket's hold is refused for the first's. The shop cancels that, and repeats the call."""
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 3})
    at = f"/coupons/{coupon}/redemptions"
    storefront.take(coupon, "u").expect(201)
    held = [storefront.take(coupon, "u", state="reserved", reserve_s=s).ok(201) for s in (900, 600)]
    holds, until = [hold["id"] for hold in held], datetime.fromisoformat(held[1]["reserved_until"]).timestamp()
    most_s = until - time.time()
    refused = storefront.take(coupon, "u", "second-tab", state="reserved", order={"id": "b"})
    problem = refused.problem("user_cap_reached")
    assert (problem["retry"], problem["held"]) == (True, holds), refused
    assert until - time.time() - 1 <= int(refused.header("Retry-After")) <= most_s + 1, refused
    [item] = storefront.post(f"{at}/batch", {"items": [{"key": "in-a-batch", "user": "u"}]}).ok()["items"]
    assert (item["status"], item["body"]["retry"], item["body"]["held"]) == (409, True, holds), item
    storefront.post(f"{at}/{holds[1]}/cancel").expect(200)
    hold = storefront.take(coupon, "u", "second-tab", state="reserved", order={"id": "b"}).ok(201)
    for rid in (holds[0], hold["id"]):
        storefront.post(f"{at}/{rid}/redeem", {}, idempotency_key=f"spend {rid}").expect(200)
    reply = storefront.take(coupon, "u")
    problem = reply.problem("user_cap_reached")
    assert problem["retry"] is False and "held" not in problem and not reply.header("Retry-After"), "all are spent"
    stack.verify(coupon)


def test_a_hold_that_makes_no_difference_is_not_named(stack, storefront):
    """Lowering the cap: what is spent reaches it alone. And a hold on an issued one gives nothing back."""
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 2})
    storefront.take(coupon, "u").expect(201)
    storefront.take(coupon, "u", state="reserved").expect(201)
    stack.patch(coupon, {"cap": {"per_user": 1}})
    assert storefront.take(coupon, "u").problem("user_cap_reached")["retry"] is False
    issued = storefront.take(coupon, "v", state="issued").ok(201)
    storefront.step(issued, "reserve").expect(201)
    assert storefront.take(coupon, "v").problem("user_cap_reached")["retry"] is False


def test_a_step_under_the_same_key_gets_its_first_answer_again(stack, storefront):
    issued = make(stack, storefront, "issued")
    first = storefront.step(issued, "reserve", "k-1", order={"id": "o"}, reserve_s=60).expect(201)
    again = storefront.step(issued, "reserve", "k-1", order={"id": "o"}, reserve_s=60).expect(201)
    assert again.body == first.body and again.header("Idempotent-Replayed") == "true", again
    assert again.header("Location") == first.header("Location")
    hold = first.json()
    spent = storefront.step(hold, "redeem", "k-2").expect(200)
    storefront.step(hold, "reverse").expect(200)
    again = storefront.step(hold, "redeem", "k-2").expect(200)
    assert again.body == spent.body and again.header("Idempotent-Replayed") == "true", "whatever became of it since"
    stack.verify(issued["coupon"])


def test_a_key_belongs_to_one_call_on_one_redemption(stack, storefront):
    coupon = stack.coupon(slots=4, cap={"total": 4, "per_user": 4})
    one, two = (storefront.take(coupon, "u", f"take-{i}", state="reserved").ok(201) for i in range(2))
    storefront.step(one, "reserve", "k").expect(200)
    storefront.step(one, "redeem", "k").problem("idempotency_key_reused")
    storefront.step(two, "reserve", "k").problem("idempotency_key_reused")
    storefront.step(one, "reserve", "k", reserve_s=5).problem("idempotency_key_reused")
    storefront.step(one, "redeem", "take-0").problem("idempotency_key_reused")
    storefront.take(coupon, "u", "k").problem("idempotency_key_reused")


@pytest.mark.parametrize("verb", ["reserve", "redeem"])
def test_the_body_of_a_step_may_be_absent_empty_or_an_empty_object(stack, storefront, verb):
    nothing = [({"Content-Type": kind}, b"") for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain", "")]
    for headers, body in (({}, None), ({}, b""), *nothing, ({}, {}), ({}, {"order": None, "reserve_s": None})):
        hold = make(stack, storefront, "reserved")
        at = f"/coupons/{hold['coupon']}/redemptions/{hold['id']}/{verb}"
        first = storefront.post(at, body, idempotency_key="k", headers=headers).expect(200)
        assert storefront.post(at, {}, idempotency_key="k").expect(200).body == first.body, "all of them are one request"


@pytest.mark.parametrize("verb", ["reserve", "redeem"])
@pytest.mark.parametrize("body, pointer", [({"user": "u"}, "/user"), ({"reserve_s": 0}, "/reserve_s"), ({"reserve_s": 86401}, "/reserve_s"),
                                           ({"order": 5}, "/order"), ({"order": {"id": ""}}, "/order/id"), ([], None)])
def test_a_bad_step_is_refused(stack, storefront, verb, body, pointer):
    hold = make(stack, storefront, "reserved")
    at = f"/coupons/{hold['coupon']}/redemptions/{hold['id']}/{verb}"
    storefront.post(at, body, idempotency_key="k").problem("bad_request", at=pointer)
    storefront.post(at, {}).problem("idempotency_key_required")
    storefront.post(at, b"{}", idempotency_key="k", headers={"Content-Type": "text/plain"}).problem("unsupported_media_type")
    assert get(storefront, hold) == hold


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("rid", ["9-1", "0-9", "x", "0-0", "L0-1-1", "L1-1-1", "0-01", "0-4294967296"])
def test_a_step_of_what_was_never_given_is_not_found(stack, storefront, verb, rid):
    coupon = stack.coupon(slots=1)
    storefront.step({"coupon": coupon, "id": rid}, verb).problem("redemption_not_found")
    storefront.step({"coupon": "never-made", "id": "0-1"}, verb).problem("coupon_not_found")


def test_what_was_issued_follows_the_coupon_s_end(stack, storefront, ops):
    """A campaign is extended: those who have it may spend it. It is cut short: for them too. The first answer is repeated as it was."""
    coupon = stack.coupon(slots=9, valid_for_s=3600, ends_at=later(600))
    end, at = ops.get(f"/coupons/{coupon}").ok()["ends_at"], f"/coupons/{coupon}/redemptions"
    first = storefront.take(coupon, f"{coupon}-u", "k", state="issued").expect(201)
    issued, held = first.json(), storefront.take(coupon, f"{coupon}-v", state="issued").ok(201)
    assert issued["valid_until"] == end

    def seen(redemption):
        """Wherever it is read."""
        user, rid = redemption["user"], redemption["id"]
        listed = {r["id"]: r for r in walk(storefront, f"{at}?state=issued")[0]}
        rows = storefront.get(f"{at}?user={user}", headers={"Accept": "text/csv"}).expect(200).rows()
        found = [get(storefront, redemption), *storefront.get(f"{at}?user={user}").ok()["items"], *rows,
                 *storefront.get(f"/coupons/{coupon}/users/{user}").ok()["redemptions"], listed[rid],
                 *storefront.get(f"/coupons/-/redemptions?user={user}").ok()["items"]]
        assert len({(r["id"], r["state"], r["valid_until"]) for r in found}) == 1, found
        return found[0]["valid_until"]

    stack.patch(coupon, {"ends_at": later(7200)})
    assert end < seen(issued) < ops.get(f"/coupons/{coupon}").ok()["ends_at"], "by valid_for_s"
    stack.patch(coupon, {"ends_at": None})
    assert storefront.post(f"{at}/{issued['id']}/redeem", {}, idempotency_key="spend").ok()["valid_until"] > end
    stack.patch(coupon, {"ends_at": later(300)})
    soon = ops.get(f"/coupons/{coupon}").ok()["ends_at"]
    assert seen(held) == soon < end
    assert get(storefront, issued)["valid_until"] > end, "as it was when it was spent"
    again = storefront.take(coupon, issued["user"], "k", state="issued").expect(201)
    assert again.body == first.body and again.header("Idempotent-Replayed") == "true"
    hold = storefront.step(held, "reserve").ok(201)
    stack.patch(coupon, {"ends_at": later(-1)})
    assert storefront.step(hold, "redeem").ok()["state"] == "redeemed", "a hold made in time"
    stack.verify(coupon)


@pytest.mark.parametrize("policy", ["exact", "none"])
def test_cutting_a_campaign_short_takes_back_what_is_issued(stack, storefront, ops, policy):
    coupon = stack.coupon(slots=200 if policy == "exact" else 0, cap={"policy": policy, "total": 200 if policy == "exact" else None})
    issued = [storefront.take(coupon, f"u-{i}", state="issued").ok(201) for i in range(5)]

    def in_wallet():
        return [i["held"] for i in walk(storefront, f"/coupons/-/users/{issued[1]['user']}")[0] if i["coupon"] == coupon]

    assert in_wallet() == [1]
    stack.patch(coupon, {"ends_at": later(1)})
    wait_until("the ledger to say so", lambda: stack.counts(coupon)["issued"] == 0)
    assert {get(storefront, r)["state"] for r in issued} == {"expired"}
    storefront.step(issued[0], "redeem").problem("reservation_expired")
    assert in_wallet() == []
    stack.patch(coupon, {"ends_at": None})
    assert get(storefront, issued[0])["state"] == "expired", "what has ended stays so"
    storefront.take(coupon, "u-0", state="issued").expect(201)
    stack.verify(coupon)


def test_who_finds_it_held_is_told_for_how_long(stack, storefront):
    issued = make(stack, storefront, "issued")
    storefront.step(issued, "reserve", order={"id": "theirs"}, reserve_s=1000).expect(201)
    for verb in ("reserve", "redeem"):
        reply = storefront.step(issued, verb, order={"id": "ours"})
        reply.problem("transaction_in_progress")
        assert 900 <= int(reply.header("Retry-After")) <= 1000, reply


def test_what_is_sold_out_because_of_holds_says_when_to_come_again(stack, storefront):
    coupon = stack.coupon(slots=1)
    hold = storefront.take(coupon, "a", state="reserved", reserve_s=1000).ok(201)
    reply = storefront.take(coupon, "b")
    assert reply.problem("sold_out")["retry"] is True
    assert 900 <= int(reply.header("Retry-After")) <= 1000, reply
    storefront.step(hold, "redeem").expect(200)
    reply = storefront.take(coupon, "b")
    assert reply.problem("sold_out")["retry"] is False and reply.header("Retry-After") is None, reply


def test_an_extension_lasts_longer_and_never_shorter(stack, storefront):
    coupon = stack.coupon(slots=1, reserve_s=100)
    hold = storefront.take(coupon, "u", state="reserved").ok(201)
    longer = storefront.step(hold, "reserve", reserve_s=200).ok()
    assert longer["id"] == hold["id"] and longer["reserved_until"] > hold["reserved_until"], longer
    assert storefront.step(hold, "reserve", reserve_s=1).ok()["reserved_until"] == longer["reserved_until"]
    far = storefront.step(hold, "reserve", key="far", reserve_s=86400).ok()
    assert datetime.fromisoformat(far["reserved_until"]) - datetime.fromisoformat(hold["at"]) == timedelta(hours=24)
    assert "24 hours" in storefront.step(hold, "reserve", reserve_s=86400).problem("invalid_transition")["detail"]
    assert storefront.step(hold, "reserve", key="far", reserve_s=86400).ok() == far
    assert get(storefront, hold) == far
    assert storefront.take(coupon, "u", state="reserved", order={"id": "o"}).status == 409


def test_an_expired_hold_is_expired_when_read_everywhere(stack, storefront):
    coupon = stack.coupon(slots=2, cap={"total": 2, "per_user": 1, "per_user_per_day": 1})
    hold = expired(storefront, storefront.take(coupon, "u", state="reserved", reserve_s=1).ok(201))
    user = storefront.get(f"/coupons/{coupon}/users/u").ok()
    assert (user["total"], user["today"], user["remaining"], user["remaining_today"]) == (0, 0, 1, 1), user
    assert [r["state"] for r in user["redemptions"]] == ["expired"]
    for query in ("state=expired", "user=u&state=expired", "state=expired&limit=1"):
        assert [r["id"] for r in walk(storefront, f"/coupons/{coupon}/redemptions?{query}")[0]] == [hold["id"]]
    assert walk(storefront, f"/coupons/{coupon}/redemptions?state=reserved")[0] == []
    wallet = {i["coupon"]: i for i in walk(storefront, "/coupons/-/users/u?limit=1000")[0]}
    assert wallet[coupon]["held"] == 0 and wallet[coupon]["remaining"] == 1, wallet[coupon]
    assert storefront.post(f"/coupons/{coupon}/check", {"user": "u"}).ok()["ok"]
    assert storefront.take(coupon, "u").ok(201)["ordinal"] == 2
    stack.verify(coupon)


def test_what_is_issued_is_valid_for_so_long(stack, storefront):
    coupon = stack.coupon(slots=1, valid_for_s=1)
    issued = storefront.take(coupon, "u", state="issued").ok(201)
    assert issued["valid_until"] and issued["valid_until"] > issued["at"], issued
    expired(storefront, issued)
    storefront.step(issued, "redeem").problem("reservation_expired")
    assert storefront.take(coupon, "v", state="issued").ok(201)["id"] == f"{issued['slot']}-2"
    stack.verify(coupon)


def test_asking_again_for_what_is_issued_gives_the_same_one(stack, storefront):
    coupon = stack.coupon(slots=3, on_user_cap="existing")
    issued = storefront.take(coupon, "u", state="issued").ok(201)
    again = storefront.take(coupon, "u", state="issued").expect(200)
    assert again.json() == issued and again.header("Location") is None, again
    storefront.take(coupon, "u").problem("user_cap_reached")
    refusing = stack.coupon(slots=3)
    storefront.take(refusing, "u", state="issued").expect(201)
    storefront.take(refusing, "u", state="issued").problem("user_cap_reached")


def test_items_of_a_batch_may_issue_and_hold(stack, storefront):
    coupon = stack.coupon(slots=3)
    items = [{"key": "a", "user": "a", "state": "issued"}, {"key": "b", "user": "b", "state": "reserved", "reserve_s": 50},
             {"key": "c", "user": "c"}, {"key": "d", "user": "d", "state": "issued", "reserve_s": 5}, {"key": "e", "user": "e", "state": "reserved"}]
    said = storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
    assert [i["status"] for i in said] == [201, 201, 201, 400, 409], said
    assert [i["body"]["state"] for i in said[:3]] == ["issued", "reserved", "redeemed"]
    assert said[1]["body"]["reserved_until"] and not said[0]["body"]["reserved_until"]
    assert said[3]["body"]["errors"][0]["pointer"] == "/items/3/reserve_s" and said[4]["body"]["code"] == "sold_out"
    counts = stack.counts(coupon)
    assert [counts[name] for name in ("slots", "free", "issued", "reserved", "redeemed", "over")] == [3, 0, 1, 1, 1, 0], counts


def test_a_hold_made_in_time_is_redeemed_after_the_end(stack, storefront):
    coupon = stack.coupon(slots=3, cap={"total": 3})
    hold = storefront.take(coupon, "a", state="reserved").ok(201)
    issued = storefront.take(coupon, "b", state="issued").ok(201)
    stack.patch(coupon, {"state": "ended"})
    storefront.step(issued, "redeem").problem("coupon_ended")
    storefront.step(issued, "reserve").problem("coupon_ended")
    assert storefront.step(hold, "redeem").ok()["state"] == "redeemed"
    assert storefront.step(issued, "cancel").ok()["state"] == "cancelled"


# ---- without slots ----

@pytest.mark.parametrize("policy", ["approximate", "none"])
def test_a_coupon_without_slots_counts_what_was_taken(stack, storefront, ops, policy):
    total = 3 if policy == "approximate" else None
    coupon = stack.coupon(cap={"policy": policy, "total": total, "per_user": 2})
    first = storefront.take(coupon, "u", order={"id": "o-1"}).ok(201)
    assert first["slot"] is None and first["code"] is None and first["after"]["left"] is None, first
    assert first["id"].startswith("L0-"), first
    issued = storefront.take(coupon, "u", state="issued").ok(201)
    storefront.take(coupon, "u").problem("user_cap_reached")
    hold = storefront.step(issued, "reserve", order={"id": "o-2"}).ok(201)
    assert hold["from"] == issued["id"] and hold["id"].startswith("L0-") and hold["id"] != issued["id"], hold
    assert storefront.step(hold, "redeem").ok()["state"] == "redeemed"
    assert get(storefront, issued)["state"] == "redeemed"
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"], counts["redeemed"], counts["over"]) == (None, None, 2, 0), counts
    storefront.take(coupon, "v").expect(201)
    if policy == "approximate":
        storefront.take(coupon, "w").problem("sold_out")
        stack.patch(coupon, {"cap": {"total": 3}})
    else:
        storefront.take(coupon, "w").expect(201)
    assert storefront.step(first, "reverse").ok()["state"] == "reversed"
    assert get(storefront, first)["state"] == "reversed"
    listed = [r["id"] for r in walk(storefront, f"/coupons/{coupon}/redemptions?limit=2")[0]]
    assert {first["id"], issued["id"], hold["id"]} <= set(listed) and len(listed) == len(set(listed)), listed
    assert ops.post(f"/coupons/{coupon}/slots", {"count": 5}).problem("bad_request")["detail"]
    assert ops.post(f"/coupons/{coupon}/slots/retire", {"count": 1}, idempotency_key="k").problem("bad_request")["detail"]
    assert ops.get(f"/coupons/{coupon}/slots").ok()["slots"]["free"] == 0
    said = storefront.post(f"/coupons/{coupon}/check", {"user": "x"}).ok()
    assert said["remaining"] == (1 if policy == "approximate" else 2), said
    stack.verify(coupon)


def test_a_slot_s_history_has_its_holds(stack, storefront, ops):
    coupon = stack.coupon(slots=1)
    issued = storefront.take(coupon, "u", state="issued").ok(201)
    storefront.step(storefront.step(issued, "reserve").ok(201), "cancel").expect(200)
    hold = storefront.step(issued, "reserve", reserve_s=500).ok(201)
    slot = ops.get(f"/coupons/{coupon}/slots/0").ok()
    assert (slot["state"], slot["user"], slot["due"], slot["generation"]) == ("reserved", "u", hold["reserved_until"], 3), slot
    assert [(h["id"], h["state"]) for h in slot["history"]] == [("0-3", "reserved"), ("0-2", "cancelled"), ("0-1", "issued")]
    storefront.step(hold, "redeem").expect(200)
    storefront.step(hold, "reverse").expect(200)
    slot = ops.get(f"/coupons/{coupon}/slots/0").ok()
    assert [(h["id"], h["state"]) for h in slot["history"]] == [("0-3", "reversed"), ("0-2", "cancelled"), ("0-1", "reversed")], slot
    assert slot["history"][2]["at"] == issued["at"] and slot["history"][0]["at"] == hold["at"], slot


EXTENSIONS_MAX = 32


def longest(client, coupon, user):
    """A hold on an issued one, extended as often as may be."""
    hold = client.step(client.take(coupon, user, state="issued").ok(201), "reserve", reserve_s=60).ok(201)
    return [hold, *(client.step(hold, "reserve", key=f"x{i}", reserve_s=100 + i).ok(200) for i in range(EXTENSIONS_MAX))]


def test_a_hold_is_extended_32_times_in_all_and_each_keeps_its_key(stack, storefront):
    """With another body a key is refused, with its own it gets its first answer, also once redeemed."""
    hold, *extended = longest(storefront, stack.coupon(slots=1), "u")
    assert [r["reserved_until"] for r in extended] == sorted({r["reserved_until"] for r in extended})
    assert storefront.step(hold, "reserve", reserve_s=3600).problem("invalid_transition")["detail"].endswith("32 times.")

    def repeat():
        for i, first in enumerate(extended):
            again = storefront.step(hold, "reserve", key=f"x{i}", reserve_s=100 + i)
            assert again.ok(200) == first and again.header("Idempotent-Replayed") == "true"
            storefront.step(hold, "reserve", key=f"x{i}", reserve_s=17).problem("idempotency_key_reused")

    repeat()
    assert get(storefront, hold)["reserved_until"] == extended[-1]["reserved_until"], "none acted again"
    storefront.step(hold, "redeem").expect(200)
    repeat()
    stack.verify(hold["coupon"])


def test_the_longest_hold_can_be_read_when_it_is_over_and_nobody_waits_for_that(stack, storefront, ops):
    coupon = stack.coupon(slots=1)
    hold, *extended = longest(storefront, coupon, "u")
    storefront.step(hold, "cancel").expect(200)
    over = {**hold, "state": "cancelled", "reserved_until": extended[-1]["reserved_until"]}
    assert get(storefront, hold) == over
    issued = storefront.take(coupon, "u", state="issued", key="again").problem("user_cap_reached")
    assert issued, "what was issued stands"
    assert storefront.step(hold, "reserve", key="x7", reserve_s=107).ok(200) == extended[7]
    assert storefront.step(hold, "redeem").problem("invalid_transition")
    history = ops.get(f"/coupons/{coupon}/slots/0").ok()["history"]
    assert [(h["id"], h["state"], h["at"]) for h in history][0] == (hold["id"], "cancelled", hold["at"]), history
    others = [stack.coupon(slots=20) for _ in range(4)]
    reads = [Call("GET", f"/coupons/{coupon}/redemptions/{hold['id']}") for _ in range(200)]
    takings = [swarm_take(other, f"u{i}", f"k{i}") for i in range(20) for other in others]
    swarm([stack.way()], [call for pair in zip(reads, takings, strict=False) for call in pair] + reads[len(takings):], connections=32)
    assert {call.reply.status for call in takings} == {201}
    assert all(call.reply.ok() == over for call in reads)
    stack.verify(coupon, *others)


def test_a_slot_s_history_goes_back_through_a_batch_that_says_several_things_of_it(stack, storefront, ops):
    def extended_more_than_once_in_the_last_batch():
        nonlocal coupon, issued, hold
        coupon = stack.coupon(slots=1)
        issued = storefront.take(coupon, "u", state="issued").ok(201)
        hold = storefront.step(issued, "reserve").ok(201)
        swarm([stack.way()], [swarm_step(coupon, hold["id"], "reserve", f"extend-{next(keys)}") for _ in range(32)], connections=32)
        last = stack.database.ledger.find_one({"_id.c": coupon}, sort=[("_id.seq", -1)])
        return len(last["e"]) > 1

    coupon = issued = hold = None
    wait_until("two extensions in one batch", extended_more_than_once_in_the_last_batch)
    storefront.step(hold, "redeem").expect(200)
    storefront.step(hold, "reverse").expect(200)
    history = ops.get(f"/coupons/{coupon}/slots/0").ok()["history"]
    assert [(h["id"], h["state"]) for h in history] == [("0-2", "reversed"), ("0-1", "reversed")], history
    assert [h["at"] for h in history] == [hold["at"], issued["at"]], history
