/* dashboard/parts.js -- what several pages show of a coupon: its state, its stock, its warnings; and the words for what the API calls otherwise. */
import {stockBar} from "./charts.js";
import {el} from "./dom.js";
import {number, plural} from "./format.js";

const STATES = {draft: "Draft", active: "Active", paused: "Paused", ended: "Ended"};

export const STATE_OPTIONS = Object.entries(STATES);

/* ---- words ---- */

/* Of a redemption, a code and what is counted. */
const WORDS = {
  free: "free",
  issued: "handed out",
  reserved: "on hold",
  redeemed: "used",
  cancelled: "cancelled",
  expired: "expired",
  reversed: "reversed",
  retired: "disabled",
};

export const REDEMPTION_STATES = ["issued", "reserved", "redeemed", "cancelled", "expired", "reversed"];

export const word = (state) => WORDS[state] ?? state;

export const stateWord = (state) => el("span", {class: `badge ${state}`}, word(state));

export const couponLink = (id, properties = {}, text = id) => el("a", {href: `#/coupon/${encodeURIComponent(id)}`, ...properties}, text);

/* Its title, and below that its id. */
export const couponTitle = ({id, title}) => [
  couponLink(id, {class: "title", data: {key: `c-${id}`}}, title),
  el("div", {class: "small id"}, id),
];

/* A code for each of its stock. */
export const hasCodes = (coupon) => ["generated", "imported"].includes(coupon.codes.source);

/* "3 codes", or where there are none: "3". */
export const countText = (coupon, count) => (hasCodes(coupon) ? plural(count, "code") : number(count));

/* ---- what is to be seen of it ---- */

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
      hasCodes(coupon) ? "No codes" : "No stock",
      coupon.codes.source === "imported"
        ? "There are no codes yet: import a list, or everybody gets \u201csold out\u201d."
        : `There ${hasCodes(coupon) ? "are no codes" : "is no stock"} yet: add some, or everybody gets \u201csold out\u201d.`,
    ]);
  else if (free === 0 && counts.redeemed === 0 && counts.issued + counts.reserved > 0)
    found.push(["low", "All handed out", `All handed out or on hold: nothing is free, and nothing was used yet.`]);
  else if (free === 0)
    found.push([
      "sold",
      "Sold out",
      counts.reserved > 0
        ? `Sold out. ${countText(coupon, counts.reserved)} on hold for checkouts may come back.`
        : "Sold out: nothing is free.",
    ]);
  else if (free !== null && coupon.low_stock !== null && free <= coupon.low_stock)
    found.push(["low", "Low stock", `Low stock: ${number(free)} free, the warning is set at ${number(coupon.low_stock)}.`]);
  if (counts.over > 0)
    found.push(["low", "Over the limit", `${number(counts.over)} above the limit: an approximate limit can be exceeded a little.`]);
  if (coupon.cap.per_day !== null && counts.today >= coupon.cap.per_day)
    found.push(["low", "Day's limit reached", `Today's limit of ${number(coupon.cap.per_day)} is reached.`]);
  if (coupon.cap.discount_minor !== null && counts.discount_minor >= coupon.cap.discount_minor)
    found.push(["low", "Budget spent", "The budget for discounts is spent."]);
  return found;
}

export function stockText(coupon, counts) {
  if (counts.slots === 0) return hasCodes(coupon) ? "no codes yet" : "no stock yet";
  if (counts.slots !== null) return `${number(counts.free)} of ${number(counts.slots)} free`;
  const taken = counts.issued + counts.reserved + counts.redeemed;
  return coupon.cap.total === null ? `${number(taken)} taken, no limit` : `${number(taken)} of about ${number(coupon.cap.total)} taken`;
}

/* What a limit allows and nobody has made yet; null: nothing, or it comes by itself or with a list. */
export function missingText(coupon, {slots}) {
  const missing = coupon.cap.policy === "exact" && coupon.cap.total !== null && slots !== null ? coupon.cap.total - slots : 0;

  if (missing <= 0 || coupon.codes.source === "imported" || coupon.replenish.below !== null) return null;
  return `${number(missing)} of the limit of ${number(coupon.cap.total)} ${missing === 1 ? "is" : "are"} not made yet.`;
}

/* Null where nothing bounds it: a bar of what? */
export function stock(coupon, counts) {
  if (counts.slots === null && coupon.cap.total === null) return null;
  const parts = [["redeemed", counts.redeemed, "Used"], ["reserved", counts.reserved, "On hold"], ["issued", counts.issued, "Handed out"]];
  const taken = counts.issued + counts.reserved + counts.redeemed;
  const whole = counts.slots ?? coupon.cap.total ?? taken;

  return stockBar(parts, Math.max(whole, taken), stockText(coupon, counts));
}

export function legend() {
  return el("p", {class: "legend small"}, [
    ["redeemed", "Used"],
    ["reserved", "On hold"],
    ["issued", "Handed out"],
    ["free", "Free"],
  ].map(([kind, text]) => el("span", {}, el("i", {class: kind}), text)));
}
