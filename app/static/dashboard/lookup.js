/* dashboard/lookup.js -- what goes by a user, an order, a code or an id; a coupon's redemptions; and what can be done with one. */
import {given, keep, zoneFor} from "./address.js";
import {call, get, getAll, newKey, path, query, session, several} from "./api.js";
import {disableButton} from "./codes.js";
import {button, choice, el, replace, table, toast, uniqueId} from "./dom.js";
import {confirm} from "./form.js";
import {fromWall, money, number, plural, time} from "./format.js";
import {empty, failure, panel} from "./panel.js";
import {REDEMPTION_STATES, couponLink, hasCodes, stateWord, word} from "./parts.js";
import {saveButton} from "./save.js";

const LATEST = 10,
  MORE = 50,
  MOST = 1000,
  REACH = 2; /* pages that are read of a list with a filter, which each look at some thousand takings */

/* Why a user or an order may not be found. */
const ENDED = "What ended more than 7 days ago is found by its code or id, or in its coupon's list without a user and an order.";

/* ---- what can be done with one ---- */

/* By its state: the verbs. By the verb: [name, what it means, what the toast says when it is done]. */
const ACTIONS = {issued: ["redeem", "cancel"], reserved: ["redeem", "cancel"], redeemed: ["reverse"]};
const VERBS = {
  redeem: ["Redeem", "it is used. This can be reversed.", "was redeemed."],
  cancel: ["Cancel", "it ends, and what it held is as it was before.", "was cancelled."],
  reverse: ["Reverse", "it is free again, and the user may take another. This cannot be undone.", "was reversed: it is free again."],
};

function actionButton(verb, {coupon, id, user}, done, signal) {
  const [name, means, result] = VERBS[verb];
  const ask = () => {
    const headers = verb === "redeem" ? {"Idempotency-Key": newKey()} : {}; // pressed twice, it happens once
    const act = async () => {
      await call("POST", path(coupon, "redemptions", id, verb), {headers});
      toast(`${id} ${result}`);
      done();
    };

    confirm(`${name} this redemption?`, `${id}${user ? ` of ${user}` : ""}: ${means}`, name, act, signal);
  };

  return button(name, ask, {data: {key: `${verb}-${coupon}-${id}`}, "aria-label": `${name} ${id}`});
}

/* redemption: at least its coupon, id, state and user. */
function actions(redemption, done, signal) {
  if (!session.isOps) return null;
  return el("div", {class: "actions"}, (ACTIONS[redemption.state] ?? []).map((verb) => actionButton(verb, redemption, done, signal)));
}

function metadata(redemption) {
  const text = JSON.stringify(redemption.metadata ?? {}),
    key = `metadata-${redemption.id}`;

  return text === "{}" ? null : el("details", {class: "small", data: {key}}, el("summary", {}, "Metadata"), el("code", {}, text));
}

/* coupons: the definitions of all that the items are of; with `one` they are of that one alone, whose name goes without saying. */
function redemptionTable(coupons, items, done, signal, one = null) {
  const discounted = items.some((r) => r.discount_minor > 0),
    zoneOf = (r) => zoneFor(coupons[r.coupon]?.time_zone ?? "UTC");
  const columns = [
    ...(one ? [] : ["Coupon"]),
    items.some((r) => r.code) ? "Code, id" : "Id",
    "User",
    "State",
    one ? `Taken (${zoneFor(one.time_zone)})` : "Taken",
    "Order",
    ...(discounted ? ["Discount"] : []),
    "",
  ];

  return table("Redemptions", columns,
    items.map((r) => [
      ...(one ? [] : [couponLink(r.coupon)]),
      r.code ? [el("code", {}, r.code), el("div", {class: "small"}, r.id)] : el("code", {}, r.id),
      r.user === null ? el("em", {}, "erased") : r.user,
      [
        stateWord(r.state),
        r.reserved_until && r.state === "reserved" ? el("div", {class: "small"}, `until ${time(r.reserved_until, zoneOf(r))}`) : null,
      ],
      [time(r.at, zoneOf(r)), one ? null : el("div", {class: "small"}, zoneOf(r))],
      [r.order ?? "\u2013", metadata(r)],
      ...(discounted ? [money(r.discount_minor, r.money[0]?.currency)] : []),
      actions(r, done, signal),
    ]),
    "cards");
}

/* ---- a coupon's, by user, order, state and time ---- */

/* The address of the list that passes. A coupon's own list has orders only with their users: an order alone is looked for in all coupons. */
function listAddress(id, filter) {
  return filter.order && !filter.user ? path("-", "redemptions") : path(id, "redemptions");
}

const FILTERS = ["user", "order", "state", "from", "to"];

/* What the address says of it. */
function readFilter() {
  const filter = Object.fromEntries(FILTERS.map((name) => [name, given(name)])),
    isTime = (text) => /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text) && !Number.isNaN(Date.parse(text));

  return {
    ...filter,
    state: REDEMPTION_STATES.includes(filter.state) ? filter.state : "",
    from: isTime(filter.from) ? filter.from : "",
    to: isTime(filter.to) ? filter.to : "",
  };
}

function filterForm(filter, changed) {
  const inputs = {
    user: el("input", {type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off"}),
    order: el("input", {type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off"}),
    state: choice({}, [["", "Any"], ...REDEMPTION_STATES.map((name) => [name, word(name)])]),
    from: el("input", {type: "datetime-local"}),
    to: el("input", {type: "datetime-local"}),
  };
  const labels = {user: "User", order: "Order", state: "State", from: "Taken from", to: "Taken before"};
  const fields = Object.entries(inputs).map(([name, input]) => {
    input.id = uniqueId(name);
    input.value = filter[name];
    return el("div", {class: "field"}, el("label", {for: input.id}, labels[name]), input);
  });

  for (const input of Object.values(inputs))
    input.addEventListener("change", () => changed(Object.fromEntries(Object.entries(inputs).map(([name, {value}]) => [name, value]))));
  return el("details", {open: Object.values(filter).some(Boolean)}, el("summary", {}, "Filter"),
    el("div", {class: "filters", role: "search"}, fields));
}

/* The texts of the form as the service's parameters; times are of the zone in which times are shown. */
const parametersOf = ({from, to, ...rest}, zone) => ({
  ...rest,
  from: from ? fromWall(from, zone) : null,
  to: to ? fromWall(to, zone) : null,
});

function whyNone(filter, more) {
  if (more) return "No redemptions match among the newest.";
  if (filter.user || filter.order) return `No redemptions match. ${ENDED}`;
  return Object.values(filter).some(Boolean) ? "No redemptions match." : "Nobody has taken one yet.";
}

export function latestPanel(id, definition, done, signal) {
  let limit = LATEST,
    reach = REACH,
    filter = readFilter();
  const p = panel("Latest redemptions", {
    signal,
    every: 5,
    async load(s) {
      const chosen = filter,
        coupon = (await definition()).value;
      const parameters = parametersOf(chosen, zoneFor(coupon.time_zone));
      const {items, more} = await getAll(listAddress(id, chosen), parameters, limit, s, reach);

      return {coupon, items: items.filter((r) => r.coupon === id), more, limit, chosen};
    },
    draw(body, {coupon, items, more, chosen}) {
      replace(
        body,
        items.length ? redemptionTable({[id]: coupon}, items, done, signal, coupon) : empty(whyNone(chosen, more)),
        more && limit < MOST
          ? el("p", {class: "older"}, button(items.length ? "Show older ones" : "Look further", older, {data: {key: "older"}}))
          : null,
      );
    },
  });
  const save = saveButton("Save all as CSV",
    async () => query(path(id, "redemptions"), parametersOf(filter, zoneFor((await definition()).value.time_zone))),
    `${id}-redemptions.csv`,
    signal,
    {data: {key: "save"}});

  p.head.append(save);
  p.head.after(filterForm(filter, (chosen) => {
    filter = chosen;
    limit = LATEST;
    reach = REACH;
    save.hidden = Boolean(filter.order && !filter.user);
    keep(filter);
    p.refresh();
  }));
  save.hidden = Boolean(filter.order && !filter.user);

  function older() {
    limit = Math.min(MOST, limit + MORE);
    reach += REACH;
    p.refresh();
  }
  return p;
}

/* ---- looking up ---- */

/* What is there, or null where there is no such thing. */
const getIfThere = (address, signal) =>
  get(address, signal).catch((problem) => {
    if (problem.status === 404) return null;
    throw problem;
  });

/* The definitions of the coupons that redemptions are of. */
async function couponsOf(items, signal) {
  const coupons = {};

  await several([...new Set(items.map((r) => r.coupon))].map((id) => async () => {
    coupons[id] = await getIfThere(path(id), signal);
  }));
  return coupons;
}

async function findUser(coupon, user, done, signal) {
  const use = await get(path(coupon.id, "users", user), signal);
  const left = use.remaining === null ? "" : `; ${number(use.remaining)} more may be taken`;

  if (!use.redemptions.length) return null;
  return [
    el("h3", {}, `User ${user}`),
    el("p", {}, `Holds ${number(use.total)}, ${number(use.today)} of them from today${left}.`),
    redemptionTable({[coupon.id]: coupon}, use.redemptions, done, signal, coupon),
  ];
}

async function wallet(user, signal) {
  const {items, next} = await get(path("-", "users", user), signal);

  if (!items.length) return null;
  return [
    table("Wallet", ["Coupon", "Holds", "May still take", "Today"],
      items.map((i) => [couponLink(i.coupon), number(i.held), number(i.remaining), number(i.remaining_today)]),
      "cards"),
    next ? el("p", {class: "small"}, `The first ${plural(items.length, "coupon")}; there are more.`) : null,
  ];
}

/* Of a user or an order, in all coupons, or in `one`. */
async function findAll(name, by, one, done, signal) {
  const {items, more} = await getAll(path("-", "redemptions"), by, MOST, signal);
  const found = one ? items.filter((r) => r.coupon === one.id) : items;

  if (!found.length) return null;
  return [
    el("h3", {}, name),
    redemptionTable(one ? {[one.id]: one} : await couponsOf(found, signal), found, done, signal, one),
    more ? el("p", {class: "small"}, `The newest ${number(MOST)}; there are more.`) : null,
    by.user ? await wallet(by.user, signal) : null,
  ];
}

async function findId(coupon, id, done, signal) {
  const redemption = /^(L\d+-)?\d+-[1-9]\d*$/.test(id) && (await getIfThere(path(coupon.id, "redemptions", id), signal));

  if (!redemption) return null;
  return [el("h3", {}, `Redemption ${id}`), redemptionTable({[coupon.id]: coupon}, [redemption], done, signal, coupon)];
}

/* all: it is looked for in all coupons, and the heading names its coupon. */
async function findCode(coupon, code, all, done, signal) {
  const found = session.isOps && hasCodes(coupon) && (await getIfThere(path(coupon.id, "codes", code), signal));

  if (!found) return null;
  const slot = await get(path(coupon.id, "slots", String(found.slot)), signal);
  const zone = zoneFor(coupon.time_zone);

  return [
    el("h3", {}, `Code ${code}`, all ? [" in ", couponLink(coupon.id)] : null),
    el("p", {}, stateWord(found.state), found.user ? ` of ${found.user}` : "",
      found.at ? ` since ${time(found.at, zone)} (${zone})` : "",
      ["free", "issued"].includes(found.state) ? [" ", disableButton(coupon.id, code, done, signal)] : null),
    slot.history.length
      ? table(
          "History",
          ["Id", "User", "State", "Since", "Ended", ""],
          slot.history.map((h) => [
            el("code", {}, h.id),
            h.user ?? "\u2013",
            stateWord(h.state),
            time(h.at, zone),
            time(h.ended_at, zone),
            actions({...h, coupon: coupon.id}, done, signal),
          ]),
          "cards",
        )
      : empty("Nobody has had this code yet."),
  ];
}

async function findCodes(code, done, signal) {
  const {items} = session.isOps ? await get(query(path("-", "codes"), {code}), signal) : {items: []};
  const found = items.map(async (item) =>
    item.slot === null
      ? [el("h3", {}, `Code ${item.code}`, " in ", couponLink(item.coupon)), el("p", {}, "Anybody may use it.")]
      : findCode(await get(path(item.coupon), signal), code, true, done, signal),
  );

  return items.length ? Promise.all(found) : null;
}

/* Whatever goes by this text. An id is found in its coupon alone: many have the same. Names may have spaces around them, and so may what
 * was pasted. */
async function findAnything(id, text, done, signal) {
  const coupon = id ? await get(path(id), signal) : null,
    trimmed = text.trim();
  const asItIs = async (find) => (await find(text)) ?? (trimmed === text ? null : find(trimmed));
  const found = await Promise.all([
    asItIs((user) => (coupon ? findUser(coupon, user, done, signal) : findAll(`User ${user}`, {user}, null, done, signal))),
    asItIs((order) => findAll(`Order ${order}`, {order}, coupon, done, signal)),
    coupon ? findCode(coupon, trimmed, false, done, signal) : findCodes(trimmed, done, signal),
    coupon ? findId(coupon, trimmed, done, signal) : null,
  ]);

  if (found.some(Boolean)) return found;
  return empty(coupon ? `No match in this coupon. ${ENDED}` : `No match. ${ENDED} To find an id, also give its coupon.`);
}

const WHY = {coupon_not_found: "There is no coupon with this id."};

/* coupon: an id; null: the form asks for one (all but ids is found without). changed(): something was redeemed or given back. */
export function lookup(coupon, changed, signal, level = "h2") {
  const ids = ["value", "coupon"].map((name) => uniqueId(name));
  const value = el("input", {id: ids[0], type: "search", autocomplete: "off", spellcheck: "false", required: true, autocapitalize: "off"});
  const where = el("input", {id: ids[1], type: "text", autocomplete: "off", spellcheck: "false", placeholder: "all"});
  const box = el("div", {role: "status"});
  const field = (id, text, input) => el("div", {class: "field wide"}, el("label", {for: id}, text), input);
  const form = el("form", {class: "filters", novalidate: true},
    field(ids[0], session.isOps ? "User, order, code or id" : "User, order or id", value),
    coupon ? null : field(ids[1], "Coupon ID (needed for an id)", where),
    el("button", {type: "submit"}, "Look up"));
  let newest = 0;

  async function run() {
    const text = value.value,
      mine = ++newest,
      show = (...what) => mine === newest && replace(box, ...what); // of several only the last one counts
    const again = () => {
      changed();
      run();
    };

    keep({look: text, in: where.value.trim()});
    if (!text.trim()) return show(el("p", {class: "error"}, "Type a user, an order, a code or an id."));
    show(el("p", {class: "loading"}, "Looking\u2026"));
    try {
      show(await findAnything(coupon ?? where.value.trim(), text, again, signal));
    } catch (problem) {
      if (!signal.aborted) show(problem.code in WHY ? empty(WHY[problem.code]) : failure(problem, run));
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  value.value = given("look");
  where.value = coupon ? "" : given("in");
  if (value.value) run();
  return el("section", {class: "panel", "aria-label": "Look up"}, el("div", {class: "head"}, el(level, {}, "Look up")), form, box);
}

export function showLookup(main, parameters, signal) {
  replace(main, lookup(null, () => {}, signal, "h1"));
}
