/* dashboard/history.js -- who changed a coupon: with which key, and what from what to what. */
import {get, path, query} from "./api.js";
import {button, el, replace, table} from "./dom.js";
import {number, plural, time} from "./format.js";
import {empty, panel} from "./panel.js";

const FIRST = 10,
  MOST = 1000;

const KINDS = {
  define: "Changed",
  delete: "Deleted",
  archive: "Archived",
  generate: "Slots added",
  due: "Slots to be retired",
  retire: "Slots retired",
  issue: "Issued",
  reserve: "Held",
  redeem: "Redeemed",
  hold: "Held",
  extend: "Hold extended",
  spend: "Redeemed",
  cancel: "Cancelled",
  reverse: "Reversed",
  erase: "User erased",
};

/* A new coupon has a title where there was none. */
function kindText({kind, changes}) {
  const isNew = kind === "define" && changes.some((c) => c.path === "/title" && c.from === null);

  return isNew ? "Created" : (KINDS[kind] ?? kind);
}

function subject({kind, redemption, count}) {
  if (redemption) return el("span", {}, " ", el("code", {}, redemption));
  return count !== null && kind !== "define" ? `: ${plural(count, "slot")}` : null;
}

function valueText(field, value, zone) {
  if (value === null) return "none";
  if (typeof value === "number") return number(value);
  if (typeof value !== "string") return JSON.stringify(value);
  return field.endsWith("_at") ? time(value, zone) : value;
}

function change({path: pointer, from, to}, zone) {
  const show = (value) => valueText(pointer, value, zone);

  return el("li", {}, `${pointer.slice(1).replaceAll("/", ".")}: `, from === null ? null : `${show(from)} \u2192 `, show(to));
}

function row(item, zone) {
  return [
    time(item.at, zone),
    item.label ? el("span", {title: item.key}, item.label) : el("code", {}, item.key),
    el("span", {}, kindText(item), subject(item)),
    el(
      "ul",
      {class: "changes"},
      item.changes.map((c) => change(c, zone)),
    ),
  ];
}

export function historyPanel(page) {
  let limit = FIRST;
  const more = button("Show more", () => {
    limit = Math.min(MOST, limit * 10);
    shown.refresh();
  });
  const shown = panel("History", {
    signal: page.signal,
    every: 10,
    load: async (s) => ({
      zone: (await page.definition()).value.time_zone,
      ...(await get(query(path(page.id, "history"), {limit}), s)),
    }),
    draw(body, {items, next, zone}) {
      if (items.length === 0) return replace(body, empty("No operator has changed anything."));
      replace(
        body,
        table(
          "What operators did",
          [`At (${zone})`, "Key", "What", "Changes"],
          items.map((item) => row(item, zone)),
          "cards",
        ),
        next && limit < MOST ? more : null,
      );
    },
  });

  return shown;
}
