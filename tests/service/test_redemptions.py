"""Taking, repeating, checking, reading, listing and returning redemptions; the refusals in their order."""
import collections
import datetime
import re
import urllib.parse

import pytest

from stack import wait_until
from swarm import Call, by_code, swarm
from test_coupons import walk

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")


def later(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).isoformat()


# ---- one taking ----

def test_a_taking_is_201_with_the_whole_redemption(stack, storefront):
    coupon = stack.coupon(slots=5, cap={"total": 5, "per_user": 2})
    reply = storefront.take(coupon, "u-17", metadata={"z": 1, "a": ["ä"]}, order={"id": "o-99"}).expect(201)
    body = reply.json()
    assert reply.header("Location") == f"/coupons/{coupon}/redemptions/{body['id']}"
    assert reply.header("Idempotent-Replayed") is None
    n, g = map(int, body["id"].split("-"))
    assert 0 <= n < 5 and g == 1
    assert TIME.match(body["at"]), body
    assert isinstance(body["seq"], int)
    expected = {"id": f"{n}-{g}", "coupon": coupon, "user": "u-17", "slot": n, "lane": 0, "code": None, "state": "redeemed",
                "from": None, "ordinal": 1, "reserved_until": None, "valid_until": None, "order": "o-99", "discount_minor": 0,
                "money": [], "version": 1,
                "metadata": {"z": 1, "a": ["ä"]}, "after": {"left": 4, "day": 1, "user": 1, "user_day": 1}}
    assert {name: body.get(name, "absent") for name in expected} == expected
    assert set(body) == set(expected) | {"at", "seq"}
    assert storefront.get(f"/coupons/{coupon}/redemptions/{body['id']}").ok() == body
    second = storefront.take(coupon, "u-17").ok(201)
    assert second["after"] == {"left": 3, "day": 2, "user": 2, "user_day": 2} and second["ordinal"] == 2, second
    assert second["slot"] != n and second["order"] is None and second["metadata"] == {}, second


# ---- repeats ----

def test_the_same_key_gets_the_first_answer_again(stack, storefront):
    coupon = stack.coupon(slots=5)
    first = storefront.take(coupon, "u", "once", metadata={"a": 1}).expect(201)
    for key in ("once", '"once"'):
        again = storefront.take(coupon, "u", key, metadata={"a": 1}).expect(201)
        assert again.header("Idempotent-Replayed") == "true" and again.body == first.body, again
        assert again.header("Location") == first.header("Location"), again
    assert stack.counts(coupon)["redeemed"] == 1


def test_the_same_key_and_the_same_request_differently_written_is_a_repeat(stack, storefront):
    coupon = stack.coupon(slots=5)
    at = f"/coupons/{coupon}/redemptions"
    first = storefront.post(at, {"user": "u"}, idempotency_key="k").expect(201)
    for body in ({"state": "redeemed", "user": "u"}, {"user": "u", "metadata": {}, "order": None, "code": None, "reserve_s": None},
                 b' {"us\\u0065r" : "u"} '):
        again = storefront.post(at, body, idempotency_key="k").expect(201)
        assert again.header("Idempotent-Replayed") == "true" and again.body == first.body, again


def test_the_same_key_with_another_body_is_refused_whatever_the_coupon_became(stack, storefront):
    coupon = stack.coupon(slots=5)
    storefront.take(coupon, "u", "k").expect(201)
    for members in ({"metadata": {"a": 1}}, {"order": {"id": "o"}}, {"order": {"amount_minor": 1}}):
        storefront.take(coupon, "u", "k", **members).problem("idempotency_key_reused")
    stack.patch(coupon, {"state": "ended"})
    storefront.take(coupon, "u", "k", metadata={"a": 1}).problem("idempotency_key_reused")
    assert stack.counts(coupon)["redeemed"] == 1


def test_a_key_is_the_users_and_the_coupons_own(stack, storefront):
    one, two = stack.coupon(slots=5), stack.coupon(slots=5)
    bodies = [storefront.take(coupon, user, "shared").ok(201) for coupon in (one, two) for user in ("a", "b")]
    assert len({(b["coupon"], b["id"]) for b in bodies}) == 4


@pytest.mark.parametrize("key", [None, "", '""', "x" * 65, '"' + "x" * 65 + '"', "ä", '"unfinished', "a\tb"])
def test_a_taking_needs_a_key_of_its_form(stack, storefront, key):
    coupon = stack.coupon(slots=1)
    storefront.post(f"/coupons/{coupon}/redemptions", {"user": "u"}, idempotency_key=key).problem("idempotency_key_required")
    assert stack.counts(coupon)["taken_total"] == 0


@pytest.mark.parametrize("key", ["x", "x" * 64, "a b", "!#$%&'()*+,-./:;<=>?@[]^_`{|}~", "0", '"with space"', '"a\\"b"'])
def test_keys_of_all_printable_characters_work(stack, storefront, key):
    coupon = stack.coupon(slots=1)
    first = storefront.take(coupon, "u", key).expect(201)
    assert storefront.take(coupon, "u", key).expect(201).body == first.body


def test_the_same_order_is_a_repeat_while_its_redemption_stands(stack, storefront):
    coupon = stack.coupon(slots=5, cap={"total": 5, "per_user": 5})
    first = storefront.take(coupon, "u", order={"id": "o-1"}).ok(201)
    again = storefront.take(coupon, "u", order={"id": "o-1"}).expect(200)
    assert again.json()["id"] == first["id"], again
    assert storefront.take(coupon, "u", order={"id": "o-2"}).ok(201)["id"] != first["id"]
    assert storefront.take(coupon, "other", order={"id": "o-1"}).ok(201)["id"] != first["id"]
    storefront.post(f"/coupons/{coupon}/redemptions/{first['id']}/reverse").expect(200)
    anew = storefront.take(coupon, "u", order={"id": "o-1"}).ok(201)
    assert anew["id"] != first["id"] and anew["ordinal"] == 4, anew
    stack.verify(coupon)


# ---- the refusals, in their order ----

def test_of_several_reasons_the_first_of_the_table_is_told(stack, storefront):
    """Everything is wrong at once; then one reason after the other is taken away."""
    discount = {"kind": "amount", "amount_minor": 500, "currency": "EUR", "min_spend_minor": 2000}
    coupon = stack.coupon(slots=1, discount=discount, cap={"total": 1, "per_user": 1, "per_user_per_day": 1, "per_day": 1,
                                                           "discount_minor": 500})
    good = {"amount_minor": 2000, "currency": "EUR"}
    storefront.take(coupon, "u", "first", order=good).expect(201)

    def ask(refusal, key=None, **members):
        reply = storefront.take(coupon, "u", key, **members)
        problem = reply.problem(refusal)
        said = storefront.post(f"/coupons/{coupon}/check", {"user": "u", **members}).ok()
        if key is None:
            assert (said["ok"], said["problem"]) == (False, refusal), said
        return reply, problem

    poor = {"amount_minor": 1999, "currency": "EUR"}
    stack.patch(coupon, {"state": "paused", "ends_at": later(-60)})
    ask("idempotency_key_reused", key="first", code="C", order=poor)
    ask("coupon_not_active", code="C", order=poor)
    stack.patch(coupon, {"state": "draft"})
    ask("coupon_not_active", code="C", order=poor)
    stack.patch(coupon, {"state": "ended", "ends_at": None})
    ask("coupon_ended", code="C", order=poor)
    stack.patch(coupon, {"state": "active", "ends_at": later(-1)})
    ask("coupon_ended", code="C", order=poor)
    stack.patch(coupon, {"ends_at": None, "starts_at": later(3600)})
    reply, _ = ask("coupon_not_started", code="C", order=poor)
    stack.patch(coupon, {"starts_at": None})
    ask("code_not_found", code="C", order=poor)
    ask("order_not_eligible", order=poor)
    ask("user_cap_reached", order=good)
    stack.patch(coupon, {"cap": {"per_user": 2}})
    reply, _ = ask("user_daily_cap_reached", order=good)
    assert 0 < int(reply.header("Retry-After")) <= 86400, reply
    stack.patch(coupon, {"cap": {"per_user_per_day": None}})
    reply, _ = ask("daily_cap_reached", order=good)
    assert 0 < int(reply.header("Retry-After")) <= 86400, reply
    stack.patch(coupon, {"cap": {"per_day": None}})
    ask("budget_reached", order=good)
    stack.patch(coupon, {"cap": {"discount_minor": None}})
    _, problem = ask("sold_out", order=good)
    assert problem["retry"] is False, "everything was generated, and nothing is held"
    stack.patch(coupon, {"cap": {"total": 2}})
    _, problem = ask("sold_out", order=good)
    assert problem["retry"] is True, "one more slot may be generated"
    stack.generate(coupon, 1)
    storefront.take(coupon, "u", order=good).expect(201)
    stack.verify(coupon)


def test_a_coupon_without_slots_is_sold_out_and_says_why(stack, storefront):
    coupon = stack.coupon(slots=0, cap={"total": 5})
    problem = storefront.take(coupon, "u").problem("sold_out")
    assert problem["retry"] is True and "generated" in problem["detail"], problem


def test_a_coupon_that_nobody_made_is_not_found(storefront):
    storefront.take("never-made", "u").problem("coupon_not_found")
    storefront.post("/coupons/never-made/check", {"user": "u"}).problem("coupon_not_found")
    storefront.post("/coupons/never-made/redemptions/batch", {"items": [{"key": "k", "user": "u"}]}).problem("coupon_not_found")
    storefront.get("/coupons/never-made/redemptions/1-1").problem("coupon_not_found")
    storefront.get("/coupons/never-made/users/u").problem("coupon_not_found")


def test_a_thousand_redemptions_of_one_user_are_kept_and_no_more(stack, storefront):
    coupon = stack.coupon(slots=1100, cap={"total": 1100, "per_user": 1000})
    items = [{"key": f"k-{i}", "user": "u"} for i in range(1000)]
    replies = storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
    assert {item["status"] for item in replies} == {201}
    rid = replies[0]["body"]["id"]
    storefront.post(f"/coupons/{coupon}/redemptions/{rid}/reverse").expect(200)
    storefront.take(coupon, "u").problem("too_many_attempts")
    assert storefront.take(coupon, "u", "k-0").expect(201).header("Idempotent-Replayed") == "true"
    storefront.take(coupon, "v").expect(201)
    stack.verify(coupon)


# ---- batches ----

def test_a_batch_answers_each_item_in_order_and_on_its_own(stack, storefront):
    coupon = stack.coupon(slots=3)
    earlier = storefront.take(coupon, "a", "a-1").expect(201)
    items = [{"key": "a-1", "user": "a"}, {"key": "b-1", "user": "b"}, {"key": "b-1", "user": "b"}, {"key": "b-2", "user": "b"},
             {"key": "b-1", "user": "b", "metadata": {"x": 1}}, {"key": "x"}, {"key": "x", "user": ""}, {"user": "c"},
             {"key": "", "user": "c"}, 5, {"key": "c-1", "user": "c", "colour": "red"}, {"key": "c-1", "user": "c"},
             {"key": "d-1", "user": "d"}]
    reply = storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()
    seen = [(i["status"], i["replayed"], i["body"].get("code") if i["status"] > 299 else None) for i in reply["items"]]
    assert seen == [(201, True, None), (201, False, None), (201, True, None), (409, False, "user_cap_reached"),
                    (422, False, "idempotency_key_reused"), (400, False, "bad_request"), (400, False, "bad_request"),
                    (400, False, "bad_request"), (400, False, "bad_request"), (400, False, "bad_request"),
                    (400, False, "bad_request"), (201, False, None), (409, False, "sold_out")]
    bodies = [i["body"] for i in reply["items"]]
    assert bodies[0] == earlier.json() and bodies[1] == bodies[2]
    assert [e["pointer"] for e in bodies[5]["errors"]] == ["/items/5/user"], bodies[5]
    assert bodies[10]["errors"][0]["pointer"] == "/items/10/colour", bodies[10]
    for body in (b for b, i in zip(bodies, reply["items"]) if i["status"] > 299):
        assert body["type"] == f"/coupons/-/problems/{body['code']}" and body["title"], body
    stack.verify(coupon)


def test_a_batch_of_a_thousand_is_taken_and_one_more_is_not(stack, storefront):
    coupon = stack.coupon(slots=1500)
    at = f"/coupons/{coupon}/redemptions/batch"
    items = [{"key": "k", "user": f"u-{i}"} for i in range(1001)]
    storefront.post(at, {"items": items}).problem("bad_request", at="/items")
    storefront.post(at, {"items": []}).problem("bad_request", at="/items")
    storefront.post(at, {}).problem("bad_request", at="/items")
    storefront.post(at, {"items": {}}).problem("bad_request", at="/items")
    assert stack.counts(coupon)["taken_total"] == 0
    replies = storefront.post(at, {"items": items[:1000]}).ok()["items"]
    assert len({i["body"]["id"] for i in replies}) == 1000 and {i["status"] for i in replies} == {201}
    assert [i["body"]["user"] for i in replies] == [i["user"] for i in items[:1000]]
    assert sorted(i["body"]["ordinal"] for i in replies) == list(range(1, 1001))


def test_a_batch_that_is_larger_than_the_queue_is_taken_whole(beside):
    stack = beside("[worker]\nqueue_max = 400\n")
    coupon = stack.coupon(slots=1000)
    items = [{"key": "k", "user": f"u-{i}"} for i in range(1000)]
    replies = stack.client("storefront").post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
    assert {i["status"] for i in replies} == {201}, collections.Counter(i["status"] for i in replies)


# ---- check ----

def test_a_check_is_a_hint_that_changes_nothing(stack, storefront):
    coupon = stack.coupon(slots=5, cap={"total": 5, "per_user": 3, "per_user_per_day": 2, "per_day": 4},
                          discount={"kind": "amount", "amount_minor": 300, "currency": "EUR"})
    said = storefront.post(f"/coupons/{coupon}/check", {"user": "u"}).ok()
    assert said == {"ok": True, "problem": None, "discount_minor": 300, "remaining": 3, "remaining_today": 2}
    seq = stack.counts(coupon)["seq"]
    storefront.take(coupon, "u").expect(201)
    said = storefront.post(f"/coupons/{coupon}/check", {"user": "u"}).ok()
    assert (said["remaining"], said["remaining_today"]) == (2, 1)
    storefront.take(coupon, "u").expect(201)
    said = storefront.post(f"/coupons/{coupon}/check", {"user": "u"}).ok()
    assert (said["ok"], said["problem"], said["remaining"], said["remaining_today"]) == (False, "user_daily_cap_reached", 1, 0)
    assert stack.counts(coupon)["seq"] == seq + 2


# ---- reverse ----

def test_a_reverse_gives_everything_back_and_the_ledger_keeps_both(stack, storefront, reporting):
    coupon = stack.coupon(slots=1, cap={"total": 1, "per_user": 1, "per_day": 1, "per_user_per_day": 1})
    first = storefront.take(coupon, "u", "k-1").ok(201)
    at = f"/coupons/{coupon}/redemptions/{first['id']}"
    reply = storefront.post(f"{at}/reverse").ok()
    assert reply["state"] == "reversed" and reply["id"] == first["id"], reply
    assert storefront.get(at).ok()["state"] == "reversed"
    assert storefront.post(f"{at}/reverse").ok() == reply, "a second reverse is a repeat"
    counts = stack.counts(coupon)
    assert (counts["free"], counts["redeemed"], counts["today"]) == (1, 0, 0), counts
    user = storefront.get(f"/coupons/{coupon}/users/u").ok()
    assert (user["total"], user["today"]) == (0, 0), user
    again = storefront.take(coupon, "u", "k-2").ok(201)
    assert again["id"] == f"{first['slot']}-2" and again["ordinal"] == 2 and again["after"]["day"] == 1, again
    assert storefront.get(at).ok()["state"] == "reversed", "the old id stays what it became"
    assert storefront.post(f"{at}/reverse").ok()["state"] == "reversed", "and cannot touch the next holder"
    assert storefront.get(f"/coupons/{coupon}/redemptions/{again['id']}").ok()["state"] == "redeemed"
    replay = storefront.take(coupon, "u", "k-1").expect(201)
    assert replay.header("Idempotent-Replayed") == "true" and replay.json() == first, "the first answer as first given"
    kinds = [e["kind"] for line in reporting.get(f"/coupons/{coupon}/ledger").lines() for e in line["entries"]]
    assert kinds.count("redeem") == 2 and kinds.count("reverse") == 1, kinds
    stack.verify(coupon)


@pytest.mark.parametrize("rid", ["0-1", "1-1", "99-1", "0-2", "0-0", "00-1", "-1-1", "x", "0", "0-", "0-1-1", "L0-1-1",
                                 "99999999999999999999-1", "0-99999999999999999999", "%00", "0%2D1x", "%C3%28"])
def test_an_id_that_was_never_given_is_not_found(stack, storefront, rid):
    coupon = stack.coupon(slots=2)
    for reply in (storefront.get(f"/coupons/{coupon}/redemptions/{rid}"),
                  storefront.post(f"/coupons/{coupon}/redemptions/{rid}/reverse")):
        assert reply.code() in ("redemption_not_found", "bad_request", "not_found"), reply
        if rid.isascii() and "%" not in rid:
            reply.problem("redemption_not_found")


# ---- lists ----

def test_redemptions_are_listed_newest_first_and_by_user_order_state_and_time(stack, storefront):
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 9})
    at = f"/coupons/{coupon}/redemptions"
    made = [storefront.take(coupon, user, order={"id": f"o-{i}"}).ok(201) for i, user in enumerate(["a", "b", "a", "ü/ö", "a"])]
    reversed_one = storefront.post(f"{at}/{made[2]['id']}/reverse").ok()

    def ids(query):
        return [r["id"] for r in walk(storefront, f"{at}?{query}")[0]]

    everything = [r["id"] for r in made[::-1]]
    for limit in (1, 2, 100):
        assert ids(f"limit={limit}") == everything
    assert ids("user=a") == [made[4]["id"], made[2]["id"], made[0]["id"]]
    assert ids("user=" + urllib.parse.quote("ü/ö", safe="")) == [made[3]["id"]]
    assert ids("user=a&order=o-4") == [made[4]["id"]]
    assert ids("user=b&order=o-4") == []
    assert ids("state=reversed") == [made[2]["id"]]
    assert ids("state=redeemed") == [i for i in everything if i != made[2]["id"]]
    assert ids("user=nobody") == []
    first, last = made[1]["at"], made[4]["at"]
    ranged = [r["id"] for r in made if first <= r["at"] < last][::-1]
    assert ids(f"from={first}&to={last}") == ranged, "from included, to excluded"
    listed = {r["id"]: r for r in walk(storefront, f"{at}?limit=2")[0]}
    assert listed[made[0]["id"]] == made[0] and listed[made[2]["id"]] == reversed_one
    storefront.get(f"{at}?order=o-1").problem("bad_request")
    storefront.get(f"{at}?state=gone").problem("bad_request")
    storefront.get(f"{at}?from=yesterday").problem("bad_request")
    storefront.get(f"{at}?limit=5000").problem("bad_request")
    storefront.get(f"{at}?cursor=x").problem("bad_cursor")


# ---- users ----

@pytest.mark.parametrize("user", ["plain", "a/b", "/", "..", ".", "ü-ñ-漢", "\U0001f600", "a%2Fb", "100%", "a b", "a+b", "?x=1", "#",
                                  "'\"\\", "x" * 128, "ä" * 64, "$ne", "a.b", "-"])
def test_any_user_name_can_take_and_be_asked_for(stack, storefront, user):
    coupon = stack.coupon(slots=2)
    quoted = urllib.parse.quote(user, safe="")
    body = storefront.take(coupon, user).ok(201)
    assert body["user"] == user
    said = storefront.get(f"/coupons/{coupon}/users/{quoted}").ok()
    assert (said["user"], said["total"]) == (user, 1), said
    assert [r["id"] for r in said["redemptions"]] == [body["id"]]
    wallet = storefront.get(f"/coupons/-/users/{quoted}").ok()
    assert coupon in [i["coupon"] for i in wallet["items"]], wallet
    assert [r["user"] for r in storefront.get(f"/coupons/{coupon}/redemptions?user={quoted}").ok()["items"]] == [user]


def test_a_user_is_told_what_they_took_and_what_is_left(stack, storefront):
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 4, "per_user_per_day": 3})
    at = f"/coupons/{coupon}/users/u"
    fresh = storefront.get(at).ok()
    assert fresh == {"user": "u", "total": 0, "today": 0, "remaining": 4, "remaining_today": 3, "redemptions": []}
    made = [storefront.take(coupon, "u").ok(201) for _ in range(2)]
    reply = storefront.get(at).expect(200)
    said = reply.json()
    assert (said["total"], said["today"], said["remaining"], said["remaining_today"]) == (2, 2, 2, 1), said
    assert sorted(r["id"] for r in said["redemptions"]) == sorted(r["id"] for r in made)
    tag = reply.header("ETag")
    assert storefront.get(at, headers={"If-None-Match": tag}).expect(304).header("ETag") == tag
    storefront.post(f"/coupons/{coupon}/redemptions/{made[0]['id']}/reverse").expect(200)
    changed = storefront.get(at, headers={"If-None-Match": tag}).expect(200)
    assert changed.header("ETag") != tag
    said = changed.json()
    assert (said["total"], said["today"], said["remaining"], said["remaining_today"]) == (1, 1, 3, 2), said
    states = {r["id"]: r["state"] for r in said["redemptions"]}
    assert states == {made[0]["id"]: "reversed", made[1]["id"]: "redeemed"}


def test_what_remains_for_a_user_is_told_anew_when_the_caps_change(stack, storefront):
    """The user did nothing, and the answer is another one all the same."""
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 4})
    at = f"/coupons/{coupon}/users/u"
    storefront.take(coupon, "u").expect(201)
    tag = storefront.get(at).expect(200).header("ETag")
    storefront.get(at, headers={"If-None-Match": tag}).expect(304)
    stack.patch(coupon, {"cap": {"per_user": 2}})
    changed = storefront.get(at, headers={"If-None-Match": tag}).expect(200)
    assert changed.json()["remaining"] == 1 and changed.header("ETag") == tag, changed


# ---- a taking that is bound to what was read ----

def tag(redemption):
    """Of a user whose last batch took it: its number in the lane."""
    return f'"{redemption["seq"]}"'


def tag_of(client, coupon, user="u"):
    return client.get(f"/coupons/{coupon}/users/{user}").expect(200).header("ETag")


def take_if(client, coupon, match, key, user="u", **members):
    return client.post(f"/coupons/{coupon}/redemptions", {"user": user, **members}, idempotency_key=key, headers={"If-Match": match})


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_taking_may_be_bound_to_what_was_read(stack, storefront, lanes):
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 9}, lanes=lanes)
    assert tag_of(storefront, coupon) == '"0"', "of a user who has nothing yet"
    first = take_if(storefront, coupon, '"0"', "k1").ok(201)
    assert tag_of(storefront, coupon) == tag(first)
    take_if(storefront, coupon, '"0"', "k2").problem("version_changed")
    assert take_if(storefront, coupon, '"0"', "k1").expect(201).json() == first, "a repeat has its first answer, whatever the tag"
    assert tag_of(storefront, coupon) == tag(first), "neither of them took anything"
    second = take_if(storefront, coupon, f'"70", {tag(first)}', "k2").ok(201)
    seq = second["seq"]
    for match in (f'W/"{seq}"', f'"0{seq}"', str(seq), f'"{seq}x"', '""', "nonsense", '"99999999999999999999"', tag(first)):
        take_if(storefront, coupon, match, "k3").problem("version_changed")
    third = take_if(storefront, coupon, "*", "k3").ok(201)
    take_if(storefront, coupon, '"0"', "k4", user="other").expect(201)
    assert tag_of(storefront, coupon) == tag(third), "others change nothing for this one"
    storefront.post(f"/coupons/{coupon}/redemptions/{first['id']}/reverse").expect(200)
    assert int(tag_of(storefront, coupon).strip('"')) > third["seq"]
    take_if(storefront, coupon, tag(third), "k5").problem("version_changed")
    stack.verify(coupon)


def test_a_changed_use_is_told_before_every_refusal_and_after_a_repeat(stack, storefront):
    coupon = stack.coupon(slots=1, cap={"total": 1, "per_user": 1})
    order = {"id": "o"}
    first = storefront.take(coupon, "u", "k", order=order).ok(201)
    take_if(storefront, coupon, '"0"', "other").problem("version_changed")
    take_if(storefront, coupon, tag(first), "other").problem("user_cap_reached")
    take_if(storefront, coupon, '"0"', "k", state="issued").problem("idempotency_key_reused")
    assert take_if(storefront, coupon, '"0"', "other", order=order).ok(200)["id"] == first["id"], "the same order is a repeat too"
    stack.patch(coupon, {"state": "paused"})
    take_if(storefront, coupon, '"0"', "other").problem("version_changed")
    take_if(storefront, coupon, tag(first), "other").problem("coupon_not_active")


def test_of_many_devices_that_read_the_same_one_takes(stack, storefront):
    """In one batch, or in several, at all workers: each round the tag of before lets one through."""
    coupon = stack.coupon(slots=300, cap={"total": 300, "per_user": 300})
    last = '"0"'
    for number in range(8):
        assert tag_of(storefront, coupon) == last
        calls = swarm(stack.ways(), [Call("POST", f"/coupons/{coupon}/redemptions", {"user": "u"}, f"k-{number}-{i}", headers={"If-Match": last})
                                     for i in range(32)])
        assert by_code(calls) == {"201": 1, "version_changed": 31}, by_code(calls)
        [last] = [tag(call.reply.json()) for call in calls if call.reply.status == 201]


def test_a_hold_that_ran_out_is_no_change_by_itself(stack, storefront):
    """Whoever reads that it is over, with its tag, may take with that tag at once, unless the ledger has it by then."""
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 9})
    at = f"/coupons/{coupon}/users/u"
    held = storefront.take(coupon, "u", state="reserved", reserve_s=1).ok(201)
    ended = f'"{held["seq"] + 1}"'
    wait_until("the hold's end", lambda: storefront.get(at).ok()["redemptions"][0]["state"] == "expired")
    reply = storefront.get(at).expect(200)
    assert reply.header("ETag") in (tag(held), ended), "it always has a tag"
    taken = take_if(storefront, coupon, reply.header("ETag"), "k")
    if taken.status == 412:  # its end went into the ledger in between
        assert tag_of(storefront, coupon) == ended
        taken = take_if(storefront, coupon, ended, "k")
    assert taken.ok(201)["after"]["user"] == 1


@pytest.mark.full
def test_a_wallet_holds_what_was_taken_and_what_may_still_be(stack, storefront):
    user = "wallet-user"
    held, spent, open_ = stack.coupon(slots=5, cap={"total": 5, "per_user": 2}), stack.coupon(slots=5), stack.coupon(slots=5)
    draft = stack.coupon(slots=5, state="draft")
    storefront.take(held, user).expect(201)
    storefront.take(spent, user).expect(201)
    stack.patch(spent, {"state": "ended"})

    def wallet():
        return walk(storefront, f"/coupons/-/users/{user}?limit=1000")[0]

    wait_until("both", lambda: {held, spent} <= {item["coupon"] for item in wallet() if item["held"]} and
               open_ in {item["coupon"] for item in wallet()})
    items = {}
    for item in wallet():
        assert set(item) == {"coupon", "held", "remaining", "remaining_today"}, item
        assert item["coupon"] not in items, f"{item['coupon']} stands twice"
        items[item["coupon"]] = item
    assert (items[held]["remaining"], items[open_]["remaining"]) == (1, 1)
    assert items[held]["held"] and items[spent]["held"] and not items[open_]["held"], items
    assert draft not in items
