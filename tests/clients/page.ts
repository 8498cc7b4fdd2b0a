// What a page asks, with the types that openapi-typescript made: page.js URL PUBLIC-KEY ORIGIN COUPON CODE. Prints what it saw.
import createClient from 'openapi-fetch';
import type { components, operations } from './api.js';

declare const process: { argv: string[] };
const [url, key, origin, coupon, code] = process.argv.slice(2) as [string, string, string, string, string];

/** The calls of the role public: those of the document's pathItems, the parameters as in their paths. */
type Calls = {
  '/coupons/-/resolve': components['pathItems']['PublicResolve'];
  '/coupons/{coupon}/check': {
    post: Omit<operations['public_check'], 'parameters'> & Pick<operations['redemption_check'], 'parameters'>;
  };
};

/** A browser sends the origin by itself. */
const page = createClient<Calls>({ baseUrl: url, headers: { Authorization: `Bearer ${key}`, Origin: origin } });
const check = (amount_minor: number) => page.POST('/coupons/{coupon}/check', {
  params: { path: { coupon } }, body: { code, order: { amount_minor, currency: 'EUR' } },
});
const good = await check(2000), short = await check(1580);
const found = await page.POST('/coupons/-/resolve', { body: { code } });
console.log(JSON.stringify({ good: good.data?.ok, missing: short.data?.missing_minor, coupon: found.data?.items[0]?.coupon }));
