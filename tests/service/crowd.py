"""Many who take one coupon, by batches."""
import collections

BATCH = 1000


def take_all(client, coupon, items, batch=BATCH):
    """One taking each, up to so many in one call; their bodies."""
    got = []
    for first in range(0, len(items), batch):
        some = [{"key": "k", **item} for item in items[first:first + batch]]
        said = client.post(f"/coupons/{coupon}/redemptions/batch", {"items": some}).ok()["items"]
        assert {i["status"] for i in said} == {201}, collections.Counter(i["body"].get("code", i["status"]) for i in said)
        got += [i["body"] for i in said]
    return got


def users(name, count):
    return [{"user": f"{name}-{i}"} for i in range(count)]


def issued_before(stack, count):
    """A coupon of which one was issued to `first`, and then so many were redeemed, each by somebody else."""
    coupon, shop = stack.coupon(cap={"policy": "none"}), stack.client("storefront")
    shop.take(coupon, "first", state="issued").expect(201)
    take_all(shop, coupon, users("u", count))
    return coupon
