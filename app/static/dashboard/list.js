/*
 * dashboard/list.js -- all coupons, or groups of them by a member of their metadata, with their sums.
 *
 * Read  definitions by book.js, and searched here; counts and rates only of the page shown; sums of all, as long as groups are shown
 */
import {given, keep, zoneFor} from "./address.js";
import {get, path, query, several, session} from "./api.js";
import {readCoupons, refresh} from "./book.js";
import {sparkline} from "./charts.js";
import {button, choice, el, replace, table} from "./dom.js";
import {moment, money, number, plural} from "./format.js";
import {openCreate} from "./change.js";
import {empty, panel} from "./panel.js";
import {STATE_OPTIONS, couponTitle, stateBadge, stock, stockText, warnings} from "./parts.js";

const PAGE = 50,
  HOURS = 24,
  HOUR_MS = 3600000,
  MINUTE_MS = 60000,
  NAMES_MOST = 50;
/* What is shown, as the address says it. within: {value} of one group, null where none is shown alone. */
const NOTHING = {text: "", state: "", order: "new", group: "", within: null, page: 0};
let view = NOTHING;

const ORDERS = {
  new: ["Newest first", null],
  title: ["By title", (a, b) => a.title.localeCompare(b.title)],
  end: ["Ends soonest", (a, b) => (a.ends_at ?? "9").localeCompare(b.ends_at ?? "9")],
};

/* A group's value in the address begins with "=", so that the one of coupons without a value has a name, too. */
function readView() {
  const within = given("within"),
    order = given("sort"),
    state = given("state");

  return {
    text: given("q"),
    state: STATE_OPTIONS.some(([name]) => name === state) ? state : "",
    order: Object.hasOwn(ORDERS, order) ? order : NOTHING.order,
    group: given("group"),
    within: within ? {value: within.startsWith("=") ? within.slice(1) : null} : null,
    page: Math.max(0, Math.floor(Number(given("page")) - 1) || 0),
  };
}

function keepView({text, state, order, group, within, page}) {
  keep({
    q: text,
    state,
    sort: order === NOTHING.order ? null : order,
    group,
    within: within && (within.value === null ? "none" : `=${within.value}`),
    page: page ? String(page + 1) : null,
  });
}

/* ---- groups: by a member of the metadata that is neither object nor array ---- */

const isScalar = (value) => value !== null && typeof value !== "object";
const groupOf = ({metadata}, name) => (Object.hasOwn(metadata, name) && isScalar(metadata[name]) ? String(metadata[name]) : null);

const groupKey = (value) => `g-${JSON.stringify(value)}`;

/* The names that there are, the most usual first. */
function groupNames(coupons) {
  const uses = new Map();

  for (const {metadata} of coupons)
    for (const [name, value] of Object.entries(metadata)) if (isScalar(value)) uses.set(name, (uses.get(name) ?? 0) + 1);
  return [...uses]
    .sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]))
    .map(([name]) => name)
    .slice(0, NAMES_MOST);
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
  return [...groups].sort((a, b) => b[1].redeemed - a[1].redeemed || b[1].coupons - a[1].coupons || (a[0] ?? "").localeCompare(b[0] ?? ""));
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

  for (const {coupon, redeemed} of (await get(report, signal).catch(() => ({items: []}))).items) (hours[coupon] ??= []).push(redeemed);
  return hours;
}

/* Counts: {id: {...}}; one that fails fails alone. */
async function readCounts(coupons, signal) {
  const counts = {};

  await several(coupons.map((c) => async () => {
    counts[c.id] = await get(path(c.id, "counts"), signal).catch(() => null);
  }));
  return counts;
}

function rateCell(hours) {
  if (!hours) return "\u2013";
  const day = hours.reduce((sum, n) => sum + n, 0);

  return el("div", {class: "rate"},
    sparkline(hours, `${number(day)} used in 24 hours`),
    el("span", {class: "small"}, `${number(hours.at(-1))} this hour, ${number(day)} in 24 h`));
}

function row(coupon, counts, hours) {
  return [
    couponTitle(coupon),
    [stateBadge(coupon), counts ? warnings(coupon, counts).map(([kind, text]) => [" ", el("span", {class: `badge ${kind}`}, text)]) : null],
    counts
      ? [stock(coupon, counts), el("div", {class: "small"}, stockText(coupon, counts))]
      : counts === null
        ? "unknown just now"
        : "\u2026",
    rateCell(hours),
    coupon.ends_at ? [moment(coupon.ends_at, zoneFor(coupon.time_zone)), el("div", {class: "small"}, zoneFor(coupon.time_zone))] : "open",
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
    this.newest = 0;
    this.figured = Promise.resolve(); // when the figures of the last reading are there
  }

  /* Its figures are read at once with the first coupons, then with every reading. */
  take({coupons, more = false, incomplete = false, reading = false}) {
    const first = this.coupons.length === 0;

    Object.assign(this, {coupons, more, incomplete, reading});
    this.onNames(groupNames(coupons));
    this.draw();
    if (first || !reading) this.figured = this.figured.then(() => this.figure());
  }

  page() {
    const all = found(this.coupons);
    const at = Math.max(0, Math.min(view.page, Math.ceil(all.length / PAGE) - 1));

    if (!this.reading) view.page = at; // else the page may come yet
    return {all, at, shown: all.slice(at * PAGE, (at + 1) * PAGE)};
  }

  draw() {
    const {all, at, shown} = this.page(),
      key = document.activeElement?.dataset.key;

    this.status.textContent =
      `${plural(all.length, "coupon")}${all.length < this.coupons.length ? ` of ${number(this.coupons.length)}` : ""}` +
      (this.reading ? " so far; reading the rest\u2026" : "") +
      (this.more ? `. Only the newest ${number(this.coupons.length)} are searched.` : "") +
      (this.incomplete ? ". At least one is missing: its stored definition cannot be read." : "");
    const next = all.length === 0 ? el("div", {}, this.nothing()) : isGrouped() ? this.groups(all) : this.rows(all, shown, at);

    if (this.box.firstChild?.isEqualNode(next)) return;
    replace(this.box, next);
    if (key && !document.activeElement?.dataset.key)
      this.box.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({preventScroll: true});
  }

  rows(all, shown, at) {
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
      table("Coupons", ["Coupon", "State", "Stock", "Used", "Ends"],
        shown.map((c) => row(c, this.counts[c.id], this.hours[c.id])),
        "cards coupons"),
      this.pager(all.length, at),
    );
  }

  groups(all) {
    return el(
      "div",
      {},
      table(`Coupons by ${view.group}`, [view.group, "Coupons", "Used", "Reversed", "Discount given"],
        sums(all, view.group, this.totals).map(([value, sum]) => [
          button(value ?? el("em", {}, "none"), () => this.enter({value}), {data: {key: groupKey(value)}}),
          number(sum.coupons),
          ...(this.totals ? [number(sum.redeemed), number(sum.reversed), discountText(sum.discount)] : ["\u2026", "\u2026", "\u2026"]),
        ]),
        "cards numbers"),
    );
  }

  /* A group: its coupons; null: all groups. */
  enter(within) {
    const key = within ? "all-groups" : groupKey(view.within.value);

    view = {...view, within, page: 0};
    this.change();
    this.box.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  }

  nothing() {
    if (this.reading) return empty("None so far.");
    if (this.coupons.length)
      return empty("No coupon matches. ", button("Show all", () => this.reset()));
    return empty("There are no coupons yet. ",
      session.isOps ? "Create the first one with \u201cNew coupon\u201d." : "Somebody with a key of the role ops can create one.");
  }

  reset() {
    view = {...NOTHING, order: view.order};
    this.onReset();
    this.change();
  }

  pager(count, at) {
    const last = Math.ceil(count / PAGE) - 1;
    if (last === 0) return null;
    const go = (by) => () => {
      view.page = at + by;
      this.change();
    };
    return el("div", {class: "pager"},
      button("Previous", go(-1), {disabled: at === 0, data: {key: "previous"}}),
      `Page ${number(at + 1)} of ${number(last + 1)}`,
      button("Next", go(1), {disabled: at === last, data: {key: "next"}}));
  }

  change() {
    this.draw();
    keepView(view);
    this.figure();
  }

  /* Read the figures of what is shown; of several such readings only the last one counts. */
  async figure() {
    const mine = ++this.newest,
      {shown} = this.page();
    if (shown.length === 0) return;
    if (isGrouped()) {
      const totals = await readTotals(this.signal).catch(() => this.totals);

      if (mine !== this.newest || this.signal.aborted) return;
      this.totals = totals;
      this.draw();
      return;
    }
    const hoursOf = `${Math.floor(Date.now() / MINUTE_MS)} ${shown.map((c) => c.id)}`;
    const [counts, hours] = await Promise.all([
      readCounts(shown, this.signal),
      hoursOf === this.hoursOf ? this.hours : readHours(shown, this.signal),
    ]);

    if (mine !== this.newest || this.signal.aborted) return;
    Object.assign(this, {counts, hours, hoursOf});
    this.draw();
  }
}

function filters(list) {
  const text = el("input", {type: "search", id: "search", placeholder: "Title or id", "aria-label": "Search by title or id"});
  const state = choice({"aria-label": "State"}, [["", "Any state"], ...STATE_OPTIONS]);
  const order = choice({"aria-label": "Order"}, Object.entries(ORDERS).map(([value, [name]]) => [value, name]));
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

    view = {text: text.value.trim(), state: state.value, order: order.value, group: group.value, within, page: 0};
    list.change();
  };

  set();
  list.onReset = set;
  list.onNames = (found) => {
    const all = [...new Set([...found, view.group].filter(Boolean))]; // the chosen one is perhaps read later

    if (names?.join("\n") === all.join("\n")) return;
    names = all;
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
  view = readView();
  const list = new List(signal);
  const p = panel("Coupons", {
    signal,
    every: 10,
    level: "h1",
    kind: "plain",
    async load(s, show) {
      await list.figured; // on a slow line they are not asked for twice
      const all = await readCoupons(s, show);

      return {read: Date.now(), ...(list.coupons.length ? await refresh(list.page().shown, s) : all)};
    },
    draw(body, value) {
      if (!body.contains(list.box)) replace(body, filters(list), list.status, list.box);
      list.take(value);
    },
  });

  if (session.isOps) p.head.append(button("New coupon", () => openCreate(signal), {class: "primary"}));
  replace(main, p.node);
}
