"""Much that ends at once: whoever asks after its time gets it, however much it is, and however long nobody has tidied up."""
import pytest

from crowd import take_all, users
from stack import wait_until
from swarm import by_code, step, swarm
from test_life import until_over

SPARSE = 100  # holds in as many buckets of a lane: more than are looked at in one batch


def held(client, coupon, items, reserve_s):
    return take_all(client, coupon, [{"state": "reserved", "reserve_s": reserve_s, **item} for item in items])


def held_far_apart(stack, client, coupon, lanes=1):
    """All slots are taken, but one of each bucket, and these are held: once all holds have come to their end."""
    taken = take_all(client, coupon, users("first", lanes * SPARSE * 64))
    back = [step(coupon, t["id"], "reverse") for t in taken if t["slot"] % 64 == 0]
    assert by_code(swarm([stack.way()], back)) == {"200": len(back)}
    holds = held(client, coupon, users("holder", len(back)), 2)
    assert len({h["slot"] // 64 for h in holds}) > lanes * 80
    until_over(*holds)
    return holds


def test_what_was_held_without_slots_is_free_for_all_who_ask_next(stack, storefront):
    coupon = stack.coupon(cap={"policy": "approximate", "total": 300})
    until_over(*held(storefront, coupon, users("holder", 300), 3))
    take_all(storefront, coupon, users("next", 300))
    storefront.take(coupon, "late").problem("sold_out")
    stack.verify(coupon)


@pytest.mark.parametrize("lanes", [1, 2])
def test_what_was_held_in_many_buckets_is_free_for_all_who_ask_next(stack, storefront, lanes):
    coupon = stack.coupon(slots=lanes * SPARSE * 64, lanes=lanes)
    holds = held_far_apart(stack, storefront, coupon, lanes)
    take_all(storefront, coupon, users("next", len(holds)))
    storefront.take(coupon, "late").problem("sold_out")
    stack.verify(coupon)


def test_what_was_held_in_many_buckets_can_be_taken_by_its_code(stack, storefront):
    coupon = stack.coupon(slots=SPARSE * 64, codes={"source": "generated"})
    holds = held_far_apart(stack, storefront, coupon)
    take_all(storefront, coupon, [{"user": f"next-{i}", "code": h["code"]} for i, h in enumerate(holds)])
    stack.verify(coupon)


def test_what_was_held_in_many_buckets_is_free_though_no_view_says_that_it_was_held(stack, storefront):
    coupon = stack.coupon(slots=SPARSE * 64)
    database = stack.database
    taken = take_all(storefront, coupon, users("first", SPARSE * 64))
    swarm([stack.way()], [step(coupon, t["id"], "reverse") for t in taken if t["slot"] % 64 == 0])
    stack.client("ops").get(f"/coupons/{coupon}/slots").expect(200)  # so all views are written
    database.command("collMod", "buckets", validator={"_id.c": {"$ne": coupon}})
    try:
        until_over(*held(storefront, coupon, users("holder", SPARSE), 2))
        take_all(storefront, coupon, users("next", SPARSE))
    finally:
        database.command("collMod", "buckets", validator={})
    stack.verify(coupon)


@pytest.mark.full
def test_what_has_ended_is_no_batch_that_the_database_refuses(another_stack):
    """More than the 16 MiB of a document, if one batch had all of it."""
    stack = another_stack()
    coupon = stack.coupon(cap={"policy": "approximate", "total": 64_000, "per_user": 1000})
    for number in range(64):
        held(stack.client("storefront"), coupon, [{"user": f"{number:0120}", "key": f"k-{i}"} for i in range(1000)], 3600)
    stack.stop()
    stack.environment["COUPONS_CLOCK_OFFSET_S"] = "3700"
    stack.start()
    stack.client("storefront").take(coupon, "next").expect(201)
    wait_until("all holds to be over", lambda: stack.counts(coupon)["reserved"] == 0)
    assert "store.append_refused" not in stack.log()
    stack.verify()
