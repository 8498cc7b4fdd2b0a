/* dashboard/parts.js -- what several pages show of a coupon: its state, its stock, its warnings. */
import {stockBar} from "./charts.js";
import {el} from "./dom.js";
import {number, plural} from "./format.js";

const STATES = {draft: "Draft", active: "Active", paused: "Paused", ended: "Ended"};

export const STATE_OPTIONS = Object.entries(STATES);

/* What the state says together with the window: [kind, text]. */
function standing(coupon, now = Date.now()) {
  if (coupon.state !== "active") return [coupon.state, STATES[coupon.state] ?? coupon.state];
  if (coupon.starts_at && Date.parse(coupon.starts_at) > now) return ["paused", "Not started"];
  if (coupon.ends_at && Date.parse(coupon.ends_at) <= now) return ["ended", "Over"];
  return ["active", "Active"];
}

export function stateBadge(coupon) {
  const [kind, text] = standing(coupon);

  return el("span", {class: `badge ${kind}`}, text);
}

/* [kind, short, sentence] of what needs somebody's eye; empty when nothing does. */
export function warnings(coupon, counts) {
  const {free, slots} = counts,
    found = [];

  if (coupon.state === "ended") return found;
  if (slots === 0 && free === 0)
    found.push([
      "sold",
      "No slots",
      coupon.codes.source === "imported"
        ? "There are no slots yet: import a list of codes, or everybody hears \u201csold out\u201d."
        : "There are no slots yet: generate some, or everybody is told \u201csold out\u201d.",
    ]);
  else if (free === 0)
    found.push([
      "sold",
      "Sold out",
      counts.reserved > 0
        ? `Sold out. ${plural(counts.reserved, "slot")} held by checkouts may come back.`
        : "Sold out: no slot is free.",
    ]);
  else if (free !== null && coupon.low_stock !== null && free <= coupon.low_stock)
    found.push(["low", "Low stock", `Low stock: ${number(free)} free, the warning is set at ${number(coupon.low_stock)}.`]);
  if (counts.over > 0)
    found.push([
      "low",
      "Over the cap",
      `${plural(counts.over, "taking")} above the cap: an approximate cap can be exceeded a little.`,
    ]);
  if (coupon.cap.per_day !== null && counts.today >= coupon.cap.per_day)
    found.push(["low", "Day's cap reached", `Today's cap of ${number(coupon.cap.per_day)} is reached.`]);
  if (coupon.cap.discount_minor !== null && counts.discount_minor >= coupon.cap.discount_minor)
    found.push(["low", "Budget spent", "The budget for discounts is spent."]);
  return found;
}

export function stockText(coupon, counts) {
  if (counts.slots === 0) return "no slots yet";
  if (counts.slots !== null) return `${number(counts.free)} of ${number(counts.slots)} free`;
  const taken = counts.issued + counts.reserved + counts.redeemed;
  return coupon.cap.total === null
    ? `${number(taken)} taken, no cap`
    : `${number(taken)} of about ${number(coupon.cap.total)} taken`;
}

/* Null where nothing bounds it: a bar of what? */
export function stock(coupon, counts) {
  if (counts.slots === null && coupon.cap.total === null) return null;
  const parts = [
    ["redeemed", counts.redeemed, "Redeemed"],
    ["reserved", counts.reserved, "Held"],
    ["issued", counts.issued, "Issued"],
  ];
  const taken = counts.issued + counts.reserved + counts.redeemed;
  const whole = counts.slots ?? coupon.cap.total ?? taken;

  return stockBar(parts, Math.max(whole, taken), stockText(coupon, counts));
}

export function legend() {
  return el(
    "p",
    {class: "legend small"},
    [
      ["redeemed", "Redeemed"],
      ["reserved", "Held"],
      ["issued", "Issued"],
      ["free", "Free"],
    ].map(([kind, text]) => el("span", {}, el("i", {class: kind}), text)),
  );
}
