/*
 * dashboard/address.js -- what of a page is in its address, so that a colleague who opens it sees the same: what is looked up, filters,
 * the order, and the zone in which times are shown.
 *
 * Form  #/coupon/ID?state=issued&zone=Asia/Tokyo. A filter replaces the address: going back leads to the page before
 */
import {browserZone, isZone} from "./format.js";

const [PAGE, GIVEN] = [0, 1];
const parts = () => location.hash.split("?");
const last = new Map(); // by page: its address when it was left

let zone = null; // for this tab, until another is chosen

export const pageOf = () => parts()[PAGE];

const all = () => new URLSearchParams(parts()[GIVEN] ?? "");

/* One of them, as text; "" if it is not there. */
export const given = (name) => all().get(name) ?? "";

/* Put these there; what is "", null or false goes. */
export function keep(values) {
  const parameters = all();

  for (const [name, value] of Object.entries(values))
    if (value) parameters.set(name, value);
    else parameters.delete(name);
  const page = pageOf() || "#/",
    text = parameters.toString();
  history.replaceState(null, "", text ? `${page}?${text}` : page);
  last.set(page, location.hash);
}

/* The address at which the page was left. */
export const lastOf = (page) => last.get(page) ?? page;

/* ---- the zone ---- */

/* After the address has changed: its zone is the tab's; without one it gets the tab's. */
export function followZone() {
  if (isZone(given("zone"))) zone = given("zone");
  keep({zone});
}

export function chooseZone(chosen) {
  zone = chosen || null;
  keep({zone});
}

export const chosenZone = () => zone;

/* In which zone times are shown: of a coupon, whose own is given, or of none. */
export const zoneFor = (own = browserZone()) => zone ?? own;
