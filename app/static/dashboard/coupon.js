/*
 * dashboard/coupon.js -- one coupon: live counts, charts, limits and dates, refusals, redemptions, its history; behind a fold at the end what
 * engineers look for, which is read only while that is open.
 */
import {lastOf, zoneFor} from "./address.js";
import {get, getLines, getTagged, path, query, session} from "./api.js";
import {deleteButton, openCaps, openCreate, openDetails, openDiscount, openMetadata, openShared, stateButtons} from "./change.js";
import {openDisable, openImport, saveCodes} from "./codes.js";
import {button, choice, el, pairs, replace, table} from "./dom.js";
import {moment, money, number, plural, share, time} from "./format.js";
import {historyPanel} from "./history.js";
import {addWords, jobsPanel, openSlots} from "./jobs.js";
import {latestPanel, lookup} from "./lookup.js";
import {empty, failure, panel} from "./panel.js";
import {hasCodes, legend, missingText, stateBadge, stock, stockText, warnings} from "./parts.js";
import {reportPanel} from "./reports.js";

const HEADS = 5;

/* ---- counts ---- */

function tiles(coupon, counts) {
  const rows = [
    ["Free", counts.free],
    ["Used", counts.redeemed],
    ["Handed out", counts.issued],
    ["On hold", counts.reserved],
    ["Today", counts.today],
    ["Discount given or on hold", counts.discount_minor ? money(counts.discount_minor, coupon.discount.currency) : null],
  ];

  return pairs(rows.map(([name, value]) => value !== null && [name, typeof value === "number" ? number(value) : value]), "tiles");
}

function countsPanel(page) {
  return panel("Now", {
    signal: page.signal,
    every: 2,
    kind: "wide",
    load: async (s) => ({coupon: (await page.definition()).value, counts: await get(path(page.id, "counts"), s)}),
    draw(body, {coupon, counts}) {
      page.counts = counts;
      replace(body,
        warnings(coupon, counts).map(([kind, , text]) => el("p", {class: `warning ${kind}`, role: "status"}, text)),
        tiles(coupon, counts),
        stock(coupon, counts),
        el("p", {class: "small"}, [stockText(coupon, counts), missingText(coupon, counts)].filter(Boolean).join(". ")),
        legend(),
        el("p", {class: "small"}, `As of ${time(counts.as_of, zoneFor(coupon.time_zone))} (${zoneFor(coupon.time_zone)})`));
    },
  });
}

/* ---- the definition ---- */

const limitText = (value) => (value === null ? "no limit" : number(value));
const SOURCES = {none: "none", generated: "generated here", imported: "imported"};
const codesText = ({source, shared, shared_cap: most}) =>
  source === "shared" ? `${shared.join(", ")}${most ? `, each used up to ${plural(most, "time")}` : ""}` : (SOURCES[source] ?? source);
const KINDS_OF_LIMIT = {exact: "exact", approximate: "may be exceeded a little", none: "none in all"};

function discountText({
  kind,
  currency,
  amount_minor: amount,
  percent_bp: percent,
  max_minor: most,
  min_spend_minor: least,
  label,
  only,
  except,
}) {
  const words = {
    none: "none",
    amount: money(amount, currency),
    other: label,
    percent: `${percent / 100} %${most ? `, at most ${money(most, currency)}` : ""}`,
  }[kind];

  const listed = (items) => [...(items?.categories ?? []), ...(items?.skus ?? [])].join(", ");

  return [
    words,
    least ? `from an order of ${money(least, currency)}` : null,
    listed(only) && `only for ${listed(only)}`,
    listed(except) && `not for ${listed(except)}`,
  ]
    .filter(Boolean)
    .join(", ");
}

function definitionRows(c) {
  const zone = zoneFor(c.time_zone),
    budget = c.cap.discount_minor === null ? "no limit" : money(c.cap.discount_minor, c.discount.currency);

  return [
    ["Total", limitText(c.cap.total)],
    ["Per day", limitText(c.cap.per_day)],
    ["Per user", limitText(c.cap.per_user)],
    ["Per user and day", limitText(c.cap.per_user_per_day)],
    ["Budget", budget],
    ["Kind of limit", KINDS_OF_LIMIT[c.cap.policy] ?? c.cap.policy],
    ["Starts", c.starts_at ? moment(c.starts_at, zone) : "at once"],
    ["Ends", c.ends_at ? moment(c.ends_at, zone) : "never"],
    ["Time zone", c.time_zone],
    ["Discount", discountText(c.discount)],
    ["Codes", codesText(c.codes)],
    ["Low-stock warning", c.low_stock === null ? "none" : number(c.low_stock)],
    ["Refill", c.replenish.below === null ? "none" : `${number(c.replenish.add)} when fewer than ${number(c.replenish.below)}`],
  ];
}

function definitionPanel(page) {
  const p = panel("Limits and dates", {
    signal: page.signal,
    every: 10,
    load: async () => page.definition(true),
    draw(body, held) {
      page.drawHead(held);
      replace(
        body,
        pairs(definitionRows(held.value)),
        Object.keys(held.value.metadata).length
          ? el(
              "details",
              {data: {key: "metadata"}},
              el("summary", {}, "Metadata"),
              el("pre", {}, JSON.stringify(held.value.metadata, null, 2)),
            )
          : null,
      );
    },
  });

  if (session.isOps && !page.archived)
    p.head.append(
      button("Change limits", () => openCaps(page.held, page.refresh, page.signal), {data: {key: "caps"}}),
      button("Text, dates", () => openDetails(page.held, page.refresh, page.signal), {data: {key: "details"}}),
      button("Discount", () => openDiscount(page.held, page.refresh, page.signal), {data: {key: "discount"}}),
      button("Metadata", () => openMetadata(page.held, page.refresh, page.signal), {data: {key: "change-metadata"}}));
  return p;
}

/* ---- refusals, the ledger ---- */

function refusalsPanel(page) {
  return panel("Refusals", {
    signal: page.signal,
    every: 30,
    load: async (s) => ({zone: zoneFor((await page.definition()).value.time_zone), ...(await get(path(page.id, "refusals"), s))}),
    draw(body, {counts, since, total, zone}) {
      const rows = Object.entries(counts).sort((a, b) => b[1] - a[1]),
        most = rows[0]?.[1] ?? 0;
      const since_ = el("p", {class: "small"}, `Since ${time(since, zone)} (${zone})`);

      if (total === 0) return replace(body, empty("Nobody was refused."), since_);
      replace(
        body,
        table("Refusals by reason", ["Reason", "Count", ""],
          rows.map(([code, count]) => [
            el("a", {href: `/coupons/-/problems/${encodeURIComponent(code)}`}, code.replaceAll("_", " ").replace(" cap ", " limit ")),
            number(count),
            refusalBar(count, most),
          ]),
          "numbers"),
        since_,
      );
    },
  });
}

function refusalBar(count, most) {
  const part = el("span", {class: "refused"});

  part.style.width = `${share(count, most)}%`;
  return el("div", {class: "bar thin", "aria-hidden": "true"}, part);
}

const kindsOf = (batch) =>
  Object.entries(Object.groupBy(batch.entries, (e) => e.kind))
    .map(([kind, all]) => `${all.length} ${kind}`)
    .join(", ");

/* The last batch of a lane. */
async function tailOf(id, lane, signal) {
  const {seq, seqs} = await get(path(id, "counts"), signal);

  return seqs ? seqs[lane] : seq;
}

/* Which lane's ledger is shown: each has one of its own. */
function laneChoice(lanes, chosen) {
  const select = choice({"aria-label": "Lane"}, Array.from({length: lanes}, (_, lane) => [String(lane), `Lane ${lane}`]));

  select.addEventListener("change", () => chosen(Number(select.value)));
  return select;
}

function ledgerPanel(page, signal) {
  let tail = null,
    lane = 0,
    lines = [], // read again only when there is more
    choice = null;

  const shown = panel("The ledger's head", {
    signal,
    every: 5,
    async load(s) {
      const of = lane,
        seq = await tailOf(page.id, of, s);
      const more = seq !== tail || lines.length === 0;
      const after = Math.max(0, seq - HEADS);
      const read = more ? (await getLines(query(path(page.id, "ledger"), {lane: of, after}), s)).slice(-HEADS).reverse() : lines;

      if (of === lane) {
        lines = read;
        tail = lines[0]?.seq ?? seq;
      }
      const {time_zone: zone, lanes} = (await page.definition()).value;
      return {zone: zoneFor(zone), lanes, lines};
    },
    draw(body, {zone, lanes}) {
      if (lanes > 1 && !choice) {
        choice = laneChoice(lanes, (chosen) => {
          lane = chosen;
          lines = [];
          shown.refresh();
        });
        shown.head.append(choice);
      }
      if (lines.length === 0) return replace(body, empty("The ledger is empty."));
      replace(
        body,
        table("Latest batches", ["Batch", `At (${zone})`, "Entries", "Hash"],
          lines.map((b) => [number(b.seq), time(b.at, zone), kindsOf(b), el("code", {title: b.hash}, `${b.hash.slice(0, 12)}\u2026`)]),
          "cards"),
        el("p", {class: "small hash"}, "Head: ", el("code", {}, lines[0].hash), " on ", el("code", {}, lines[0].prev)),
      );
    },
  });

  return shown;
}

/* What a manager need not know. It is read only while it is open. */
function engineering(page) {
  const box = el("div", {}),
    fold = el("details", {class: "wide"}, el("summary", {}, "For engineers: the ledger"), box);
  let closed = new AbortController();

  fold.addEventListener("toggle", () => {
    closed.abort();
    closed = new AbortController();
    replace(box, fold.open ? ledgerPanel(page, AbortSignal.any([page.signal, closed.signal])).node : null);
  });
  return fold;
}

/* ---- the page ---- */

/* Back to the list as it was left. */
const toAll = () => el("p", {class: "small"}, el("a", {href: lastOf("#/")}, "\u2190 All coupons"));

class Page {
  constructor(id, signal) {
    Object.assign(this, {id, signal, held: null, reading: null, counts: null, archived: false, panels: []});
    this.head = el("div", {class: "title-row"}, el("h1", {}, id));
    this.save = saveCodes({id}, signal); // one button, which is not drawn anew while it saves
    this.refresh = async () => {
      await this.definition(true).catch(() => null); // its panel says so
      this.panels.forEach((p) => p.refresh());
    };
  }

  /* {value, etag}, read once for all panels; again: read it anew. */
  async definition(again = false) {
    if (this.held && !again) return this.held;
    this.reading ??= getTagged(path(this.id), this.signal).finally(() => {
      this.reading = null;
    });
    this.held = await this.reading;
    return this.held;
  }

  /* Whether the coupon has left for its archive: then definition, totals and reports are all there is to show. */
  async look() {
    await this.definition();
    try {
      await get(query(path(this.id, "history"), {limit: 1}), this.signal);
    } catch (problem) {
      this.archived = problem.code === "coupon_archived"; // the panel reports anything else
    }
  }

  drawHead(held) {
    const {value} = held,
      key = document.activeElement?.dataset?.key;

    document.title = `${value.title} \u2013 Coupons`;
    replace(this.head,
      el(
        "div",
        {},
        el("h1", {}, value.title),
        el("p", {class: "small"}, el("code", {}, value.id), " ", stateBadge(value)),
        value.description ? el("p", {class: "description"}, value.description) : null,
        this.archived
          ? el(
              "p",
              {class: "warning low", role: "status"},
              "This coupon is archived: it is closed for good, and its redemptions, ledger and history are in its archive file. What is below stays.",
            )
          : null,
      ),
      session.isOps ? this.actions(held) : null);
    if (key) this.head.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({preventScroll: true});
  }

  actions(held) {
    const {cap, codes} = held.value;
    const imported = codes.source === "imported",
      slots = cap.policy === "exact";
    const clone = button("Clone", () => openCreate(this.signal, held.value), {data: {key: "clone"}});

    if (this.archived) return el("div", {class: "actions"}, clone);
    return el("div", {class: "actions"},
      stateButtons(held, this.refresh, this.signal),
      slots && !imported
        ? button(addWords(held.value), () => openSlots(held.value, this.counts, this.refresh, this.signal), {data: {key: "slots"}})
        : null,
      slots && imported ? button("Import codes", () => openImport(held.value, this.refresh, this.signal), {data: {key: "import"}}) : null,
      hasCodes(held.value)
        ? [this.save, button("Disable codes", () => openDisable(held.value, this.refresh, this.signal), {data: {key: "disable"}})]
        : null,
      codes.source === "shared" ? button("Change codes", () => openShared(held, this.refresh, this.signal), {data: {key: "shared"}}) : null,
      clone,
      deleteButton(held.value, this.signal));
  }

  draw(main) {
    const {signal} = this;
    const now = countsPanel(this);
    const latest = this.archived ? null : latestPanel(this.id, () => this.definition(), this.refresh, signal),
      history = this.archived ? null : historyPanel(this);
    const columns = [
      [reportPanel(this, "hours", [["hour", "Hours", "Redemptions per hour"]]), definitionPanel(this)],
      [
        reportPanel(this, "days", [
          ["day", "Days", "Redemptions per day"],
          ["week", "Weeks", "Redemptions per week"],
          ["month", "Months", "Redemptions per month"],
        ]),
        refusalsPanel(this),
        jobsPanel(this.id, signal),
      ].filter(Boolean),
    ];
    const wide = this.archived ? [] : [latest.node, lookup(this.id, this.refresh, signal), history.node];

    this.panels = [now, ...columns.flat(), latest, history].filter(Boolean);
    replace(
      main,
      toAll(),
      this.head,
      el("div", {class: "grid"}, now.node,
        columns.map((column) =>
          el("div", {class: "column"}, column.map((p) => p.node)),
        ),
        wide.map((node) => el("div", {class: "wide"}, node)),
        this.archived ? null : engineering(this)),
    );
  }
}

export async function showCoupon(main, [id], signal) {
  const page = new Page(id, signal);
  const open = async () => {
    replace(main, el("p", {class: "loading", role: "status"}, "Loading\u2026"));
    try {
      await page.look();
      page.draw(main);
    } catch (problem) {
      if (signal.aborted) return;
      replace(main, toAll(), el("h1", {}, id), failure(problem, open));
    }
  };

  await open();
}
