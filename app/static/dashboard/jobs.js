/*
 * dashboard/jobs.js -- background work: its progress, its result, and the form that adds stock.
 *
 * Once  a form has one idempotency key from its opening on: pressing twice, or again after a failure, makes one job
 */
import {zoneFor} from "./address.js";
import {call, get, newKey, path, query, session, several} from "./api.js";
import {button, el, replace, table, toast, toastProblem} from "./dom.js";
import {openForm} from "./form.js";
import {number, plural, time} from "./format.js";
import {empty, failure, panel} from "./panel.js";
import {couponLink, hasCodes} from "./parts.js";
import {saveButton} from "./save.js";

const ENDED = ["done", "failed", "cancelled"];
const KINDS = {
  generate: "Stock added",
  import: "Codes imported",
  retire: "Stock reduced",
  cleanup: "Cleaned up",
  archive: "Archived",
  retire_codes: "Codes disabled",
  issue_codes: "Codes handed out",
};
const POLL_MS = 400;

/* ---- one job ---- */

/* Of one, and of several. */
const RESULTS = [
  ["generated", "added"],
  ["retired", "disabled"],
  ["imported", "imported"],
  ["rows", "row", "rows"],
  ["duplicates_in_file", "repeated in the file"],
  ["duplicates_in_coupon", "already in the coupon"],
  ["invalid", "invalid"],
  ["removed", "record removed", "records removed"],
  ["issued", "handed out"],
  ["already", "so before"],
  ["spent", "already used"],
  ["held", "on hold"],
  ["unknown", "unknown"],
  ["refused", "refused"],
];

/* What its bad rows are. */
const BAD_ROWS = {import: "without a new code", retire_codes: "not disabled", issue_codes: "without a code"};

function resultText(job) {
  const parts = RESULTS.filter(([name]) => typeof job.result?.[name] === "number").map(([name, one, many = one]) =>
    plural(job.result[name], one, many),
  );

  return parts.join(", ");
}

function trouble(job) {
  return job.error ? el("p", {class: "error"}, job.error_detail || job.error) : null;
}

export function progress(job) {
  const known = job.total > 0,
    text = known ? `${number(job.done)} of ${number(job.total)}` : number(job.done);
  const bar = el("progress", {
    max: known ? job.total : 1,
    value: known ? job.done : null,
    "aria-label": `${KINDS[job.kind] ?? job.kind}: ${text}`,
  });

  return el("div", {class: "job"}, bar, el("span", {class: "small"}, `${job.state}, ${text}`));
}

const hasBadRows = ({result}) => result?.bad_rows?.length > 0;

function rowsButton(words, {id, coupon}, attributes, kind) {
  return saveButton(words, () => query(path("-", "jobs", id, "rows"), {kind}), `${coupon}-${id}.csv`, undefined, attributes);
}

const badRowsButton = (words, job, attributes) => rowsButton(words, job, attributes, job.kind === "issue_codes" ? "refused" : undefined);

function badRows(job) {
  const bad = job.result?.bad_rows ?? [];

  if (!hasBadRows(job)) return null;
  return el("div", {},
    bad.length
      ? el(
          "details",
          {},
          el("summary", {}, `The first ${plural(bad.length, "row")} ${BAD_ROWS[job.kind]}`),
          table(`Rows ${BAD_ROWS[job.kind]}`, ["Line", "What", "Why"], bad.map((b) => [number(b.line), b.kind, b.reason ?? ""]), "numbers"),
        )
      : null,
    badRowsButton("Save all of them as a file", job));
}

async function cancel(job) {
  await call("POST", `/coupons/-/jobs/${encodeURIComponent(job.id)}/cancel`).then(
    () => toast("The job stops. What it has done stays."), toastProblem);
}

function outcome(job) {
  if (!ENDED.includes(job.state)) return [progress(job), button("Stop it", () => cancel(job), {data: {key: "stop"}})];
  return [
    el("p", {}, el("strong", {}, {done: "Done.", failed: "Failed.", cancelled: "Stopped."}[job.state]), " ", resultText(job)),
    trouble(job),
    badRows(job),
  ];
}

/* Follow a job in box until it ends; then done(job). */
export async function follow(box, job, done, signal) {
  const address = `/coupons/-/jobs/${encodeURIComponent(job.id)}`;

  box.setAttribute("role", "status");
  for (let last = null; !signal.aborted; ) {
    if (JSON.stringify(job) !== last) replace(box, outcome(job));
    last = JSON.stringify(job);
    if (ENDED.includes(job.state)) return done(job);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    try {
      job = await get(address, signal);
    } catch (problem) {
      if (!signal.aborted) replace(box, failure(problem), el("p", {class: "small"}, "The job continues; asking again."));
      last = null;
    }
  }
}

/* ---- all jobs, or one coupon's ---- */

const zones = new Map(); // by coupon, once they are known: what has jobs keeps its zone

async function knowZones(items, signal) {
  const unknown = [...new Set(items.map((job) => job.coupon))].filter((id) => !zones.has(id));

  await several(
    unknown.map((id) => async () => {
      try {
        zones.set(id, (await get(path(id), signal)).time_zone);
      } catch (problem) {
        if (problem.status === 404)
          zones.set(id, "UTC"); // it was deleted
        else throw problem;
      }
    }),
  );
}

/* What can be done about a job now. */
function action(job) {
  if (!ENDED.includes(job.state)) return session.isOps ? button("Stop it", () => cancel(job), {data: {key: `stop-${job.id}`}}) : null;
  const data = {key: `rows-${job.id}`};

  if (job.kind === "issue_codes" && session.isOps) return rowsButton("Save its codes", job, {data});
  return hasBadRows(job) ? badRowsButton("Save its bad rows", job, {data}) : null;
}

/* When it may begin, if that is still to come. */
const start = (job) =>
  job.not_before && Date.parse(job.not_before) > Date.now()
    ? el("div", {class: "small"}, "Not before ", time(job.not_before, zoneFor(zones.get(job.coupon))))
    : null;

export function jobsPanel(coupon, signal, level = "h2") {
  return panel(coupon ? "Jobs" : "Jobs of all coupons", {
    signal,
    every: 3,
    level,
    async load(s) {
      const {items} = await get(query("/coupons/-/jobs", {coupon, limit: coupon ? 5 : 50}), s);

      await knowZones(items, s);
      return {items};
    },
    draw(body, {items}) {
      if (items.length === 0) return replace(body, empty("No job yet: adding stock and importing codes are jobs."));
      replace(
        body,
        table("Jobs", ["What", ...(coupon ? [] : ["Coupon"]), "Asked for", "How far", ""],
          items.map((job) => [
            KINDS[job.kind] ?? job.kind,
            ...(coupon ? [] : [couponLink(job.coupon, {data: {key: `c-${job.id}`}})]),
            [time(job.created_at, zoneFor(zones.get(job.coupon))), el("div", {class: "small"}, zoneFor(zones.get(job.coupon)))],
            ENDED.includes(job.state)
              ? [`${job.state} `, el("span", {class: "small"}, resultText(job)), trouble(job)]
              : [progress(job), start(job)],
            action(job),
          ]),
          "cards"),
      );
    },
  });
}

/* ---- adding stock ---- */

const SLOT_FIELDS = [
  {at: "/mode", label: "How", type: "select", options: [["count", "This many more"], ["until", "Until there are this many"]]},
  {at: "/number", label: "How many", type: "whole", required: true},
];

export const addWords = (coupon) => (hasCodes(coupon) ? "Add codes" : "Add stock");

/* until: how many there are to be, as offered. */
export function openSlots(coupon, counts, done, signal, until = null) {
  const key = newKey();

  openForm({
    title: addWords(coupon),
    verb: "Add",
    signal,
    fields: SLOT_FIELDS,
    values: until === null ? {mode: "count"} : {mode: "until", number: until},
    intro:
      `There ${counts?.slots === 1 ? "is" : "are"} ${number(counts?.slots)}${hasCodes(coupon) ? " with a code each" : ""}; ` +
      `the limit is ${number(coupon.cap.total)}. Each can be used as soon as it is there.`,
    async submit(values, form) {
      const job = await call("POST", path(coupon.id, "slots"), {
        body: {[values["/mode"]]: values["/number"]},
        headers: {"Idempotency-Key": `${key}-${values["/mode"]}-${values["/number"]}`},
      });

      showJob(form, job, done, signal);
      return false;
    },
  });
}

/* The dialog goes on with the job it made; closing it stops nothing. */
export function showJob({body, close, dialog}, job, done, signal) {
  const box = el("div", {}),
    go = button("Close", close, {class: "primary"}),
    closed = new AbortController();

  dialog.addEventListener("close", () => closed.abort());
  const note = el("p", {class: "small"}, "It continues if you close this; you find it under Jobs.");

  replace(body, box, note, el("div", {class: "actions"}, go));
  go.focus();
  done();
  follow(box, job,
    (ended) => {
      note.remove();
      done(ended);
    },
    AbortSignal.any([signal, closed.signal]));
}

export function showJobs(main, parameters, signal) {
  replace(main, jobsPanel(null, signal, "h1").node);
}
