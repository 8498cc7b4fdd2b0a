/*
 * dashboard/change.js -- the forms that create, clone and change a coupon, and the buttons that move and delete it.
 *
 * Change  sends only what was changed, with If-Match: who was overtaken sees what the other one did, and decides
 */
import {call, get, getTagged, newKey, patch, path} from "./api.js";
import {button, el, replace, table, toast} from "./dom.js";
import {ask, confirm, openForm, setAt, valueAt} from "./form.js";
import {browserZone, moment, money, number, plural} from "./format.js";
import {openSlots} from "./jobs.js";
import {STATE_OPTIONS, hasCodes} from "./parts.js";

const has = (at, ...values) => (texts) => values.includes(texts[at]);
const discounted = (texts) => texts["/discount/kind"] !== "none";

const CAPS = [
  {at: "/cap/total", label: "Total", type: "whole", hint: "The most there may be. Empty: no limit, or as many as are imported"},
  {at: "/cap/per_day", label: "Per day", type: "whole", hint: "Empty: no limit"},
  {at: "/cap/per_user", label: "Per user", type: "whole"},
  {at: "/cap/per_user_per_day", label: "Per user and day", type: "whole", hint: "Empty: no limit"},
  {at: "/cap/discount_minor", label: "Budget for discounts", type: "money", hint: "In the currency. Empty: no limit"},
];
const STOCK = [
  {at: "/low_stock", label: "Warn when at most this many are free", type: "whole", hint: "Empty: no warning"},
  {at: "/replenish/below", label: "Refill when fewer than this are free", type: "whole", hint: "Empty: no refill", more: true},
  {at: "/replenish/add", label: "Refill by", type: "whole", more: true},
];
const WINDOW = [
  {at: "/starts_at", label: "Starts", type: "time", hint: "In the coupon's time zone. Empty: at once"},
  {at: "/ends_at", label: "Ends", type: "time", hint: "Empty: never"},
];
const WORDS = [
  {at: "/title", label: "Title", required: true, most: 200},
  {at: "/description", label: "Description", type: "area", most: 2000},
];
const DISCOUNT = [
  {at: "/discount/kind", label: "Kind", type: "select",
   options: [["none", "None"], ["amount", "Amount"], ["percent", "Percent"], ["other", "Something else"]]},
  {at: "/discount/currency", label: "Currency", hint: "Such as EUR", when: discounted, most: 3},
  {at: "/discount/amount_minor", label: "Amount", type: "money", when: has("/discount/kind", "amount")},
  {at: "/discount/percent_bp", label: "Percent", type: "scaled", scale: 100, unit: "percent", when: has("/discount/kind", "percent")},
  {at: "/discount/max_minor", label: "At most", type: "money", hint: "Empty: no limit",
   when: has("/discount/kind", "percent")},
  {at: "/discount/label", label: "What it is", when: has("/discount/kind", "other"), most: 200},
  {at: "/discount/min_spend_minor", label: "From an order of", type: "money", when: discounted},
  {at: "/discount/only/categories", label: "Only for categories", type: "list", hint: "Separated by commas. Empty: all", when: discounted},
  {at: "/discount/only/skus", label: "Only for SKUs", type: "list", hint: "Separated by commas. Empty: all", when: discounted},
  {at: "/discount/except/categories", label: "Not for categories", type: "list", none: "none", hint: "Separated by commas. Empty: none",
   when: discounted},
  {at: "/discount/except/skus", label: "Not for SKUs", type: "list", none: "none", hint: "Separated by commas. Empty: none",
   when: discounted},
];
const generated = has("/codes/source", "generated"), imported = has("/codes/source", "imported"), shared = has("/codes/source", "shared");
const coded = has("/codes/source", "generated", "imported");
const CLAIMS = [["any", "Anybody: the next free code"], ["present", "Only whoever presents its code"]];
const MATCH = "Case, spaces and dashes in a code", MATCHES = [["loose", "Do not matter"], ["exact", "Matter"]];
const SHARED = [
  {at: "/codes/shared", label: "Which codes", type: "list", hint: "Such as SUMMER10, separated by commas. Up to 100", when: shared},
];
const CODES = [
  {at: "/codes/source", label: "Codes", type: "select",
   options: [["none", "None"], ["generated", "Generated here"], ["imported", "Imported from a file"], ["shared", "Shared: many use one"]]},
  ...SHARED,
  {at: "/codes/shared_cap", label: "Uses of each code", type: "whole", hint: "Empty: no limit", when: shared},
  {at: "/codes/length", label: "Length of a code", type: "whole", when: generated},
  {at: "/codes/prefix", label: "Prefix", when: generated, most: 16},
  {at: "/codes/pick", label: "Handed out", type: "select", when: coded,
   options: [["sequential", "One after the other"], ["random", "At random"]]},
  {at: "/codes/claim", label: "Who may take one", type: "select", when: generated, options: CLAIMS},
  {at: "/codes/claim", label: "Who may take one", type: "select", when: imported, options: CLAIMS.toReversed()},
  {at: "/codes/claim", label: "Who may take it", type: "select", when: shared,
   options: [["present", "Only whoever enters a code"], ["any", "Anybody, also without a code"]]},
  {at: "/codes/match", label: MATCH, type: "select", when: (texts) => generated(texts) || shared(texts), options: MATCHES},
  {at: "/codes/match", label: MATCH, type: "select", when: imported, options: MATCHES.toReversed()},
  {at: "/codes/unique", label: "No code twice", type: "select", when: coded,
   options: [["coupon", "In this coupon"], ["service", "In all coupons that ask for it"]]},
];
const SLOTS = [
  {at: "/generate", label: "Make its stock now", type: "check",
   when: (texts) => texts["/cap/policy"] === "exact" && !imported(texts),
   hint: "As many as the total, with their codes if it has any; without stock nobody can take it. From then on its time zone, kind of " +
     "limit, codes (but for the list of shared ones) and currency cannot be changed"},
];
const START = [
  {at: "/id", label: "Id", hint: "Letters, digits, _ and -; cannot be changed. Empty: generated", most: 64},
  {at: "/state", label: "State", type: "select", options: STATE_OPTIONS.slice(0, 3)},
  {at: "/time_zone", label: "Time zone", type: "zone", hint: "Its days begin at this zone's midnight"},
  {at: "/cap/policy", label: "Kind of limit", type: "select", options: [["exact", "Exact: never one too many"],
    ["approximate", "Approximate: may be exceeded a little"], ["none", "No total limit"]]},
];
const RARE = [
  {at: "/on_user_cap", label: "A user at their limit", type: "select",
   options: [["refuse", "is refused"], ["existing", "gets the one they have"]]},
  {at: "/reserve_s", label: "A checkout holds it for (minutes)", type: "scaled", scale: 60, unit: "minutes"},
  {at: "/valid_for_s", label: "Valid for (days) once handed out", type: "scaled", scale: 86400, unit: "days", hint: "Empty: no limit"},
  {at: "/cleanup_after_s", label: "Days after its end until what is free ends, too", type: "scaled", scale: 86400, unit: "days"},
].map((field) => ({...field, more: true}));

const ENGINEERING = [
  {at: "/lanes", label: "Lanes (for engineers)", type: "whole", more: true,
   when: (texts) => texts["/codes/source"] === "none" && !texts["/cap/per_day"] && !texts["/cap/discount_minor"],
   hint: "More than 1 for a coupon in very high demand; cannot be changed"},
];
const METADATA = [
  {at: "/metadata", label: "Metadata", type: "json", hint: 'A JSON object, such as {"campaign": "spring"}. The list groups by it'},
];
const DEFAULTS = {id: "", title: "", description: "", state: "draft", time_zone: "UTC", starts_at: null, ends_at: null,
  cap: {policy: "exact", total: null, per_user: 1}, discount: {kind: "none"}, codes: {source: "none", length: 10},
  on_user_cap: "refuse", reserve_s: 900, lanes: 1, cleanup_after_s: 2592000, generate: true};

/* ---- create, clone ---- */

function definition(values) {
  const body = {};

  for (const [at, value] of Object.entries(values)) if (value !== null && value !== "") setAt(body, at, value);
  return body;
}

/* The window of one that has ended would let nobody take the copy. */
const isOver = ({ends_at: end}) => end !== null && Date.parse(end) <= Date.now();
const copyOf = (coupon) => ({...coupon, ...(isOver(coupon) ? {starts_at: null, ends_at: null} : {}), id: "", title: [...`Copy of ${coupon.title}`].slice(0, 200).join(""), state: "draft", generate: true});

/* of: the coupon that it is to be like; none: a new one begins with what is usual. */
export function openCreate(signal, of = null) {
  let sent, key;

  openForm({
    title: of ? `Clone ${of.title}` : "New coupon",
    verb: "Create",
    intro: of && isOver(of) ? `The window of ${of.title} ended ${moment(of.ends_at, of.time_zone)}: the copy has none.` : undefined,
    signal,
    values: of ? copyOf(of) : {...DEFAULTS, time_zone: browserZone()},
    fields: [
      ...WORDS,
      ...START,
      "Limits",
      ...CAPS,
      "Dates",
      ...WINDOW,
      "Discount",
      ...DISCOUNT,
      "Codes and stock",
      ...CODES,
      ...SLOTS,
      ...STOCK,
      ...RARE,
      ...METADATA.map((field) => ({...field, more: true})),
      ...ENGINEERING,
    ],
    async submit(values) {
      const body = definition(values),
        text = JSON.stringify(body);

      if (text !== sent) [sent, key] = [text, newKey()]; // the same once more is a repeat
      const coupon = await call("POST", "/coupons", {body, headers: {"Idempotency-Key": key}});
      toast(`${coupon.title} was created.${coupon.job ? " Its codes are being made." : ""}`);
      location.hash = `#/coupon/${encodeURIComponent(coupon.id)}`;
      return true;
    },
  });
}

/* ---- change ---- */

const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

/* What differs from the definition, by pointer. */
const changed = (values, coupon) => Object.entries(values).filter(([at, value]) => !same(value, valueAt(coupon, at)));

/* What a field of a definition holds, for people. */
export function shown(field, value, currency, zone) {
  if (value === null || value === undefined || value === "") return "none";
  if (field.type === "time") return moment(value, zone);
  if (field.type === "money") return money(value, currency);
  if (field.type === "scaled") return number(value / field.scale);
  if (field.type === "list") return value.join(", ") || (field.none ?? "all");
  if (field.options) return field.options.find(([name]) => name === value)?.[1] ?? value;
  if (typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" ? number(value) : String(value);
}

/* The field at this pointer of a definition, whichever form has it; one that no form has is called as the API does. */
const ALL = [...WORDS, ...START, ...CAPS, ...WINDOW, ...DISCOUNT, ...CODES, ...STOCK, ...RARE, ...METADATA, ...ENGINEERING];
export const fieldAt = (at) => ALL.find((field) => field.at === at) ?? {label: at.slice(1).replaceAll(/[/_]/g, " ")};

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/* What makes `to` of `from` by RFC 7396: members that are gone are null. */
function mergePatch(from, to) {
  if (!isObject(from) || !isObject(to)) return to;
  const gone = Object.keys(from).filter((name) => !(name in to));
  const others = Object.keys(to).filter((name) => !same(from[name], to[name]));

  return Object.fromEntries([...gone.map((name) => [name, null]), ...others.map((name) => [name, mergePatch(from[name], to[name])])]);
}

/* Somebody else was faster: show what they did to what this form shows, and let the user choose. */
function showOvertaken(form, held, mine, fields, theirs) {
  const differs = fields.filter((f) => !same(valueAt(held.value, f.at), valueAt(theirs.value, f.at)));
  const text = (f, value, {discount, time_zone: zone}) => shown(f, value, discount.currency, zone);
  const rows = differs.map((f) => [
    f.label,
    text(f, valueAt(held.value, f.at), held.value),
    text(f, valueAt(theirs.value, f.at), theirs.value),
    form.touched.has(f.at) ? text(f, mine[f.at], held.value) : "\u2013",
  ]);
  const settle = (then) => () => {
    Object.assign(held, theirs);
    replace(form.trouble);
    then();
    form.body.querySelector("[type=submit]").focus();
  };
  const keep = button(
    "Keep mine",
    settle(() =>
      form.fields.rows.forEach((r) => {
        /* what I did not touch follows theirs: or saving would undo it */
        if (r.field.at in mine && !form.touched.has(r.field.at)) form.fields.set(r, theirs.value);
      }),
    ),
  );

  replace(
    form.trouble,
    el("div", {class: "failure", role: "alert"},
      el("p", {}, el("strong", {}, "Somebody else changed this coupon while you had it open. Nothing of yours was saved.")),
      rows.length
        ? table("What changed", ["", "You opened", "Now", "You typed"], rows)
        : el("p", {}, "What they changed is not in this form."),
      el("div", {class: "actions"}, keep, button("Take theirs", settle(() => form.fields.fill(theirs.value))))),
  );
  keep.focus();
}

/*
 * Change what `fields` show of the coupon `held` = {value, etag}; done(answer) when it is saved. besides(values, differs) promises what else
 * the change is to say, or null: it is not wanted.
 */
function openChange(title, fields, held, done, signal, besides = async () => ({})) {
  const address = path(held.value.id);
  const form = openForm({
    title,
    fields,
    values: held.value,
    verb: "Save",
    signal,
    async submit(values) {
      const differences = changed(values, held.value),
        body = {};
      let answer;

      form.touched = new Set(differences.map(([at]) => at));
      if (differences.length === 0) {
        toast("Nothing was changed.");
        return true;
      }
      differences.forEach(([at, value]) => setAt(body, at, mergePatch(valueAt(held.value, at), value)));
      const more = await besides(values, form.touched);

      if (!more) return false;
      try {
        answer = await patch(address, held.etag, {...body, ...more});
      } catch (problem) {
        if (problem.code !== "version_changed") throw problem;
        showOvertaken(form, held, values, fields, await getTagged(address));
        return false;
      }
      toast("Saved. It applies to every request from now on.");
      done(answer);
      return true;
    },
  });
}

const copy = (held) => ({...held});
const exists = (coupon) => (field) => coupon.cap.policy !== "none" || field.at !== "/cap/total";

/* A lower total ends what is free above it: that is asked, with how many those are. Null: they are to stay. */
async function mayEnd(coupon, total, signal) {
  if (total === null) return {};
  const {slots, free} = await get(path(coupon.id, "counts"), signal),
    ending = slots - total;
  const what = hasCodes(coupon) ? plural(ending, "free code") : `${number(ending)} of what is free`;
  const means = hasCodes(coupon) ? " Whoever has such a code on paper or in a mail cannot use it any more." : "";

  if (slots === null || ending <= 0 || ending > free) return {}; // below what is taken, the service refuses
  const wanted = await ask("Lower the total?",
    `There are ${number(slots)}. With a total of ${number(total)}, ${what} ${ending === 1 ? "ends" : "end"} for good.${means}`,
    "Lower it",
    signal);

  return wanted ? {retire: true} : null;
}

/* A higher total makes nothing by itself: what is missing is offered. */
async function offerMissing(coupon, done, signal) {
  const counts = coupon.slots_missing ? await get(path(coupon.id, "counts"), signal).catch(() => null) : null;

  if (counts) openSlots(coupon, counts, done, signal, coupon.cap.total);
}

export function openCaps(held, done, signal) {
  const before = held.value;

  openChange("Change limits",
    [...CAPS.filter(exists(before)), ...STOCK.map((f) => ({...f, more: false}))],
    copy(held),
    (after) => {
      done();
      if (after) offerMissing(after, done, signal);
    },
    signal,
    async (values, differs) => (differs.has("/cap/total") ? mayEnd(before, values["/cap/total"], signal) : {}));
}

export function openDetails(held, done, signal) {
  openChange("Change text and dates", [...WORDS, ...WINDOW], copy(held), done, signal);
}

export function openDiscount(held, done, signal) {
  openChange("Change the discount", DISCOUNT, copy(held), done, signal);
}

export function openShared(held, done, signal) {
  openChange("Change the codes", SHARED.map((field) => ({...field, when: undefined})), copy(held), done, signal);
}

export function openMetadata(held, done, signal) {
  openChange("Change metadata", METADATA, copy(held), done, signal);
}

/* ---- delete ---- */

export function deleteButton({id, title}, signal) {
  const act = async () => {
    await call("DELETE", path(id));
    toast(`${title} was deleted.`);
    location.hash = "#/";
  };
  const means = "Only a coupon that nobody has ever taken can be deleted. This cannot be undone.";

  return button("Delete", () => confirm("Delete this coupon?", means, "Delete", act, signal), {data: {key: "delete"}});
}

/* ---- state ---- */

const MOVES = {
  active: ["Activate", "Customers can take it from now on, within its window."],
  paused: ["Pause", "Nobody can take it until you resume. What is on hold for a checkout may still be used."],
  ended: ["End", "Nobody can take it any more. What is on hold for a checkout may still be used."],
};
const NEXT = {draft: ["active"], active: ["paused", "ended"], paused: ["active", "ended"], ended: ["active"]};

/* Buttons for the states that can follow. */
export function stateButtons(held, done, signal) {
  const {id, title, state} = held.value;

  return (NEXT[state] ?? []).map((next) => {
    const verb = state === "paused" && next === "active" ? "Resume" : MOVES[next][0];
    const act = async () => {
      try {
        await patch(path(id), held.etag, {state: next});
      } catch (problem) {
        if (problem.code === "version_changed") {
          problem.detail =
            "Somebody else changed it a moment ago. Nothing of yours was saved: close this, look at it as it is now, and " +
            "try again.";
          done();
        }
        throw problem;
      }
      toast(`${title}: ${verb.toLowerCase()} done.`);
      done();
    };
    return button(verb, () => confirm(`${verb} this coupon?`, MOVES[next][1], verb, act, signal), {data: {key: `state-${next}`}});
  });
}
