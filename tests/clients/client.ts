// A checkout by a client with the types that openapi-typescript made: client.js URL OPS-KEY STOREFRONT-KEY COUPON. Prints what it saw.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

declare const process: { argv: string[] };
const [url, opsKey, shopKey, coupon] = process.argv.slice(2) as [string, string, string, string];

function connect(key: string) {
  return createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
}

/** What was answered with a 2xx; a problem ends the program. */
function good<T>(answer: { data?: T; error?: components['schemas']['Problem'] }): T {
  if (answer.data === undefined) throw new Error(answer.error?.code);
  return answer.data;
}

const ops = connect(opsKey), shop = connect(shopKey);
const made = await ops.POST('/coupons', {
  body: {
    id: coupon, title: 'Made by TypeScript', state: 'active', cap: { total: 5 }, generate: true,
    discount: { kind: 'amount', amount_minor: 500, currency: 'EUR' }, metadata: { campaign: { n: 1 } },
  },
});
good(made);
const changed = good(await ops.PATCH('/coupons/{coupon}', {
  params: { path: { coupon }, header: { 'If-Match': made.response.headers.get('ETag') ?? '' } }, body: { title: 'Changed' },
}));
const checked = good(await shop.POST('/coupons/{coupon}/check', {
  params: { path: { coupon } }, body: { user: 'u-1', order: { amount_minor: 2000, currency: 'EUR' } },
}));
const found = good(await shop.POST('/coupons/-/resolve', {
  body: { code: coupon, user: 'u-1', order: { amount_minor: 1580, currency: 'EUR' } },
})).items[0];
const held = good(await shop.POST('/coupons/{coupon}/redemptions', {
  params: { path: { coupon }, header: { 'Idempotency-Key': 'hold' } },
  body: { user: 'u-1', state: 'reserved', order: { id: 'o-1', amount_minor: 2000, currency: 'EUR' } },
}));
const path = { coupon, redemption: held.id };
const redeemed = good(await shop.POST('/coupons/{coupon}/redemptions/{redemption}/redeem', {
  params: { path, header: { 'Idempotency-Key': 'redeem' } }, body: {},
}));
const reversed = good(await shop.POST('/coupons/{coupon}/redemptions/{redemption}/reverse', { params: { path } }));
const refused = await shop.POST('/coupons/{coupon}/redemptions', {
  params: { path: { coupon: `${coupon}-never` }, header: { 'Idempotency-Key': 'never' } }, body: { user: 'u-1' },
});
const read = good(await shop.GET('/coupons/{coupon}', { params: { path: { coupon } } }));
console.log(JSON.stringify({
  title: changed.title, discount_minor: held.discount_minor, states: [held.state, redeemed.state, reversed.state],
  refused: refused.error?.code, campaign: read.metadata['campaign'], total: read.cap.total,
  checked: [checked.ok, checked.discount_minor, checked.remaining], found: [found?.problem, found?.reason, found?.missing_minor],
}));
