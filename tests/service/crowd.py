"""A coupon that many have taken."""


def issued_before(stack, count):
    """A coupon of which one was issued to `first`, and then so many were redeemed, each by somebody else."""
    coupon, shop = stack.coupon(cap={"policy": "none"}), stack.client("storefront")
    shop.take(coupon, "first", state="issued").expect(201)
    for start in range(0, count, 1000):
        items = [{"key": "k", "user": f"u-{i}"} for i in range(start, min(count, start + 1000))]
        told = shop.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
        assert {item["status"] for item in told} == {201}, told
    return coupon
