/*
 * dashboard/format.js -- how numbers, money and times are shown; how a number is read. Money is read in form.js.
 *
 * Money  minor units in the service; here the currency's own, with as many decimals as it has
 * Times  UTC in the service; here in the coupon's zone, or the one that was chosen for the page. It is always beside them, and the
 *        offset does, too, where clocks show the same twice
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

/* Without a currency nothing was ever given: whatever has an amount has a currency. */
export function money(minor, currency) {
  if (minor === null || minor === undefined || !currency) return "\u2013";
  const value = minor / 10 ** digitsOf(currency);

  try {
    return new Intl.NumberFormat("en", {style: "currency", currency}).format(value);
  } catch {
    return `${number(value)} ${currency}`; // no three letters
  }
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function share(part, whole) {
  return whole > 0 ? Math.min(100, Math.max(0, (part / whole) * 100)) : 0;
}

/* ---- numbers as people type them ---- */

/* The digits of a whole number, which separators may group by three; null: it is none. */
function wholeOf(text) {
  return /^(\d+|[1-9]\d{0,2}([ '\u2019.,])\d{3}(\2\d{3})*)$/.test(text) ? text.replace(/\D/g, "") : null;
}

/* Both ways to read it, of which "10,000" has two: [digits, decimals]. */
function readings(text) {
  const at = Math.max(text.lastIndexOf("."), text.lastIndexOf(",")),
    fraction = text.slice(at + 1);
  const whole = wholeOf(text),
    before = at > 0 && /^\d+$/.test(fraction) && !text.slice(0, at).includes(text[at]) ? wholeOf(text.slice(0, at)) : null;

  return [whole === null ? null : [whole, ""], before === null ? null : [before, fraction]].filter(Boolean);
}

const plainly = ([whole, fraction]) => (fraction ? `${whole}.${fraction}` : whole);

/*
 * A number with at most so many decimals: {units} (10,50 with 2 of them is 1050), or {wrong}: why not, and how it was read.
 * unit: what it is a number of, or null; show(plain): plain digits as they are shown.
 */
export function readNumber(typed, decimals, unit, show = (plain) => numbers.format(plain)) {
  const text = typed.replace(/[\u00a0\u2009\u202f]/g, " ").trim();
  let found = readings(text);

  if (!found.length) return {wrong: decimals ? "Enter a number, such as 1234.50." : "Enter a whole number, such as 1200."};
  if (!decimals && found.length > 1) found = found.slice(0, 1); // as decimals it would be wrong
  if (found.length > 1) {
    const [one, other] = found.map(plainly);

    return {wrong: `This can be read as ${show(one)} or as ${show(other)}. Type ${one} or ${Number(other)}.`};
  }
  const [[whole, fraction]] = found;
  if (fraction.length > decimals)
    return {
      wrong:
        `This was read as ${plainly(found[0])}: ` +
        `${decimals ? `no more than ${plural(decimals, "decimal")} are` : "no decimals are"} possible ${unit ? `in ${unit}` : "here"}.`,
    };
  const units = Number(whole + fraction.padEnd(decimals, "0"));

  return Number.isSafeInteger(units) ? {units} : {wrong: "This number is too large."};
}

/* 1250 with 2 decimals is 12.50, and 1200 is 12: what readNumber() reads. */
export function writeNumber(units, decimals) {
  const scale = 10 ** decimals;

  return units % scale === 0 ? String(units / scale) : (units / scale).toFixed(decimals);
}

/* ---- times ---- */

const PARTS = {year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit"};
const DAY_MS = 86400000;
const formats = new Map(); // by zone: making one takes long

/* What clocks in the zone show at this moment: 2026-11-21T10:00:00. */
function wall(ms, zone) {
  if (!formats.has(zone)) formats.set(zone, new Intl.DateTimeFormat("en-GB", {...PARTS, hourCycle: "h23", timeZone: zone}));
  const w = Object.fromEntries(
    formats
      .get(zone)
      .formatToParts(ms)
      .map((p) => [p.type, p.value]),
  );

  return `${w.year}-${w.month}-${w.day}T${w.hour}:${w.minute}:${w.second}`;
}

const wallMs = (ms, zone) => Date.parse(`${wall(ms, zone)}Z`);

/* How far the zone's clocks are before UTC's. */
const offsetMs = (ms, zone) => wallMs(ms, zone) - Math.floor(ms / 1000) * 1000;

/* UTC+02:00 */
function offsetText(ms, zone) {
  const minutes = Math.round(offsetMs(ms, zone) / 60000),
    two = (n) => String(Math.floor(n)).padStart(2, "0");

  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}`;
}

const askedMs = (text) => Date.parse(`${text.length === 16 ? `${text}:00` : text}Z`);
const offsetsAround = (ms, zone) => [...new Set([-DAY_MS, DAY_MS].map((away) => offsetMs(ms + away, zone)))];

/* The moments at which clocks in the zone show this, the first one first: none where they skip it, two where they show it twice. */
export function momentsOf(text, zone) {
  const asked = askedMs(text);

  return offsetsAround(asked, zone)
    .map((offset) => asked - offset)
    .filter((ms) => wallMs(ms, zone) === asked)
    .sort((a, b) => a - b);
}

/* The moment at which clocks in the zone show this; of two, the first; of none, as before the clocks went forward. */
export function fromWall(text, zone) {
  const asked = askedMs(text);

  return new Date(momentsOf(text, zone)[0] ?? asked - offsetsAround(asked, zone)[0]).toISOString();
}

/* For <input type=datetime-local>. */
export function toWall(text, zone) {
  return text ? wall(Date.parse(text), zone) : "";
}

/* 2026-11-21 10:00:00, with the offset where clocks show that twice; without a time: a dash. */
export function time(text, zone = "UTC") {
  if (!text) return "\u2013";
  const ms = Date.parse(text),
    shown = wall(ms, zone);
  const twice = offsetsAround(ms, zone).length > 1 && momentsOf(shown, zone).length > 1;

  return shown.replace("T", " ") + (twice ? ` ${offsetText(ms, zone)}` : "");
}

/* 2026-11-21 10:00 UTC+01:00, with seconds where there are some. */
export function moment(text, zone) {
  const ms = Date.parse(text);

  return `${wall(ms, zone).replace("T", " ").replace(/:00$/, "")} ${offsetText(ms, zone)}`;
}

export function clock(ms = Date.now()) {
  return new Date(ms).toLocaleTimeString("en-GB");
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
