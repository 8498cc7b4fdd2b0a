/* dashboard/lookup.js -- what one user holds, what one code is, the latest redemptions; and giving one back. */
import {call, get, path, query, session} from "./api.js";
import {button, el, replace, table, toast, uniqueId} from "./dom.js";
import {confirm} from "./form.js";
import {money, number, plural, time} from "./format.js";
import {empty, failure, panel} from "./panel.js";

const LATEST = 10,
  MORE = 50,
  MOST = 1000;

const state = (text) => el("span", {class: `badge ${text}`}, text);

/* ---- giving back ---- */

function reverseButton(coupon, id, user, done, signal) {
  const act = async () => {
    await call("POST", path(coupon, "redemptions", id, "reverse"));
    toast(`${id} was reversed: the slot is free again.`);
    done();
  };

  return button(
    "Reverse",
    () =>
      confirm(
        "Reverse this redemption?",
        `${id}${user ? ` of ${user}` : ""}: the capacity comes back, also to the user. The ledger keeps both. It cannot be undone.`,
        "Reverse",
        act,
        signal,
      ),
    {data: {key: `reverse-${id}`}, "aria-label": `Reverse ${id}`},
  );
}

function metadata(redemption) {
  const text = JSON.stringify(redemption.metadata ?? {}),
    key = `metadata-${redemption.id}`;

  return text === "{}"
    ? null
    : el("details", {class: "small", data: {key}}, el("summary", {}, "Metadata"), el("code", {}, text));
}

/* coupon: its definition. */
export function redemptionTable(coupon, items, done, signal) {
  const zone = coupon.time_zone,
    currency = coupon.discount.currency;
  const discounted = items.some((r) => r.discount_minor > 0);
  const columns = ["Id", "User", "State", `Taken (${zone})`, "Order", ...(discounted ? ["Discount"] : []), ""];

  return table(
    "Redemptions",
    columns,
    items.map((r) => [
      [el("code", {}, r.id), r.code ? el("div", {class: "small"}, r.code) : null],
      r.user === null ? el("em", {}, "erased") : r.user,
      [
        state(r.state),
        r.reserved_until && r.state === "reserved"
          ? el("div", {class: "small"}, `until ${time(r.reserved_until, zone)}`)
          : null,
      ],
      time(r.at, zone),
      [r.order ?? "\u2013", metadata(r)],
      ...(discounted ? [money(r.discount_minor, currency)] : []),
      r.state === "redeemed" && session.isOps ? reverseButton(coupon.id, r.id, r.user, done, signal) : null,
    ]),
    "cards",
  );
}

export function latestPanel(id, definition, done, signal) {
  let limit = LATEST;
  const p = panel("Latest redemptions", {
    signal,
    every: 5,
    load: async (s) => ({coupon: (await definition()).value, ...(await get(query(path(id, "redemptions"), {limit}), s))}),
    draw(body, {coupon, items, next}) {
      replace(
        body,
        items.length ? redemptionTable(coupon, items, done, signal) : empty("Nobody has taken one yet."),
        next && limit < MOST ? el("p", {class: "older"}, button("Show older ones", older, {data: {key: "older"}})) : null,
      );
    },
  });

  function older() {
    limit = Math.min(MOST, limit + MORE);
    p.refresh();
  }
  return p;
}

/* ---- looking up ---- */

async function findUser(coupon, user, done, signal) {
  const [use, definition] = await Promise.all([get(path(coupon, "users", user), signal), get(path(coupon), signal)]);
  const {redemptions} = use;
  const left = use.remaining === null ? "" : `; ${number(use.remaining)} more may be taken`;

  return [
    el("h3", {}, user),
    el("p", {}, `Holds ${number(use.total)}, ${number(use.today)} of them from today${left}.`),
    redemptions.length
      ? redemptionTable(definition, redemptions, done, signal)
      : empty("This user never took this coupon, or it is long over."),
  ];
}

async function findWallet(user, signal) {
  const {items, next} = await get(path("-", "users", user), signal);

  return [
    el("h3", {}, user),
    items.length
      ? table(
          "Wallet",
          ["Coupon", "Holds", "May still take", "Today"],
          items.map((i) => [
            el("a", {href: `#/coupon/${encodeURIComponent(i.coupon)}`}, i.coupon),
            number(i.held),
            number(i.remaining),
            number(i.remaining_today),
          ]),
          "cards",
        )
      : empty("This user holds nothing, and there is nothing active to take."),
    next ? el("p", {class: "small"}, `The first ${plural(items.length, "coupon")}; there are more.`) : null,
  ];
}

async function findCode(coupon, code, done, signal) {
  const found = await get(path(coupon, "codes", code), signal);
  const slot = await get(path(coupon, "slots", String(found.slot)), signal);
  const zone = (await get(path(coupon), signal)).time_zone;

  return [
    el("h3", {}, code),
    el(
      "p",
      {},
      state(found.state),
      ` Slot ${number(found.slot)}`,
      found.user ? `, of ${found.user}` : "",
      found.at ? `, since ${time(found.at, zone)} (${zone})` : "",
    ),
    slot.history.length
      ? table(
          "History",
          ["Id", "User", "State", "Since", "Ended", ""],
          slot.history.map((h) => [
            el("code", {}, h.id),
            h.user ?? "\u2013",
            state(h.state),
            time(h.at, zone),
            time(h.ended_at, zone),
            h.state === "redeemed" && session.isOps ? reverseButton(coupon, h.id, h.user, done, signal) : null,
          ]),
          "cards",
        )
      : empty("Nobody has had this code yet."),
  ];
}

const WHY = {
  code_not_found: "There is no such code in this coupon.",
  coupon_not_found: "There is no coupon with this id.",
  forbidden: "Codes are for keys of the role ops alone.",
};

/* coupon: an id; null: the form asks for one (a user is looked up everywhere without). changed(): something was reversed. */
export function lookup(coupon, changed, signal, level = "h2") {
  const ids = ["value", "what", "coupon"].map((name) => uniqueId(name));
  const value = el("input", {
    id: ids[0],
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    autocapitalize: "off",
  });
  const what = el(
    "select",
    {id: ids[1]},
    el("option", {value: "user"}, "User"),
    session.isOps ? el("option", {value: "code"}, "Code") : null,
  );
  const where = el("input", {id: ids[2], type: "text", autocomplete: "off", spellcheck: "false", placeholder: "all"});
  const box = el("div", {role: "status"});
  const field = (id, text, input) => el("div", {class: "field"}, el("label", {for: id}, text), input);
  const form = el(
    "form",
    {class: "filters", novalidate: true},
    field(ids[1], "What", what),
    field(ids[0], "Name or code", value),
    coupon ? null : field(ids[2], "Coupon's id", where),
    el("button", {type: "submit"}, "Look up"),
  );

  async function run() {
    const text = what.value === "code" ? value.value.trim() : value.value,
      id = coupon ?? where.value.trim();
    const again = () => {
      changed();
      run();
    };
    if (!text || (what.value === "code" && !id))
      return replace(box, el("p", {class: "error"}, text ? "A code needs its coupon's id." : "Type a user or a code."));
    replace(box, el("p", {class: "loading"}, "Looking\u2026"));
    try {
      replace(
        box,
        what.value === "code"
          ? await findCode(id, text, again, signal)
          : id
            ? await findUser(id, text, again, signal)
            : await findWallet(text, signal),
      );
    } catch (problem) {
      if (!signal.aborted) replace(box, problem.code in WHY ? empty(WHY[problem.code]) : failure(problem, run));
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  return el(
    "section",
    {class: "panel", "aria-label": "Look up"},
    el("div", {class: "head"}, el(level, {}, "Look up a user or a code")),
    form,
    box,
  );
}

export function showLookup(main, parameters, signal) {
  replace(
    main,
    lookup(null, () => {}, signal, "h1"),
  );
}
