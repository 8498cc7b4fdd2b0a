/*
 * dashboard/book.js -- the definitions of all coupons, newest first, as far as they have been read: kept as long as the tab.
 *
 * Read  a few of the newest first, then the rest; whole again once in a while. In between, the newest ones, and what a page shows
 */
import {get, getTagged, path, query, session, several} from "./api.js";

const FIRST = 50,
  NEXT = 500,
  MOST = 20000,
  WHOLE_MS = 10 * 60000;

const begin = () => ({key: session.key, coupons: [], incomplete: false, cursor: null, wholeAt: 0});
let book = begin();

const whole = () => ({coupons: book.coupons, more: Boolean(book.cursor), incomplete: book.incomplete});

const page = (limit, cursor, signal) => get(query("/coupons", {limit, cursor}), signal);

/* Go on where an earlier reading was left. */
async function readRest(signal, show) {
  do {
    const {items, next, incomplete} = await page(book.coupons.length ? NEXT : FIRST, book.cursor, signal);

    book.coupons = [...book.coupons, ...items];
    book.incomplete ||= Boolean(incomplete);
    book.cursor = next;
    if (next) show({coupons: book.coupons, reading: true});
  } while (book.cursor && book.coupons.length < MOST);
  book.wholeAt = Date.now();
}

/* What was made, changed or deleted among the newest; false: there are so many new ones that all must be read. */
async function readNewest(signal) {
  const {items, next} = await page(FIRST, null, signal);
  const at = next ? book.coupons.findIndex((c) => c.id === items.at(-1)?.id) : Infinity;

  if (at >= 0) book.coupons = [...items, ...book.coupons.slice(at + 1)];
  return at >= 0;
}

/* {coupons, more: there are more than are kept, incomplete: some cannot be read}. show(what there is so far), again and again while it is being read. */
export async function readCoupons(signal, show) {
  if (book.key !== session.key || (book.wholeAt && Date.now() - book.wholeAt > WHOLE_MS)) book = begin();
  if (!book.wholeAt) await readRest(signal, show);
  else if (!(await readNewest(signal))) {
    book = begin();
    await readRest(signal, () => {});
  }
  return whole();
}

/* Of what a page shows, what readCoupons() does not read every time. Returns as it does. */
export async function refresh(coupons, signal) {
  const newest = new Set(book.coupons.slice(0, FIRST).map((c) => c.id)),
    now = new Map();

  await several(
    coupons
      .filter((c) => !newest.has(c.id))
      .map((c) => async () => {
        try {
          now.set(c.id, (await getTagged(path(c.id), signal)).value);
        } catch (problem) {
          if (problem.status === 404) now.set(c.id, null); // it was deleted; anything else: it stays as it was
        }
      }),
  );
  if (now.size) book.coupons = book.coupons.map((c) => (now.has(c.id) ? now.get(c.id) : c)).filter(Boolean);
  return whole();
}
