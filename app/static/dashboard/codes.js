/*
 * dashboard/codes.js -- a coupon's codes: saved as a file, disabled by a list, and imported from a file that is looked at first.
 *
 * Import  the service reads the file by its heading; of one without, what is sent is the chosen column alone, a line for each line of the
 *         file. So the service's line numbers are the file's
 */
import {call, newKey, path, query, upload} from "./api.js";
import {button, el, replace, table, uniqueId} from "./dom.js";
import {Invalid, confirm, openDialog} from "./form.js";
import {number, plural, share} from "./format.js";
import {showJob} from "./jobs.js";
import {failure} from "./panel.js";
import {saveButton} from "./save.js";

/* ---- saving ---- */

export const saveCodes = ({id}, signal, words = "Save codes as CSV") =>
  saveButton(words, () => path(id, "codes"), `${id}-codes.csv`, signal, {data: {key: "save-codes"}});

/* ---- disabling ---- */

const disableCode = (coupon, code, signal) => call("POST", path(coupon, "codes", code, "retire"), {signal});

/* One that was found; done() afterwards. */
export function disableButton(coupon, code, done, signal) {
  const act = async () => {
    await disableCode(coupon, code, signal);
    done();
  };
  const means = `${code} can never be used again, not even by whoever has it. This cannot be undone.`;

  return button("Disable", () => confirm("Disable this code?", means, "Disable", act, signal), {data: {key: `disable-${coupon}-${code}`}});
}

const listed = (text) => [...new Set(text.split(/[\r\n]+/).map((line) => line.trim()).filter(Boolean))];

/*
 * A dialog that sends a list, and goes on with the job that this makes: send(box, signal) promises it, or throws. `below`: what is
 * between the input and what is said. Returns its button.
 */
function openList({title, verb, kind, intro, label, input, below, isFilled, send}, done, signal) {
  const box = el("div", {role: "status"}), stop = new AbortController(), go = el("button", {type: "submit", class: kind}, verb);
  const {dialog, body, close} = openDialog(title, signal, () => body.contains(input) && isFilled());
  const form = el("form", {novalidate: true},
    el("p", {class: "small"}, intro),
    el("div", {class: "field"}, el("label", {for: input.id}, label), input),
    below,
    box,
    el("div", {class: "actions"}, button("Cancel", close), go));

  dialog.addEventListener("close", () => stop.abort());
  input.addEventListener("change", () => replace(box)); // what was said is about the list before
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = input.disabled = true;
    try {
      showJob({body, close, dialog}, await send(box, stop.signal), done, signal);
    } catch (problem) {
      replace(box, problem instanceof Invalid ? el("p", {class: "error"}, problem.message) : failure(problem));
      go.disabled = input.disabled = false;
    }
  });
  replace(body, form);
  input.focus();
  return go;
}

export function openDisable(coupon, done, signal) {
  const input = el("textarea", {id: uniqueId("codes"), rows: 8, spellcheck: "false", autocapitalize: "off", class: "code"});
  let sent, key;
  const go = openList({
    title: "Disable codes", verb: "Disable", kind: "danger", label: "Codes, one per line", input,
    intro: "They can never be used again, also those that somebody has. Used ones stay used. This cannot be undone.",
    isFilled: () => input.value.trim() !== "",
    send(box, stop) {
      const list = listed(input.value).join("\n");

      if (!list) throw new Invalid("There is no code here.");
      if (list !== sent) [sent, key] = [list, newKey()]; // the same once more is a repeat
      return sendList(box, query(path(coupon.id, "codes", "retire"), {accept: "all"}), new Blob([list]), "text/plain", key, stop);
    },
  }, done, signal);
  const count = () => {
    const codes = listed(input.value);

    go.disabled = codes.length === 0;
    go.textContent = codes.length ? `Disable ${plural(codes.length, "code")}` : "Disable";
  };

  input.addEventListener("input", count);
  count();
}

/* ---- importing: what is in the file ---- */

const IMPORT_MAX = 256 * 1024 * 1024,
  HEAD = 64 * 1024, /* bytes that are looked at */
  LOOKED_AT = 200, /* rows of them */
  PREVIEW = 6,
  PIECE = 4 * 1024 * 1024; /* characters that are kept as text */
const SEPARATORS = [",", ";", "\t", "|"];
const WHOLE = -1; /* no column: all of a line is the code */
const LINE_END = /\r\n|\n|\r/;

/* What the service takes for a code. */
const isCode = (text) => /^[\x21-\x7e]{4,64}$/.test(text);

/* The cells of a row, which is one line. */
function cellsOf(line, separator) {
  const cells = [];
  let at = 0;

  if (!separator) return [line.trim()];
  do {
    const rest = line.slice(at),
      quotedCell = /^\s*"((?:[^"]|"")*)"[^\S\t]*/.exec(rest);
    const [plainCell] = rest.split(separator, 1);

    cells.push(quotedCell ? quotedCell[1].replaceAll('""', '"') : plainCell.trim());
    at += (quotedCell ? quotedCell[0] : plainCell).length + 1;
  } while (at <= line.length);
  return cells;
}

function encodingOf([a, b]) {
  if (a === 0xff && b === 0xfe) return "utf-16le";
  return a === 0xfe && b === 0xff ? "utf-16be" : "utf-8";
}

/* "sep=;" in the first line says it; else it is what the first line has most of. */
function separatorOf(lines) {
  const said = /^sep=(.)$/i.exec(lines[0] ?? "");
  const counts = SEPARATORS.map((s) => (lines[0] ?? "").split(s).length);
  const most = Math.max(...counts);

  if (said) return said[1];
  return most > 1 ? SEPARATORS[counts.indexOf(most)] : null;
}

/* How many of these rows have a code in the column, each another. */
const codesIn = (rows, column) => new Set(rows.map((row) => row[column] ?? "").filter(isCode)).size;

const isName = (cell) => /^(coupon|voucher|promo)?[ _-]?codes?$/i.test(cell);

/* The column that is called so, else the one with most codes. */
function columnOf(rows) {
  const named = rows[0].findIndex(isName);
  const counts = rows[0].map((_, column) => codesIn(rows.slice(1), column));

  return named >= 0 ? named : Math.max(0, counts.indexOf(Math.max(...counts)));
}

/* Names of columns have no digits where other rows have some; a plain list has no columns to name, unless it says "code". */
function isHeading([first, ...others], column, separator) {
  const hasDigit = (row) => row.some((cell) => /\d/.test(cell));

  return isName(first[column]) || (separator !== null && (!isCode(first[column]) || (!hasDigit(first) && others.some(hasDigit))));
}

/* {encoding, separator, skip: lines before the rows, rows: the first of them, column, heading} of a file. */
async function look(file) {
  const bytes = new Uint8Array(await file.slice(0, HEAD).arrayBuffer()),
    encoding = encodingOf(bytes);
  const lines = new TextDecoder(encoding).decode(bytes).split(LINE_END);

  if (file.size > HEAD) lines.pop(); // it is cut
  const separator = separatorOf(lines),
    skip = /^sep=.$/i.test(lines[0] ?? "") ? 1 : 0;
  const rows = lines
    .slice(skip)
    .filter((line) => line.trim())
    .slice(0, LOOKED_AT)
    .map((line) => cellsOf(line, separator));

  if (!rows.length) return null;
  const column = columnOf(rows);
  return {encoding, separator, skip, rows, column, heading: isHeading(rows, column, separator)};
}

/* The column as the service can be asked for it: by a name that no other one has. */
function columnName({separator, rows, column, heading}) {
  const same = (name) => name.toLowerCase() === rows[0][column]?.toLowerCase();

  return separator && heading && rows[0][column] && rows[0].filter(same).length === 1 ? rows[0][column] : undefined;
}

/* The codes of the whole file as one list, a line for each of its lines; those that are no rows are empty. */
async function listOf(file, {encoding, separator, skip, column, heading}) {
  const reader = file.stream().pipeThrough(new TextDecoderStream(encoding)).getReader(),
    parts = [];
  let text = "",
    rest = "",
    lineNumber = 0,
    rows = 0;
  const code = (line) => {
    if (++lineNumber <= skip || !line.trim() || (++rows === 1 && heading)) return "";
    return column === WHOLE ? line : (cellsOf(line, separator)[column] ?? "");
  };

  for (let {done, value} = await reader.read(); ; {done, value} = await reader.read()) {
    const lines = (rest + (value ?? "")).split(done ? LINE_END : /\r\n|\n|\r(?=[^\n])/);

    rest = done ? "" : lines.pop();
    text += lines.map((line) => `${code(line)}\n`).join("");
    if (done || text.length > PIECE) {
      parts.push(new Blob([text]));
      text = "";
    }
    if (done) return new Blob(parts);
  }
}

/* ---- importing: the form ---- */

function whyNot(file) {
  if (!file) return "Choose a file first.";
  if (file.size === 0) return "This file is empty.";
  if (file.size > IMPORT_MAX) return "This file is larger than 256 MiB. Cut it into several, or use couponctl codes import.";
  return null;
}

/* What the file begins with, and what of it are the codes: plan.column and plan.heading follow what is chosen. */
function preview(plan) {
  const ids = [uniqueId("column"), uniqueId("heading")],
    most = Math.max(...plan.rows.map((row) => row.length));
  const select = el("select", {id: ids[0]}),
    tick = el("input", {id: ids[1], type: "checkbox"}),
    box = el("div", {});
  const name = (column) => (plan.heading && plan.rows[0][column]) || `Column ${column + 1}`;
  const draw = () => {
    const rows = plan.heading ? plan.rows.slice(1) : plan.rows,
      codes = rows.map((row) => (plan.column === WHOLE ? row.join(plan.separator) : (row[plan.column] ?? "")));
    const wrong = codes.filter((code) => !isCode(code)).length;

    replace(select,
      Array.from({length: most}, (_, i) => el("option", {value: String(i)}, name(i))),
      plan.separator ? el("option", {value: String(WHOLE)}, "The whole line") : null);
    select.value = String(plan.column);
    replace(
      box,
      table("How the file begins", Array.from({length: most}, (_, i) => (i === plan.column ? `${name(i)} (the codes)` : name(i))),
        rows.slice(0, PREVIEW).map((row) => row.map((cell, i) => (i === plan.column ? el("strong", {}, cell) : cell)))),
      el("p", {class: "small"}, `The first codes: ${codes.slice(0, 3).join(", ") || "none"}`),
      wrong
        ? el("p", {class: "warning low"}, `${number(wrong)} of the first ${plural(rows.length, "row")} ${wrong === 1 ? "is" : "are"} no code: 4 to 64 letters, digits and symbols.`)
        : null,
    );
  };

  tick.checked = plan.heading;
  select.addEventListener("change", () => {
    plan.column = Number(select.value);
    draw();
  });
  tick.addEventListener("change", () => {
    plan.heading = tick.checked;
    draw();
  });
  draw();
  return el("div", {},
    el("div", {class: "field"}, el("label", {for: ids[0]}, "Column of the codes"), select),
    el("div", {class: "field"}, tick, el("label", {for: ids[1]}, "The first row is a heading")),
    el("div", {class: "scroll"}, box));
}

export function openImport(coupon, done, signal) {
  const key = newKey(), shown = el("div", {}),
    input = el("input", {type: "file", id: "import-file", accept: ".csv,.txt,text/csv,text/plain"});
  let plan = null;

  input.addEventListener("change", async () => {
    const file = input.files[0];

    plan = null;
    replace(shown);
    if (!file || whyNot(file)) return;
    const found = await look(file).catch(() => null);
    if (file !== input.files[0]) return;
    plan = found;
    if (plan) replace(shown, preview(plan));
  });
  openList({
    title: "Import codes", verb: "Import", kind: "primary", label: "File", input, below: shown,
    intro: "A list with one code per line, or a CSV file. Nothing is imported before you have seen how it is read.",
    isFilled: () => input.files.length > 0,
    async send(box, stop) {
      const file = input.files[0],
        why = whyNot(file) ?? (plan ? null : "There is no code in this file.");

      if (why) throw new Invalid(why);
      const column = columnName(plan),
        list = column ? file : await listOf(file, plan);
      return sendList(box, query(path(coupon.id, "codes"), {column}), list, column ? "text/csv" : "text/plain",
        `${key}-${list.size}-${plan.column}-${plan.heading}`, stop);
    },
  }, done, signal);
}

function sendList(box, address, list, type, key, signal) {
  const bar = el("progress", {max: list.size, value: 0, "aria-label": "Sent"}),
    text = el("span", {class: "small"}, "Sending");

  replace(box, el("div", {class: "job"}, bar, text));
  return upload(address, list, type, key,
    (sent, whole) => {
      bar.value = sent;
      text.textContent = sent < whole ? `Sent ${Math.floor(share(sent, whole))} %` : "Sent; the service is storing it";
    },
    signal);
}
