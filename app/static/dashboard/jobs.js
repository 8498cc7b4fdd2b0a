/*
 * dashboard/jobs.js -- background work: its progress, its result, and the forms that ask for it (slots, imports).
 *
 * Once  a form has one idempotency key from its opening on: pressing twice, or again after a failure, makes one job
 */
import {call, get, newKey, path, query, session, several, upload} from "./api.js";
import {button, el, replace, table, toast} from "./dom.js";
import {openDialog, openForm} from "./form.js";
import {number, plural, share, time} from "./format.js";
import {empty, failure, panel} from "./panel.js";
import {saveButton} from "./save.js";

const ENDED = ["done", "failed", "cancelled"];
const KINDS = {
  generate: "Slots generated",
  import: "Codes imported",
  export: "Codes exported",
  retire: "Slots retired",
  cleanup: "Cleaned up",
  archive: "Archived",
};
const POLL_MS = 400,
  IMPORT_MAX = 256 * 1024 * 1024;

/* ---- one job ---- */

const RESULTS = [
  ["generated", "generated"],
  ["retired", "retired"],
  ["imported", "imported"],
  ["rows", "rows"],
  ["duplicates_in_file", "repeated in the file"],
  ["duplicates_in_coupon", "already in the coupon"],
  ["invalid", "invalid"],
  ["removed", "documents removed"],
];

function resultText(job) {
  const parts = RESULTS.filter(([name]) => typeof job.result?.[name] === "number").map(
    ([name, text]) => `${number(job.result[name])} ${text}`,
  );

  return parts.join(", ");
}

function trouble(job) {
  return job.error ? el("p", {class: "error"}, `${job.error}: ${job.error_detail ?? ""}`) : null;
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

function hasBadRows({kind, result}) {
  return kind === "import" && (result?.duplicates_in_file || result?.duplicates_in_coupon || result?.invalid);
}

function rowsButton(words, {id, coupon}, attributes) {
  return saveButton(words, () => path("-", "jobs", id, "rows"), `${coupon}-${id}.csv`, undefined, attributes);
}

function badRows(job) {
  const bad = job.result?.bad_rows ?? [];

  if (!hasBadRows(job)) return null;
  return el(
    "div",
    {},
    bad.length
      ? el(
          "details",
          {},
          el("summary", {}, `The first ${plural(bad.length, "row")} that made no slot`),
          table(
            "Rows that made no slot",
            ["Line", "What", "Why"],
            bad.map((b) => [number(b.line), b.kind, b.reason ?? ""]),
            "numbers",
          ),
        )
      : null,
    rowsButton("Save all of them as a file", job),
  );
}

async function cancel(job) {
  await call("POST", `/coupons/-/jobs/${encodeURIComponent(job.id)}/cancel`).then(
    () => toast("The job was told to stop. What it has done stays."),
    (problem) => toast(`${problem.message}. ${problem.detail}`, "bad"),
  );
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
  for (let last = null; !signal.aborted;) {
    if (JSON.stringify(job) !== last) replace(box, outcome(job));
    last = JSON.stringify(job);
    if (ENDED.includes(job.state)) return done(job);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    try {
      job = await get(address, signal);
    } catch (problem) {
      if (!signal.aborted)
        replace(box, failure(problem), el("p", {class: "small"}, "The job continues; asking again."));
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
        if (problem.status === 404) zones.set(id, "UTC"); // it was deleted
        else throw problem;
      }
    }),
  );
}

/* What can be done about a job now. */
function action(job) {
  if (!ENDED.includes(job.state))
    return session.isOps ? button("Stop it", () => cancel(job), {data: {key: `stop-${job.id}`}}) : null;
  if (hasBadRows(job) || (job.kind === "export" && job.state === "done" && session.isOps))
    return rowsButton("Save its rows", job, {data: {key: `rows-${job.id}`}});
  return null;
}

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
      if (items.length === 0) return replace(body, empty("No job yet: generating slots and importing codes are jobs."));
      replace(
        body,
        table(
          "Jobs",
          ["What", ...(coupon ? [] : ["Coupon"]), "Asked for", "How far", ""],
          items.map((job) => [
            KINDS[job.kind] ?? job.kind,
            ...(coupon
              ? []
              : [el("a", {href: `#/coupon/${encodeURIComponent(job.coupon)}`, data: {key: `c-${job.id}`}}, job.coupon)]),
            [time(job.created_at, zones.get(job.coupon)), el("div", {class: "small"}, zones.get(job.coupon))],
            ENDED.includes(job.state)
              ? [`${job.state} `, el("span", {class: "small"}, resultText(job)), trouble(job)]
              : progress(job),
            action(job),
          ]),
          "cards",
        ),
      );
    },
  });
}

/* ---- slots ---- */

const SLOT_FIELDS = [
  {
    at: "/mode",
    label: "How",
    type: "select",
    options: [
      ["count", "This many more"],
      ["until", "Until there are this many"],
    ],
  },
  {at: "/number", label: "How many", type: "whole", required: true},
];

export function openSlots(coupon, counts, done, signal) {
  const key = newKey();

  openForm({
    title: "Generate slots",
    verb: "Generate",
    signal,
    fields: SLOT_FIELDS,
    values: {mode: "count"},
    intro: `There are ${number(counts?.slots)} slots; the cap is ${number(coupon.cap.total)}. Each can be taken as soon as it exists.`,
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
function showJob({body, close, dialog}, job, done, signal) {
  const box = el("div", {}),
    go = button("Close", close, {class: "primary"}),
    closed = new AbortController();

  dialog.addEventListener("close", () => closed.abort());
  const note = el("p", {class: "small"}, "It continues if you close this; you find it under Jobs.");

  replace(body, box, note, el("div", {class: "actions"}, go));
  go.focus();
  done();
  follow(
    box,
    job,
    (ended) => {
      note.remove();
      done(ended);
    },
    AbortSignal.any([signal, closed.signal]),
  );
}

/* ---- import ---- */

const typeOf = (file) => (/\.csv$/i.test(file.name) ? "text/csv" : "text/plain");

function whyNot(file) {
  if (!file) return "Choose a file first.";
  if (file.size === 0) return "This file is empty.";
  if (file.size > IMPORT_MAX) return "This file is larger than 256 MiB. Cut it into several, or use couponctl codes import.";
  return null;
}

export function openImport(coupon, done, signal) {
  const {dialog, body, close} = openDialog("Import codes", signal),
    key = newKey(),
    stop = new AbortController();
  const input = el("input", {type: "file", id: "import-file", accept: ".csv,.txt,text/csv,text/plain"});
  const go = el("button", {type: "submit", class: "primary"}, "Import"),
    box = el("div", {role: "status"});
  const form = el(
    "form",
    {novalidate: true},
    el(
      "p",
      {class: "small"},
      "One code per line, or a CSV with a column named code. Each becomes a slot once, however often it is sent.",
    ),
    el("div", {class: "field"}, el("label", {for: "import-file"}, "File"), input),
    box,
    el("div", {class: "actions"}, button("Cancel", close), go),
  );

  form.addEventListener("submit", async (event) => {
    const file = input.files[0],
      why = whyNot(file);

    event.preventDefault();
    if (why) return replace(box, el("p", {class: "error"}, why));
    go.disabled = input.disabled = true;
    try {
      const job = await sendFile(box, coupon, file, `${key}-${file.size}-${file.lastModified}`, stop.signal);
      showJob({body, close, dialog}, job, done, signal);
    } catch (problem) {
      replace(box, failure(problem));
      go.disabled = input.disabled = false;
    }
  });
  dialog.addEventListener("close", () => stop.abort());
  replace(body, form);
  input.focus();
}

function sendFile(box, coupon, file, key, signal) {
  const bar = el("progress", {max: file.size, value: 0, "aria-label": "Sent"}),
    text = el("span", {class: "small"}, "Sending");

  replace(box, el("div", {class: "job"}, bar, text));
  return upload(
    path(coupon.id, "codes"),
    file,
    typeOf(file),
    key,
    (sent, whole) => {
      bar.value = sent;
      text.textContent = sent < whole ? `Sent ${Math.floor(share(sent, whole))} %` : "Sent; the service is storing it";
    },
    signal,
  );
}

export function showJobs(main, parameters, signal) {
  replace(main, jobsPanel(null, signal, "h1").node);
}
