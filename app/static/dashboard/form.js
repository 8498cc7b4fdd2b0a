/*
 * dashboard/form.js -- forms from tables of fields, in a dialog: what is wrong is said at the field that the service points at.
 *
 * Field  a heading as text, or {at: "/cap/total", label, type, hint, options, scale, required, when(values), more}
 *        Several may share a pointer, if no more than one of them is shown at a time.
 *        type: text (default), area, check, whole, scaled (scale: how many of the service's units are one of ours, or a function of
 *        all texts), select, time (in the zone of field "/time_zone"), zone, list (by commas), json (an object)
 */
import {button, el, replace, uniqueId} from "./dom.js";
import {digitsOf, fromScaled, fromWall, isZone, toScaled, toWall, zones} from "./format.js";
import {failure} from "./panel.js";

export class Invalid extends Error {}

/* ---- values at pointers ---- */

export function valueAt(object, pointer) {
  return pointer
    .split("/")
    .slice(1)
    .reduce((inner, name) => inner?.[name], object);
}

export function setAt(object, pointer, value) {
  const names = pointer.split("/").slice(1),
    last = names.pop();

  names.reduce((inner, name) => (inner[name] ??= {}), object)[last] = value;
}

/* ---- between texts and values ---- */

const TICKED = "yes";
const scaleOf = (field, texts) => (typeof field.scale === "function" ? field.scale(texts) : field.scale);
export const moneyScale = (texts) => 10 ** digitsOf(texts["/discount/currency"]);

/* A member that is null is none: a change by RFC 7396 says so. */
const hasNull = (value) =>
  value === null || (typeof value === "object" && !Array.isArray(value) && Object.values(value).some(hasNull));

function readObject(text) {
  let value;

  try {
    value = JSON.parse(text);
  } catch {
    throw new Invalid('Enter JSON, such as {"campaign": "spring"}.');
  }
  if (typeof value !== "object" || Array.isArray(value) || value === null)
    throw new Invalid('Enter an object, such as {"campaign": "spring"}.');
  if (hasNull(value)) throw new Invalid("A member cannot be null: leave it out instead.");
  return value;
}

const TYPES = {
  text: {read: (text) => text, write: (value) => value},
  area: {read: (text) => text, write: (value) => value},
  select: {read: (text) => text, write: (value) => value},
  check: {read: (text) => text === TICKED, write: (value) => (value ? TICKED : "")},
  zone: {
    read(text) {
      if (!isZone(text)) throw new Invalid("Enter a time zone, such as Europe/Berlin.");
      return text;
    },
    write: (value) => value,
  },
  list: {
    read: (text) =>
      text
        .split(",")
        .map((part) => part.trim())
        .filter(Boolean),
    write: (value) => value.join(", "),
  },
  json: {read: readObject, write: (value) => (Object.keys(value).length ? JSON.stringify(value, null, 2) : "")},
  whole: {
    read(text) {
      if (!/^\d+$/.test(text) || !Number.isSafeInteger(Number(text))) throw new Invalid("Enter a whole number.");
      return Number(text);
    },
    write: String,
  },
  scaled: {
    read(text, field, texts) {
      const value = toScaled(text, scaleOf(field, texts));
      if (Number.isNaN(value)) throw new Invalid("Enter a number, with no more decimals than the unit has.");
      return value;
    },
    write: (value, field, texts) => fromScaled(value, scaleOf(field, texts)),
  },
  time: {
    read: (text, field, texts) => fromWall(text, texts["/time_zone"] || "UTC"),
    write: (value, field, texts) => toWall(value, texts["/time_zone"] || "UTC"),
  },
};

const typeOf = (field) => TYPES[field.type ?? "text"];

/* What the text of a field is read by besides: as long as it is the same, the same text is the same value. */
function basis(field, texts) {
  return field.type === "time" ? texts["/time_zone"] || "UTC" : field.scale && scaleOf(field, texts);
}

/* ---- controls ---- */

function control(field, id) {
  const common = {id, name: field.at, "aria-describedby": `${id}-hint ${id}-error`, required: field.required};

  if (field.type === "select")
    return el(
      "select",
      common,
      field.options.map(([value, text]) => el("option", {value}, text)),
    );
  if (field.type === "check") return el("input", {...common, type: "checkbox"});
  if (field.type === "area") return el("textarea", {...common, rows: 3, maxlength: field.most});
  if (field.type === "json") return el("textarea", {...common, rows: 5, spellcheck: "false", class: "code"});
  if (field.type === "time") return el("input", {...common, type: "datetime-local", step: 1});
  return el("input", {
    ...common,
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: field.most,
    inputmode: {whole: "numeric", scaled: "decimal"}[field.type],
    list: field.type === "zone" ? `${id}-zones` : null,
  });
}

/* What is typed, or chosen, or ticked, as text; and the same put there. */
function typed(input) {
  if (input.type !== "checkbox") return input.value.trim();
  return input.checked ? TICKED : "";
}

function put(input, text) {
  if (input.type === "checkbox") input.checked = text === TICKED;
  else input.value = text;
}

function fieldRow(field) {
  const id = uniqueId("field"),
    input = control(field, id);
  const error = el("p", {class: "error", id: `${id}-error`});
  const label = el("label", {for: id}, field.label, field.required ? " *" : "");
  const node = el(
    "div",
    {class: "field"},
    field.type === "check" ? [input, label] : [label, input],
    field.type === "zone"
      ? el(
          "datalist",
          {id: `${id}-zones`},
          zones().map((zone) => el("option", {value: zone})),
        )
      : null,
    el("p", {class: "hint", id: `${id}-hint`}, field.hint ?? ""),
    error,
  );

  return {field, node, input, error};
}

/* The fields of a form, and what stands in them. */
export class Fields {
  constructor(fields, values) {
    const all = fields.map((field) =>
      typeof field === "string" ? {node: el("h3", {}, field), heading: true} : fieldRow(field),
    );

    this.rows = all.filter((r) => !r.heading);
    this.node = el(
      "div",
      {class: "fields"},
      all.filter((r) => !r.field?.more).map((r) => r.node),
    );
    const more = this.rows.filter((r) => r.field.more);
    if (more.length) {
      this.details = el(
        "details",
        {class: "wide"},
        el("summary", {}, "More settings"),
        el(
          "div",
          {class: "fields"},
          more.map((r) => r.node),
        ),
      );
      this.node.append(this.details);
    }
    this.fill(values);
    for (const event of ["input", "change"]) this.node.addEventListener(event, () => this.arrange());
  }

  /* What is typed, trimmed, by pointer. */
  texts() {
    return Object.fromEntries(this.rows.map((r) => [r.field.at, typed(r.input)]));
  }

  fill(values) {
    this.values = values;
    this.rows.forEach((r) => this.set(r, values));
    this.arrange();
  }

  /* One of them, as it stands in values. */
  set(row, values) {
    const value = valueAt(values, row.field.at),
      {options} = row.field;

    put(
      row.input,
      value === null || value === undefined
        ? (options?.[0][0] ?? "")
        : typeOf(row.field).write(value, row.field, this.hidden(values)),
    );
    row.filled = typed(row.input);
    row.value = value ?? null;
    row.basis = basis(row.field, this.hidden(values));
  }

  /* What other fields are read by, also where it is no field of this form. */
  hidden(values) {
    const of = (at) => valueAt(values, at);

    return Object.fromEntries(["/time_zone", "/discount/currency"].filter(of).map((at) => [at, of(at)]));
  }

  /* Show the fields that apply. */
  arrange() {
    const texts = this.texts();

    for (const r of this.rows) r.node.hidden = r.field.when ? !r.field.when(texts) : false;
  }

  /* By pointer: value, or null where nothing is typed. Null when something cannot be read: then it is said there. */
  read() {
    const texts = {...this.hidden(this.values), ...this.texts()},
      found = {};
    let fine = true;

    for (const r of this.rows.filter((row) => !row.node.hidden)) {
      try {
        const text = typed(r.input);
        if (!text && r.field.required) throw new Invalid("This is required.");
        found[r.field.at] = this.value(r, text, texts);
      } catch (error) {
        if (!(error instanceof Invalid)) throw error;
        this.point(r, error.message);
        fine = false;
      }
    }
    if (!fine) this.focusFirst();
    return fine ? found : null;
  }

  /* What nobody touched is what it was, to the millisecond. */
  value(row, text, texts) {
    if (typed(row.input) === row.filled && row.value !== null && basis(row.field, texts) === row.basis) return row.value;
    return text || row.field.type === "area" ? typeOf(row.field).read(text, row.field, texts) : null;
  }

  point(row, text) {
    row.error.textContent = text;
    row.input.setAttribute("aria-invalid", "true");
    if (row.field.more) this.details.open = true;
  }

  clear() {
    for (const r of this.rows) {
      r.error.textContent = "";
      r.input.removeAttribute("aria-invalid");
    }
  }

  focusFirst() {
    this.rows.find((r) => r.input.hasAttribute("aria-invalid"))?.input.focus();
  }

  /* Say at its field what the service says; what belongs to no field is returned. */
  take(errors) {
    const rest = errors.filter((e) => {
      const row = this.rows.find((r) => r.field.at === e.pointer && !r.node.hidden);
      if (row) this.point(row, `${e.detail[0].toUpperCase()}${e.detail.slice(1)}.`);
      return !row;
    });

    this.focusFirst();
    return rest;
  }
}

/* ---- the dialog ---- */

/* A modal dialog: Escape closes it, and the keyboard goes back to where it was. Returns {dialog, body, close}. */
export function openDialog(title, signal) {
  const id = uniqueId("dialog"),
    before = document.activeElement,
    body = el("div", {class: "body"});
  const dialog = el(
    "dialog",
    {"aria-labelledby": id},
    el(
      "div",
      {class: "head"},
      el("h2", {id}, title),
      button("\u00d7", () => dialog.close(), {class: "close", "aria-label": "Close"}),
    ),
    body,
  );

  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  signal?.addEventListener("abort", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return {dialog, body, close: () => dialog.close()};
}

/* Ask, then do: `action` may fail, and that is said here. */
export function confirm(title, text, verb, action, signal) {
  const {body, close} = openDialog(title, signal),
    trouble = el("div"),
    keep = button("Keep it as it is", close);
  const yes = button(
    verb,
    async () => {
      yes.disabled = true;
      try {
        await action();
        close();
      } catch (problem) {
        replace(trouble, failure(problem));
        yes.disabled = false;
      }
    },
    {class: "danger"},
  );

  append(body, el("p", {}, text), trouble, el("div", {class: "actions"}, keep, yes));
  keep.focus(); // what changes nothing
}

function append(node, ...children) {
  node.append(...children);
}

/*
 * A dialog with a form. submit(found, form) gets the values by pointer and may throw; form: {fields, trouble, close, body}.
 * It closes when submit returns true.
 */
export function openForm({title, fields, values = {}, verb, intro, submit, signal}) {
  const {body, close, dialog} = openDialog(title, signal);
  const f = new Fields(fields, values),
    trouble = el("div");
  const go = el("button", {type: "submit", class: "primary"}, verb);
  const node = el(
    "form",
    {novalidate: true},
    intro ? el("p", {class: "small"}, intro) : null,
    f.node,
    trouble,
    el("div", {class: "actions"}, button("Cancel", close), go),
  );
  const form = {fields: f, trouble, close, body, dialog};

  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    f.clear();
    replace(trouble);
    const found = f.read();
    if (!found || go.disabled) return;
    go.disabled = true;
    try {
      if (await submit(found, form)) close();
    } catch (problem) {
      showProblem(form, problem);
    }
    go.disabled = false;
  });
  append(body, node);
  f.rows.find((r) => !r.node.hidden)?.input.focus();
  return form;
}

function showProblem({fields, trouble}, problem) {
  const rest = fields.take(problem.errors ?? []);

  if (problem.status === undefined) console.error(problem);
  if (rest.length === 0 && problem.errors?.length) return;
  replace(
    trouble,
    failure(problem),
    rest.length
      ? el(
          "ul",
          {class: "error"},
          rest.map((e) => el("li", {}, e.pointer ? `${e.pointer} ${e.detail}` : e.detail)),
        )
      : null,
  );
}
