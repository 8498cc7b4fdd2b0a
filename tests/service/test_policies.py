"""Coupons without slots (approximate, none): ids, counts, caps that stay exact, holds, returns; with one lane, so nothing is over."""
import collections
import random
import re
import time

import pytest

import ledger
from effort import in_full
from stack import wait_until
from swarm import by_code, kill_under_load, step, swarm, take, taken
from test_life import Crowd, as_the_ledger_says, doors, ends_in_ledger, monotonic_of, racing, seen_by_all, until_over

LIFE = re.compile(r"(redeem|((issue|reserve|hold)( extend)*( spend)?))( reverse)?|(issue|reserve|hold)( extend)* (cancel|expire)")
POLICIES = ["approximate", "none"]
SLACK_S = 0.05  # between the service's clock and this one


def slotless(stack, policy, total=1000, **cap):
    return stack.coupon(cap={"policy": policy, "total": total if policy == "approximate" else None, **cap})


def check_lives(stack, coupon):
    """The chain, ordinals, each redemption's life, the counts, and what is stored. Returns the ledger."""
    ledger.check_chain(ledger.read(stack, coupon))
    counts, said = stack.counts(coupon), ledger.LaneLedger(stack, coupon)
    said.check_ordinals()
    ends = collections.Counter()
    for redemption, entries in said.lives.items():
        kinds = said.kinds(redemption)
        assert re.fullmatch(r"L0-[1-9]\d*-[1-9]\d*", redemption), redemption
        assert LIFE.fullmatch(" ".join(kinds)), f"{redemption}: {kinds}"
        due = [e["reserved_until"] for e in entries if "reserved_until" in e]
        for entry in entries:
            if entry["kind"] in ("spend", "expire") and due:
                assert (entry["at"] < due[-1]) == (entry["kind"] == "spend"), f"due {due[-1]}: {entry}"
        ends[kinds[-1] if kinds[-1] != "extend" else kinds[0]] += 1
    if counts["seq"] == said.batches[-1]["seq"]:
        assert counts["redeemed"] == ends["redeem"] + ends["spend"], (counts, ends)
        assert counts["reserved"] == ends["reserve"] + ends["hold"], (counts, ends)
    assert counts["slots"] is None and counts["free"] is None and counts["over"] == 0, counts
    stack.verify(coupon)
    return said


@pytest.mark.parametrize("policy", POLICIES)
def test_a_redemption_without_a_slot_has_an_id_of_its_batch(stack, storefront, policy):
    coupon = slotless(stack, policy, total=5, per_user=3)
    bodies = [storefront.take(coupon, "u", state=state).ok(201) for state in ("issued", "reserved", "redeemed")]
    for ordinal, body in enumerate(bodies, 1):
        assert re.fullmatch(rf"L0-{body['seq']}-[1-9]\d*", body["id"]), body
        assert (body["slot"], body["lane"], body["code"], body["ordinal"]) == (None, 0, None, ordinal), body
        assert body["after"] == {"left": None, "day": ordinal, "user": ordinal, "user_day": ordinal}, body
        assert seen_by_all(stack, coupon, body["id"])["state"] == ["issued", "reserved", "redeemed"][ordinal - 1]
    counts = stack.counts(coupon)
    said = {name: counts[name] for name in ("slots", "free", "issued", "reserved", "redeemed", "over", "taken_total", "today")}
    assert said == {"slots": None, "free": None, "issued": 1, "reserved": 1, "redeemed": 1, "over": 0, "taken_total": 3, "today": 3}, counts
    storefront.take(coupon, "u").problem("user_cap_reached")
    storefront.take(coupon, "v", code="ANY-CODE").problem("code_not_found")
    for wrong in ("L0-99999-1", "L1-1-1", "L0-0-1", "L0-1-0", "L0-01-1", f"{bodies[0]['seq']}-1", bodies[0]["id"] + "0", "L0--1-1"):
        storefront.get(f"/coupons/{coupon}/redemptions/{wrong}").problem("redemption_not_found")
    check_lives(stack, coupon)


def test_the_total_of_one_lane_is_exact_under_a_race_and_comes_back(stack):
    coupon = slotless(stack, "approximate", total=500)
    calls = swarm(stack.ways(), [take(coupon, f"u-{i}", f"k-{i}") for i in range(2000)], connections=128)
    assert by_code(calls) == {"201": 500, "sold_out": 1500}
    ids = [b["id"] for b in taken(calls)]
    assert len(set(ids)) == 500, "an id was given twice"
    back = swarm(stack.ways(), [step(coupon, i, "reverse") for i in ids[:100]], connections=16)
    assert by_code(back) == {"200": 100}
    calls = swarm(stack.ways(), [take(coupon, f"v-{i}", f"k-{i}") for i in range(300)], connections=64)
    assert by_code(calls) == {"201": 100, "sold_out": 200}
    said = check_lives(stack, coupon)
    assert len(said.taken) == 600


def test_without_a_policy_nobody_is_told_sold_out(stack):
    coupon = slotless(stack, "none")
    calls = swarm(stack.ways(), [take(coupon, f"u-{i}", f"k-{i}") for i in range(3000)], connections=128)
    assert by_code(calls) == {"201": 3000}
    assert stack.counts(coupon)["redeemed"] == 3000
    check_lives(stack, coupon)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cap, users, wins, refusal", [
    ({"per_user": 3}, 10, 30, "user_cap_reached"), ({"per_user": 50, "per_user_per_day": 2}, 10, 20, "user_daily_cap_reached"),
    ({"per_day": 37}, 400, 37, "daily_cap_reached")], ids=["per_user", "per_user_per_day", "per_day"])
def test_the_other_caps_are_exact_without_slots(stack, policy, cap, users, wins, refusal):
    coupon = slotless(stack, policy, **cap)
    calls = swarm(stack.ways(), [take(coupon, f"u-{i % users}", f"k-{i}") for i in range(400)], connections=64)
    assert by_code(calls) == {"201": wins, refusal: 400 - wins}
    assert max(collections.Counter(b["user"] for b in taken(calls)).values()) <= cap.get("per_user_per_day", cap.get("per_user", 1))
    check_lives(stack, coupon)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_key_and_one_order_have_one_redemption(stack, policy):
    coupon = slotless(stack, policy, per_user=100)
    for number in range(5):
        calls = swarm(stack.ways(), [take(coupon, "u", f"key-{number}") for _ in range(64)])
        assert by_code(calls) == {"201": 1, "201 replayed": 63} and len({c.reply.body for c in calls}) == 1
        calls = swarm(stack.ways(), [take(coupon, "u", f"k-{number}-{i}", order={"id": f"o-{number}"}) for i in range(64)])
        assert by_code(calls) == {"201": 1, "200": 63} and len({b["id"] for b in taken(calls)}) == 1
    assert stack.counts(coupon)["redeemed"] == 10
    check_lives(stack, coupon)


@pytest.mark.parametrize("policy", POLICIES)
def test_holds_without_slots_are_fenced_and_fall_back_to_issued(stack, storefront, policy):
    coupon = slotless(stack, policy, total=3)
    at = f"/coupons/{coupon}/redemptions"
    issued = storefront.take(coupon, "u", state="issued").ok(201)
    for number in range(20):
        calls = racing(stack, [step(coupon, issued["id"], "reserve", f"k-{number}-{d}", order={"id": f"{number}-{d}"}) for d in "ab"], number)
        assert by_code(calls) == {"201": 1, "transaction_in_progress": 1}, [str(c.reply) for c in calls]
        [hold] = [b for b in taken(calls)]
        assert hold["from"] == issued["id"] != hold["id"] and hold["ordinal"] == 1, hold
        assert storefront.post(f"{at}/{hold['id']}/cancel").ok()["state"] == "cancelled"
        assert seen_by_all(stack, coupon, issued["id"])["state"] == "issued"
    hold = storefront.post(f"{at}/{issued['id']}/reserve", {"reserve_s": 1}, idempotency_key="short").ok(201)
    free = storefront.take(coupon, "v", state="reserved", reserve_s=1).ok(201)
    until_over(free)
    for door in doors(stack):
        for late in (hold, free):
            door.post(f"{at}/{late['id']}/redeem", {}, idempotency_key="late").problem("reservation_expired")
    spent = storefront.post(f"{at}/{issued['id']}/redeem", {}, idempotency_key="r").ok(200)
    assert (spent["id"], spent["state"]) == (issued["id"], "redeemed")
    assert storefront.post(f"{at}/{issued['id']}/reverse").ok()["state"] == "reversed"
    storefront.take(coupon, "v").expect(201)
    storefront.take(coupon, "u").expect(201)
    check_lives(stack, coupon)


@pytest.mark.heavy
@pytest.mark.parametrize("policy", POLICIES)
def test_the_sweeper_ends_holds_that_have_no_slot(stack, policy):
    coupon = slotless(stack, policy)
    calls = swarm(stack.ways(), [take(coupon, f"u-{i}", "k", state="reserved", reserve_s=1) for i in range(200)], connections=32)
    assert by_code(calls) == {"201": 200}
    wait_until("the expiries in the ledger", lambda: ends_in_ledger(stack, coupon) == 200, every=0.1)
    counts = stack.counts(coupon)
    assert (counts["reserved"], counts["taken_total"], counts["today"]) == (0, 0, 0), counts
    check_lives(stack, coupon)


@pytest.mark.heavy
@pytest.mark.parametrize("policy", ["approximate", in_full("none")])
def test_workers_are_killed_while_coupons_without_slots_are_taken_and_returned(stack, policy):
    coupon = slotless(stack, policy, total=300, per_user=30)
    chance = random.Random(5)
    with Crowd(stack, coupon, 40, 23).swarm as crowd:
        kill_under_load(stack, crowd, 6, lambda: chance.randrange(100, 300))
    calls = crowd.done
    print(f"{len(calls)} calls: {by_code(calls)}")
    said = check_lives(stack, coupon)
    as_the_ledger_says(said, calls)
    held = collections.Counter()
    for entry in said.entries():
        if "ordinal" in entry:
            held[entry["alias"]] += 1
            assert held[entry["alias"]] <= 30 and sum(held.values()) <= (300 if policy == "approximate" else 10**9), entry
        elif entry["kind"] in ("cancel", "expire", "reverse") and (not entry.get("from") or entry["kind"] == "reverse"):
            held[entry["alias"]] -= 1


def next_in_line(door, coupon, user, end):
    """Who asks again and again, and is refused by nobody who was asked after the end of the hold in the way."""
    while True:
        asked = time.monotonic()
        reply = door.take(coupon, user, "k")
        if reply.status == 201:
            return reply.json()
        reply.problem("sold_out")
        assert asked < end + SLACK_S, f"asked {asked - end:.3f} s after the hold's end\n{reply}"
        time.sleep(0.005)


@pytest.mark.parametrize("policy", ["exact", "approximate"])
def test_each_of_one_user_s_holds_ends_at_its_own_second(stack, policy):
    coupon = stack.coupon(slots=3) if policy == "exact" else slotless(stack, policy, total=3)
    stack.patch(coupon, {"cap": {"per_user": 3}})
    door = stack.direct(0)
    holds = [door.take(coupon, "holder", state="reserved", reserve_s=s).ok(201) for s in (3, 1, 2)]
    for number, hold in enumerate(sorted(holds, key=lambda h: h["reserved_until"])):
        won = next_in_line(door, coupon, f"next-{number}", monotonic_of(hold["reserved_until"]))
        assert won["at"] >= hold["reserved_until"], (won, hold)
        total = door.get(f"/coupons/{coupon}/users/holder").ok()["total"]
        standing = sum(monotonic_of(h["reserved_until"]) > time.monotonic() + SLACK_S for h in holds)
        assert standing <= total <= 2 - number, (standing, total, number)
    assert stack.counts(coupon)["taken_total"] == 3
