/*
 * dashboard/calendar.js -- the windows of all coupons in a month: what begins, runs and ends when.
 *
 * Times  each window is in its coupon's zone, unless another was chosen: one that begins on the 1st there begins on the 1st here
 */
import {given, keep, zoneFor} from "./address.js";
import {readCoupons} from "./book.js";
import {button, el, replace, table} from "./dom.js";
import {moment, number, plural, toWall} from "./format.js";
import {empty, panel} from "./panel.js";
import {couponTitle, stateBadge} from "./parts.js";

const ROWS = 200,
  DAY_MS = 24 * 3600000;
const view = {month: null, text: ""}; // as the address says it; month: how many since the year 0, null: this one

const monthNow = () => {
  const [year, month] = toWall(new Date().toISOString(), zoneFor()).split("-");

  return Number(year) * 12 + Number(month) - 1;
};

/* 2026-11 in the address. */
const monthText = (month) => `${Math.floor(month / 12)}-${String((month % 12) + 1).padStart(2, "0")}`;

function readView() {
  const month = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(given("month"));

  Object.assign(view, {text: given("q"), month: month && Number(month[1]) * 12 + Number(month[2]) - 1});
}
const monthStart = (month) => Date.UTC(Math.floor(month / 12), month % 12);
const monthName = (month) => new Intl.DateTimeFormat("en", {month: "long", year: "numeric", timeZone: "UTC"}).format(monthStart(month));

/* What a clock on the wall shows, as if it were UTC's. */
const wallMs = (text, zone, without) => (text ? Date.parse(`${toWall(text, zone)}Z`) : without);

function windowOf(coupon) {
  return {
    from: wallMs(coupon.starts_at, zoneFor(coupon.time_zone), -Infinity),
    to: wallMs(coupon.ends_at, zoneFor(coupon.time_zone), Infinity),
  };
}

/* The coupons whose windows have a part in the month, the first to begin first. */
function running(coupons, month) {
  const first = monthStart(month),
    end = monthStart(month + 1),
    words = view.text.toLowerCase();

  return coupons
    .map((coupon) => ({coupon, ...windowOf(coupon)}))
    .filter(({coupon, from, to}) => from < end && to > first && `${coupon.title}\n${coupon.id}`.toLowerCase().includes(words))
    .sort((a, b) => a.from - b.from || a.to - b.to || a.coupon.title.localeCompare(b.coupon.title));
}

function windowText({starts_at: from, ends_at: to, time_zone: own}) {
  const zone = zoneFor(own);

  if (!from && !to) return "always";
  return [from ? `from ${moment(from, zone)}` : null, to ? `until ${moment(to, zone)}` : "without an end", `(${zone})`]
    .filter(Boolean)
    .join(" ");
}

/* Where in the month, in percent. */
function place(ms, month) {
  const first = monthStart(month);

  return (Math.min(Math.max(ms, first), monthStart(month + 1)) - first) / ((monthStart(month + 1) - first) / 100);
}

function span(kind, left, width) {
  const node = el("span", {class: kind});

  node.style.left = `${left}%`;
  node.style.width = width === null ? null : `${width}%`;
  return node;
}

/* The month as a line, and the window on it; what it shows is also said as text. */
function line({coupon, from, to}, month) {
  const left = place(from, month),
    today = wallMs(new Date().toISOString(), zoneFor(coupon.time_zone));

  return el("div", {class: "window", "aria-hidden": "true"},
    span(`open ${coupon.state}`, left, place(to, month) - left),
    today >= monthStart(month) && today < monthStart(month + 1) ? span("today", place(today, month), null) : null);
}

/* The days 1, 8, 15, ... above the lines. */
function scale(month) {
  const days = Math.round((monthStart(month + 1) - monthStart(month)) / DAY_MS);

  return el(
    "div",
    {class: "window scale", "aria-hidden": "true"},
    [1, 8, 15, 22, 29]
      .filter((day) => day <= days)
      .map((day) => {
        const mark = span("day", ((day - 1) * 100) / days, null);

        mark.textContent = String(day);
        return mark;
      }),
  );
}

function draw(box, coupons) {
  const month = view.month ?? monthNow(),
    found = running(coupons, month);
  const shown = table(`Windows in ${monthName(month)}`, ["Coupon", "State", "Window", monthName(month)],
    found
      .slice(0, ROWS)
      .map(({coupon, from, to}) => [
        couponTitle(coupon),
        stateBadge(coupon),
        windowText(coupon),
        line({coupon, from, to}, month),
      ]),
    "cards calendar");

  shown.querySelector("th:last-child").append(scale(month));
  replace(box,
    found.length ? shown : empty(`No window in ${monthName(month)}.`),
    found.length > ROWS ? el("p", {class: "small"}, `The first ${number(ROWS)} of ${number(found.length)}.`) : null);
}

export function showCalendar(main, parameters, signal) {
  const box = el("div"),
    heading = el("h2", {"aria-live": "polite"});
  const search = el("input", {type: "search", id: "search", placeholder: "Title or id", "aria-label": "Search by title or id"});
  let coupons = [];
  readView();
  const redraw = () => {
    const month = view.month ?? monthNow();

    keep({q: view.text, month: view.month === null ? null : monthText(view.month)});
    heading.textContent = `${monthName(month)}: ${plural(running(coupons, month).length, "window")}`;
    draw(box, coupons);
  };
  const go = (by) => () => {
    view.month = by === null ? null : (view.month ?? monthNow()) + by;
    redraw();
  };
  const controls = el("div", {class: "filters"}, search,
    el("div", {class: "actions"}, button("Previous month", go(-1)), button("This month", go(null)), button("Next month", go(1))));
  const p = panel("Calendar", {
    signal,
    every: 30,
    level: "h1",
    load: (s, show) => readCoupons(s, show),
    draw(body, {coupons: read}) {
      coupons = read;
      if (!body.contains(box)) replace(body, controls, heading, box);
      redraw();
    },
  });

  search.value = view.text;
  search.addEventListener("input", () => {
    view.text = search.value.trim();
    redraw();
  });
  replace(main, p.node);
}
