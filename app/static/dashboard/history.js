/*
 * dashboard/history.js -- who changed a coupon: with which key, and what from what to what.
 *
 * Money  in the currency that the coupon had then: a new one has perhaps got another
 */
import {zoneFor} from "./address.js";
import {get, path, query} from "./api.js";
import {fieldAt, shown} from "./change.js";
import {button, el, replace, table} from "./dom.js";
import {money, time} from "./format.js";
import {empty, panel} from "./panel.js";
import {countText, word} from "./parts.js";

const FIRST = 10,
  MOST = 1000;

const KINDS = {
  define: "Changed",
  delete: "Deleted",
  archive: "Archived",
  generate: "Added",
  due: "To be disabled",
  retire: "Disabled",
  issue: "Handed out",
  reserve: "Put on hold",
  redeem: "Used",
  hold: "Put on hold",
  extend: "Hold extended",
  spend: "Used",
  cancel: "Cancelled",
  reverse: "Reversed",
  adjust: "Discount adjusted",
  erase: "User erased",
};

/* A new coupon has a title where there was none. */
function kindText({kind, changes}) {
  const isNew = kind === "define" && changes.some((c) => c.path === "/title" && c.from === null);

  return isNew ? "Created" : (KINDS[kind] ?? kind);
}

function subject({kind, redemption, count}, coupon) {
  if (redemption) return el("span", {}, " ", el("code", {}, redemption));
  return count !== null && kind !== "define" ? `: ${countText(coupon, count)}` : null;
}

/* What was disabled at once need not also be said to be due. */
const withoutDue = (items) =>
  items.filter(
    (item) => item.kind !== "due" || !items.some((other) => other.kind === "retire" && other.seq === item.seq && other.lane === item.lane));

const CURRENCY = "/discount/currency";

/* The currencies before and after each item; items: the newest first. */
function currencies(items, {discount}) {
  let after = discount.currency;

  return items.map(({changes}) => {
    const changed = changes.find((c) => c.path === CURRENCY),
      both = {from: changed ? changed.from : after, to: changed?.to ?? after};

    after = both.from ?? after;
    return both;
  });
}

/* What an adjustment changes. */
const AMOUNTS = {"/discount_minor": "Discount", "/money/0/order_minor": "Order"};

/* Of a redemption the state is another than a coupon's, and money is in the item's currency. */
function change({path: at, from, to}, item, currency, zone) {
  if (item.redemption && at in AMOUNTS)
    return el("li", {}, `${AMOUNTS[at]}: ${money(from, item.currency)} \u2192 ${money(to, item.currency)}`);
  const field = fieldAt(at);
  const show = (value, of) => (item.redemption && at === "/state" ? word(value) : shown(field, value, of, zone));

  const name = at.startsWith("/discount/") ? `Discount, ${field.label.toLowerCase()}` : field.label;

  return el("li", {}, `${name}: `, from === null ? null : `${show(from, currency.from)} \u2192 `, show(to, currency.to));
}

function row(item, currency, coupon, zone) {
  return [
    time(item.at, zone),
    el("span", {title: item.key}, item.label || "a key without a label"),
    el("span", {}, kindText(item), subject(item, coupon)),
    el("ul", {class: "changes"}, item.changes.map((c) => change(c, item, currency, zone))),
  ];
}

export function historyPanel(page) {
  let limit = FIRST;
  const more = button("Show more", () => {
    limit = Math.min(MOST, limit * 10);
    shown.refresh();
  });
  const shown = panel("History", {
    signal: page.signal,
    every: 10,
    load: async (s) => ({coupon: (await page.definition()).value, ...(await get(query(path(page.id, "history"), {limit}), s))}),
    draw(body, {items: all, next, coupon}) {
      const items = withoutDue(all),
        of = currencies(items, coupon),
        zone = zoneFor(coupon.time_zone);

      if (items.length === 0) return replace(body, empty("Nobody has changed anything."));
      replace(
        body,
        table("Who changed what", [`At (${zone})`, "Key", "What", "Changes"],
          items.map((item, i) => row(item, of[i], coupon, zone)),
          "cards"),
        next && limit < MOST ? more : null,
      );
    },
  });

  return shown;
}
