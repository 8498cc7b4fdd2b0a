/*
 * dashboard/reports.js -- a coupon's redemptions over time: which range, in which periods, and the same number of periods before.
 *
 * Range  days of the coupon's zone, or of the chosen one, the last one included; without them, the latest periods. It is in the address
 */
import {given, keep, zoneFor} from "./address.js";
import {get, path, query} from "./api.js";
import {bars} from "./charts.js";
import {choice, el, replace, uniqueId} from "./dom.js";
import {fromWall, number, time} from "./format.js";
import {panel} from "./panel.js";

const HOUR_MS = 3600000,
  DAY_MS = 24 * HOUR_MS,
  MOST = 1000; /* bars */

/* Of each: how many are shown without a range, how long one is, usually and at the most, and what is below a bar. */
const PERIODS = {
  hour: [48, HOUR_MS, 2 * HOUR_MS, (row) => `${row.start.slice(8, 10)}. ${row.start.slice(11, 16)}`],
  day: [30, DAY_MS, 2 * DAY_MS, (row) => row.start.slice(5, 10)],
  week: [26, 7 * DAY_MS, 8 * DAY_MS, (row) => row.start.slice(0, 10)],
  month: [12, 30 * DAY_MS, 32 * DAY_MS, (row) => row.start.slice(0, 7)],
};

const iso = (ms) => new Date(Math.max(0, ms)).toISOString();
const dayAfter = (day) => iso(Date.parse(`${day}T00:00:00Z`) + DAY_MS).slice(0, 10);
const midnight = (day, zone) => Date.parse(fromWall(`${day}T00:00:00`, zone));

/* {from, to} in ms; to: null, until now. */
function bounds({period, from, to}, zone) {
  const [count, usual] = PERIODS[period];
  const end = to ? midnight(dayAfter(to), zone) : null;

  return {from: from ? midnight(from, zone) : (end ?? Date.now()) - (count - 1) * usual, to: end};
}

/* What is wrong with a range, or null. */
function wrong(range, zone) {
  const {from, to} = bounds(range, zone),
    length = (to ?? Date.now()) - from;

  if (length <= 0) return to ? "The range ends before it begins." : "The range begins in the future.";
  if (length / PERIODS[range.period][1] > MOST) return `That is more than ${number(MOST)} bars: choose a shorter range.`;
  return null;
}

/* The rows of the range, and as many from before it. */
async function read(id, range, zone, signal) {
  const {from, to} = bounds(range, zone),
    {period, beside} = range;
  const ask = (a, b) => get(query(path(id, "reports"), {period, from: iso(a), to: b === null ? null : iso(b), tz: zone}), signal);
  const {items, as_of: asOf} = await ask(from, to);
  const start = Date.parse(items[0].start),
    reach = (items.length + 1) * PERIODS[period][2];

  return {period, items, asOf, earlier: beside && start > 0 ? (await ask(start - reach, start)).items.slice(-items.length) : null};
}

/* changed(): the range is another one. */
function rangeForm(range, choices, changed) {
  const inputs = {
    ...(choices.length > 1 ? {period: choice({}, choices)} : {}),
    from: el("input", {type: "date"}),
    to: el("input", {type: "date"}),
    beside: el("input", {type: "checkbox"}),
  };
  const labels = {period: "Bars", from: "From", to: "To", beside: "Compare with the previous period"};
  const fields = Object.entries(inputs).map(([name, input]) => {
    const label = el("label", {for: (input.id = uniqueId(name))}, labels[name]);

    if (name === "beside") input.checked = range.beside;
    else input.value = range[name];
    input.addEventListener("change", () => {
      range[name] = name === "beside" ? input.checked : input.value;
      changed();
    });
    return el("div", {class: "field"}, name === "beside" ? [input, label] : [label, input]);
  });
  const error = el("p", {class: "error", role: "alert"});

  return {node: el("details", {open: Boolean(range.from || range.to || range.beside)}, el("summary", {}, "Range"), el("div", {class: "filters"}, fields), error), error};
}

const redeemed = (rows) => number(rows.reduce((sum, row) => sum + row.redeemed, 0));

/* What the address says of the range of the panel `name`: period~from~to~beside. */
function readRange(name, choices) {
  const [period, from = "", to = "", beside = ""] = given(name).split("~"),
    day = (text) => (/^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) ? text : "");

  return {
    period: choices.some(([one]) => one === period) ? period : choices[0][0],
    from: day(from),
    to: day(to),
    beside: beside === "beside",
  };
}

function keepRange(name, {period, from, to, beside}, usual) {
  const text = [period, from, to, beside ? "beside" : ""].join("~");

  keep({[name]: text === `${usual}~~~` ? null : text});
}

/* name: in the address; choices: of periods, [period, their name, the panel's title]; the first one is shown first. */
export function reportPanel(page, name, choices) {
  const range = readRange(name, choices),
    foot = el("p", {class: "small"});
  let good = {...range}; // as it was when nothing was wrong with it
  const titleOf = (period) => choices.find(([one]) => one === period)[2];
  const chart = bars((period) => titleOf(period), (row, period) => PERIODS[period][3](row), page.signal);
  const shown = panel(titleOf(range.period), {
    signal: page.signal,
    every: 5,
    async load(s) {
      const zone = zoneFor((await page.definition()).value.time_zone),
        why = wrong(good, zone); // by the address: a form's was looked at

      if (why) {
        form.error.textContent = why;
        good = {...good, from: "", to: ""};
      }
      return {zone, ...(await read(page.id, good, zone, s))};
    },
    draw(body, {period, items, earlier, asOf, zone}) {
      if (!body.contains(chart.node)) replace(body, chart.node, foot);
      shown.rename(titleOf(period));
      replace(foot,
        earlier ? `${redeemed(items)} used, ${redeemed(earlier)} in the previous period. ` : null,
        asOf?.at ? `Exact up to ${time(asOf.at, zone)} (${zone})` : "Nothing has been counted yet");
      chart.update(items, earlier, period);
    },
  });
  const form = rangeForm(range, choices, () => {
    form.error.textContent = wrong(range, zoneFor(page.held.value.time_zone)) ?? "";
    if (form.error.textContent) return;
    good = {...range};
    keepRange(name, good, choices[0][0]);
    shown.refresh();
  });

  shown.head.after(form.node);
  return shown;
}
