"""A checkout by a client that openapi-python-client made: client.py URL OPS-KEY STOREFRONT-KEY COUPON. Prints what it saw as JSON."""
import json
import sys

from api import AuthenticatedClient
from api.api.coupons import coupon_change, coupon_create, coupon_get
from api.api.redemptions import redemption_check, redemption_redeem, redemption_reverse, redemption_take, resolve
from api.models import (CodeOfUser, CouponChange, CouponState, DiscountKind, Metadata, NewCap, NewCoupon, NewDiscount, Order, Step, Taking,
                        TakeState)

url, ops_key, shop_key, coupon = sys.argv[1:]
ops, shop = AuthenticatedClient(base_url=url, token=ops_key), AuthenticatedClient(base_url=url, token=shop_key)

made = coupon_create.sync_detailed(client=ops, body=NewCoupon(
    id=coupon, title="Made by Python", state=CouponState.ACTIVE, cap=NewCap(total=5), generate=True,
    discount=NewDiscount(kind=DiscountKind.AMOUNT, amount_minor=500, currency="EUR"),
    metadata=Metadata.from_dict({"campaign": {"n": 1}})))
changed = coupon_change.sync(coupon, client=ops, if_match=made.headers["ETag"], body=CouponChange(title="Changed"))
checked = redemption_check.sync(coupon, client=shop, body=Taking(user="u-1", order=Order(amount_minor=2000, currency="EUR")))
found = resolve.sync(client=shop, body=CodeOfUser(code=coupon, user="u-1", order=Order(amount_minor=1580, currency="EUR"))).items[0]
held = redemption_take.sync(coupon, client=shop, idempotency_key="hold", body=Taking(
    user="u-1", state=TakeState.RESERVED, order=Order(id="o-1", amount_minor=2000, currency="EUR")))
redeemed = redemption_redeem.sync(coupon, held.id, client=shop, idempotency_key="redeem", body=Step())
reversed_ = redemption_reverse.sync(coupon, held.id, client=shop)
refused = redemption_take.sync(f"{coupon}-never", client=shop, idempotency_key="never", body=Taking(user="u-1"))
read = coupon_get.sync(coupon, client=shop)
print(json.dumps({
    "title": changed.title, "discount_minor": held.discount_minor, "states": [held.state, redeemed.state, reversed_.state],
    "refused": refused.code, "campaign": read.metadata["campaign"], "total": read.cap.total,
    "checked": [checked.ok, checked.discount_minor, checked.remaining],
    "found": [found.problem, found.reason, found.missing_minor]}))
