/*
 * dashboard/format.js -- how numbers, money and times are shown and read.
 *
 * Money  minor units in the service; here the currency's own, with as many digits as it has
 * Times  UTC in the service; here in the coupon's zone, or the browser's where they are of no coupon. It always stands beside them
 */

const numbers = new Intl.NumberFormat("en");

export function number(value) {
  return value === null || value === undefined ? "\u2013" : numbers.format(value);
}

export function digitsOf(currency) {
  try {
    return new Intl.NumberFormat("en", {style: "currency", currency}).resolvedOptions().maximumFractionDigits;
  } catch {
    return 2;
  }
}

export function money(minor, currency) {
  if (minor === null || minor === undefined) return "\u2013";
  if (!currency) return `${number(minor)} minor units`;
  return new Intl.NumberFormat("en", {style: "currency", currency}).format(minor / 10 ** digitsOf(currency));
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function share(part, whole) {
  return whole > 0 ? Math.min(100, Math.max(0, (part / whole) * 100)) : 0;
}

const PARTS = {year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit"};

/* {year, month, ...}: what clocks in the zone show at this moment. */
function wall(ms, zone) {
  const parts = new Intl.DateTimeFormat("en-GB", {...PARTS, hourCycle: "h23", timeZone: zone}).formatToParts(ms);

  return Object.fromEntries(parts.map((p) => [p.type, p.value]));
}

/* 2026-11-21 10:00:00; without a time: a dash. */
export function time(text, zone = "UTC") {
  if (!text) return "\u2013";
  const w = wall(Date.parse(text), zone);

  return `${w.year}-${w.month}-${w.day} ${w.hour}:${w.minute}:${w.second}`;
}

export function clock(ms = Date.now()) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

/* For <input type=datetime-local>. */
export function toWall(text, zone) {
  return text ? time(text, zone).replace(" ", "T") : "";
}

/* The moment at which clocks in the zone show this; of two, the first; of none, as before the clocks went forward. */
export function fromWall(text, zone) {
  const asked = Date.parse(`${text.length === 16 ? `${text}:00` : text}Z`);
  const guesses = [-86400000, 86400000].map((away) => {
    const shown = Date.parse(`${toWall(new Date(asked + away).toISOString(), zone)}Z`);
    return asked - (shown - (asked + away));
  });
  const right = guesses.filter((ms) => Date.parse(`${toWall(new Date(ms).toISOString(), zone)}Z`) === asked);

  return new Date(right.length ? Math.min(...right) : guesses[0]).toISOString();
}

/* "12.5" with scale 100 is 1250. NaN: no number, or too fine. */
export function toScaled(text, scale) {
  if (!/^\d+([.,]\d+)?$/.test(text)) return NaN;
  const exact = Number(text.replace(",", ".")) * scale,
    whole = Math.round(exact);

  return Math.abs(exact - whole) < 1e-6 * scale && Number.isSafeInteger(whole) ? whole : NaN;
}

export function fromScaled(value, scale) {
  return value === null || value === undefined ? "" : String(value / scale);
}

export const browserZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

export function zones() {
  return ["UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])];
}

export function isZone(zone) {
  try {
    Intl.DateTimeFormat("en", {timeZone: zone});
    return true;
  } catch {
    return false;
  }
}
