/*
 * dashboard/list.js -- all coupons, or groups of them by a member of their metadata, with their sums.
 *
 * Read  definitions whole, and searched here; counts and rates only of the page shown; sums of all, as long as groups are shown
 */
import {get, getAll, path, query, several, session} from "./api.js";
import {sparkline} from "./charts.js";
import {button, el, replace, table} from "./dom.js";
import {money, number, plural, time} from "./format.js";
import {openCreate} from "./change.js";
import {empty, panel} from "./panel.js";
import {STATE_OPTIONS, stateBadge, stock, stockText, warnings} from "./parts.js";

const PAGE = 50,
  MOST = 20000,
  HOURS = 24,
  HOUR_MS = 3600000,
  MINUTE_MS = 60000,
  NAMES_MOST = 50;
const view = {text: "", state: "", order: "new", group: "", within: null, page: 0}; // kept while one looks at a coupon

const ORDERS = {
  new: ["Newest first", null],
  title: ["By title", (a, b) => a.title.localeCompare(b.title)],
  end: ["Ends soonest", (a, b) => (a.ends_at ?? "9").localeCompare(b.ends_at ?? "9")],
};

/* ---- groups: by a member of the metadata that is neither object nor array ---- */

const isScalar = (value) => value !== null && typeof value !== "object";
const groupOf = ({metadata}, name) => (Object.hasOwn(metadata, name) && isScalar(metadata[name]) ? String(metadata[name]) : null);

const groupKey = (value) => `g-${JSON.stringify(value)}`;

/* The names that there are, the most usual first. */
function groupNames(coupons) {
  const uses = new Map();

  for (const {metadata} of coupons)
    for (const [name, value] of Object.entries(metadata)) if (isScalar(value)) uses.set(name, (uses.get(name) ?? 0) + 1);
  return [...uses].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([name]) => name).slice(0, NAMES_MOST);
}

/* Of each coupon, since there are totals: a Map by id. */
async function readTotals(signal) {
  const {items} = await get(query("/coupons/-/reports", {group: "coupon", period: "total"}), signal);

  return new Map(items.map((row) => [row.coupon, row]));
}

/* [value or null, {coupons, redeemed, reversed, discount by currency}] of each group, the largest first. */
function sums(coupons, name, totals) {
  const groups = new Map();

  for (const coupon of coupons) {
    const value = groupOf(coupon, name),
      row = totals?.get(coupon.id);
    const sum = groups.get(value) ?? {coupons: 0, redeemed: 0, reversed: 0, discount: new Map()};

    groups.set(value, sum);
    sum.coupons++;
    sum.redeemed += row?.redeemed ?? 0;
    sum.reversed += row?.reversed ?? 0;
    if (row?.discount_minor)
      sum.discount.set(coupon.discount.currency, (sum.discount.get(coupon.discount.currency) ?? 0) + row.discount_minor);
  }
  return [...groups].sort(
    (a, b) => b[1].redeemed - a[1].redeemed || b[1].coupons - a[1].coupons || (a[0] ?? "").localeCompare(b[0] ?? ""),
  );
}

function discountText(discount) {
  const parts = [...discount].sort(([a], [b]) => (a ?? "").localeCompare(b ?? ""));

  return parts.map(([currency, minor]) => money(minor, currency)).join(" + ") || "\u2013";
}

/* ---- which are shown ---- */

function found(coupons) {
  const words = view.text.toLowerCase(),
    order = ORDERS[view.order][1];
  const right = coupons.filter(
    (c) =>
      (!view.state || c.state === view.state) &&
      (!view.within || groupOf(c, view.group) === view.within.value) &&
      (!words || c.title.toLowerCase().includes(words) || c.id.toLowerCase().includes(words)),
  );

  return order ? right.toSorted(order) : right;
}

/* Redemptions by hour: {id: [...]}; of those that cannot be read now, nothing. */
async function readHours(coupons, signal) {
  const from = new Date(Date.now() - (HOURS - 1) * HOUR_MS).toISOString(),
    hours = {};
  const ids = coupons.map((c) => c.id).join(",");
  const report = query("/coupons/-/reports", {coupon: ids, group: "coupon", period: "hour", from});

  for (const {coupon, redeemed} of (await get(report, signal).catch(() => ({items: []}))).items)
    (hours[coupon] ??= []).push(redeemed);
  return hours;
}

/* Counts: {id: {...}}; one that fails fails alone. */
async function readCounts(coupons, signal) {
  const counts = {};

  await several(
    coupons.map((c) => async () => {
      counts[c.id] = await get(path(c.id, "counts"), signal).catch(() => null);
    }),
  );
  return counts;
}

function rateCell(hours) {
  if (!hours) return "\u2013";
  const day = hours.reduce((sum, n) => sum + n, 0);

  return el(
    "div",
    {class: "rate"},
    sparkline(hours, `${number(day)} redeemed in 24 hours`),
    el("span", {class: "small"}, `${number(hours.at(-1))} this hour, ${number(day)} in 24 h`),
  );
}

function row(coupon, counts, hours) {
  return [
    [
      el("a", {class: "title", href: `#/coupon/${encodeURIComponent(coupon.id)}`, data: {key: `c-${coupon.id}`}}, coupon.title),
      el("div", {class: "small id"}, coupon.id),
    ],
    [
      stateBadge(coupon),
      counts ? warnings(coupon, counts).map(([kind, text]) => [" ", el("span", {class: `badge ${kind}`}, text)]) : null,
    ],
    counts ? [stock(coupon, counts), el("div", {class: "small"}, stockText(coupon, counts))] : "unknown just now",
    rateCell(hours),
    coupon.ends_at
      ? [time(coupon.ends_at, coupon.time_zone).slice(0, 16), el("div", {class: "small"}, coupon.time_zone)]
      : "open",
  ];
}

const isGrouped = () => view.group !== "" && !view.within;

/* Draws the page of the list, first without figures, then with them, again and again. */
class List {
  constructor(signal) {
    this.signal = signal;
    this.box = el("div", {});
    this.status = el("p", {class: "small", role: "status"});
    this.coupons = [];
    this.counts = {};
    this.hours = {};
    this.hoursOf = ""; // whose hours, and in which minute: more often they are not read
    this.totals = null;
    this.turn = 0;
  }

  take({items, more}) {
    this.coupons = items;
    this.more = more;
    this.onNames(groupNames(items));
    this.draw();
    this.figure();
  }

  page() {
    const all = found(this.coupons);

    view.page = Math.max(0, Math.min(view.page, Math.ceil(all.length / PAGE) - 1));
    return {all, shown: all.slice(view.page * PAGE, (view.page + 1) * PAGE)};
  }

  draw() {
    const {all, shown} = this.page(),
      key = document.activeElement?.dataset.key;

    this.status.textContent =
      `${plural(all.length, "coupon")}${all.length < this.coupons.length ? ` of ${number(this.coupons.length)}` : ""}` +
      (this.more ? `. Only the newest ${number(MOST)} are searched.` : "");
    const next = all.length === 0 ? el("div", {}, this.nothing()) : isGrouped() ? this.groups(all) : this.rows(all, shown);

    if (this.box.firstChild?.isEqualNode(next)) return;
    replace(this.box, next);
    if (key && !document.activeElement?.dataset.key)
      this.box.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({preventScroll: true});
  }

  rows(all, shown) {
    return el(
      "div",
      {},
      view.within
        ? el(
            "p",
            {},
            button("\u2190 All groups", () => this.enter(null), {data: {key: "all-groups"}}),
            ` ${view.group}: ${view.within.value ?? "none"}`,
          )
        : null,
      table(
        "Coupons",
        ["Coupon", "State", "Stock", "Redeemed", "Ends"],
        shown.map((c) => row(c, this.counts[c.id] ?? null, this.hours[c.id])),
        "cards coupons",
      ),
      this.pager(all.length),
    );
  }

  groups(all) {
    return el(
      "div",
      {},
      table(
        `Coupons by ${view.group}`,
        [view.group, "Coupons", "Redeemed", "Reversed", "Discount given"],
        sums(all, view.group, this.totals).map(([value, sum]) => [
          button(value ?? el("em", {}, "none"), () => this.enter({value}), {data: {key: groupKey(value)}}),
          number(sum.coupons),
          ...(this.totals ? [number(sum.redeemed), number(sum.reversed), discountText(sum.discount)] : ["\u2026", "\u2026", "\u2026"]),
        ]),
        "cards numbers",
      ),
    );
  }

  /* A group: its coupons; null: all groups. */
  enter(within) {
    const key = within ? "all-groups" : groupKey(view.within.value);

    Object.assign(view, {within, page: 0});
    this.change();
    this.box.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  }

  nothing() {
    if (this.coupons.length)
      return empty(
        "No coupon matches. ",
        button("Show all", () => this.reset()),
      );
    return empty(
      "There are no coupons yet. ",
      session.isOps
        ? "Create the first one with \u201cNew coupon\u201d."
        : "Somebody with a key of the role ops can create one.",
    );
  }

  reset() {
    Object.assign(view, {text: "", state: "", group: "", within: null, page: 0});
    this.onReset();
    this.change();
  }

  pager(count) {
    const last = Math.ceil(count / PAGE) - 1;
    if (last === 0) return null;
    const go = (by) => () => {
      view.page += by;
      this.change();
    };
    return el(
      "div",
      {class: "pager"},
      button("Previous", go(-1), {disabled: view.page === 0, data: {key: "previous"}}),
      `Page ${number(view.page + 1)} of ${number(last + 1)}`,
      button("Next", go(1), {disabled: view.page === last, data: {key: "next"}}),
    );
  }

  change() {
    this.draw();
    this.figure();
  }

  /* Read the figures of what is shown; of several such readings only the last one counts. */
  async figure() {
    const turn = ++this.turn,
      {shown} = this.page();
    if (shown.length === 0) return;
    if (isGrouped()) {
      const totals = await readTotals(this.signal).catch(() => this.totals);

      if (turn !== this.turn || this.signal.aborted) return;
      this.totals = totals;
      this.draw();
      return;
    }
    const hoursOf = `${Math.floor(Date.now() / MINUTE_MS)} ${shown.map((c) => c.id)}`;
    const [counts, hours] = await Promise.all([
      readCounts(shown, this.signal),
      hoursOf === this.hoursOf ? this.hours : readHours(shown, this.signal),
    ]);

    if (turn !== this.turn || this.signal.aborted) return;
    Object.assign(this, {counts, hours, hoursOf});
    this.draw();
  }
}

function filters(list) {
  const text = el("input", {type: "search", id: "search", placeholder: "Title or id", "aria-label": "Search by title or id"});
  const state = el(
    "select",
    {"aria-label": "State"},
    [["", "Any state"], ...STATE_OPTIONS].map(([value, name]) => el("option", {value}, name)),
  );
  const order = el(
    "select",
    {"aria-label": "Order"},
    Object.entries(ORDERS).map(([value, [name]]) => el("option", {value}, name)),
  );
  const group = el("select", {"aria-label": "Group by"});
  let names = null;
  const set = () => {
    text.value = view.text;
    state.value = view.state;
    order.value = view.order;
    group.value = view.group;
  };
  const read = () => {
    const within = group.value === view.group ? view.within : null;

    Object.assign(view, {text: text.value.trim(), state: state.value, order: order.value, group: group.value, within, page: 0});
    list.change();
  };

  set();
  list.onReset = set;
  list.onNames = (found) => {
    if (names?.join("\n") === found.join("\n")) return;
    names = found;
    if (!names.includes(view.group)) Object.assign(view, {group: "", within: null});
    replace(group, el("option", {value: ""}, "No groups"), names.map((name) => el("option", {value: name}, `By ${name}`)));
    group.hidden = names.length === 0;
    group.value = view.group;
  };
  text.addEventListener("input", read);
  state.addEventListener("change", read);
  order.addEventListener("change", read);
  group.addEventListener("change", read);
  return el("div", {class: "filters", role: "search"}, text, state, order, group);
}

export function showList(main, parameters, signal) {
  const list = new List(signal);
  const p = panel("Coupons", {
    signal,
    every: 10,
    level: "h1",
    kind: "plain",
    load: async (s) => ({read: Date.now(), ...(await getAll("/coupons", {}, MOST, s))}),
    draw(body, value) {
      if (!body.contains(list.box)) replace(body, filters(list), list.status, list.box);
      list.take(value);
    },
  });

  if (session.isOps) p.head.append(button("New coupon", () => openCreate(signal), {class: "primary"}));
  replace(main, p.node);
}
