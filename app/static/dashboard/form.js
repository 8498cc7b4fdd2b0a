/*
 * dashboard/form.js -- forms from tables of fields, in a dialog: what is wrong is said at the field that the service points at.
 *
 * Field  a heading as text, or {at: "/cap/total", label, type, hint, options, scale, unit, required, when(values), more}
 *        Several may share a pointer, if no more than one of them is shown at a time.
 *        type: text (default), area, check, whole, scaled (scale: how many of the service's units are one of ours; unit: its name),
 *        money (in the currency of field "/discount/currency"), select, time (in the zone of field "/time_zone"), zone, list (by
 *        commas), json (an object)
 * Read   what was understood of a number, an amount or a time is shown below its field while it is typed
 */
import {button, choice, el, replace, uniqueId} from "./dom.js";
import {digitsOf, isZone, moment, momentsOf, money, number, readNumber, toWall, writeNumber, zones} from "./format.js";
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
const DECIMALS = 2; // of what is neither money nor counted
const currencyOf = (texts) => texts["/discount/currency"];
const zoneOf = (texts) => texts["/time_zone"] || "UTC";

/* A member that is null is none: a change by RFC 7396 says so. */
const hasNull = (value) => value === null || (typeof value === "object" && !Array.isArray(value) && Object.values(value).some(hasNull));

function readObject(text) {
  let value;

  try {
    value = JSON.parse(text);
  } catch {
    throw new Invalid('Enter JSON, such as {"campaign": "spring"}.');
  }
  if (typeof value !== "object" || Array.isArray(value) || value === null)
    throw new Invalid('Enter an object, such as {"campaign": "spring"}.');
  if (hasNull(value)) throw new Invalid("A member cannot be null: omit it instead.");
  return value;
}

/* The moment that a text names. row.which: of two, which one. */
function readTime(text, zone, which) {
  const moments = momentsOf(text, zone);

  if (!moments.length)
    throw new Invalid(`This time does not exist: clocks in ${zone} skip it when they go forward. Take an hour earlier or later.`);
  return new Date(moments[moments.length > 1 ? Number(which.value) : 0]).toISOString();
}

function readUnits(text, decimals, unit, show) {
  const {units, wrong} = readNumber(text, decimals, unit, show);

  if (wrong) throw new Invalid(wrong);
  return units;
}

function readMoney(text, field, texts) {
  const currency = currencyOf(texts);

  if (!/^[A-Za-z]{3}$/.test(currency ?? "")) throw new Invalid("The discount needs a currency first, such as EUR.");
  const decimals = digitsOf(currency);

  return readUnits(text, decimals, currency, (plain) => money(Number(plain) * 10 ** decimals, currency));
}

function readScaled(text, {scale, unit}) {
  const value = (readUnits(text, DECIMALS, unit) * scale) / 10 ** DECIMALS;

  if (!Number.isInteger(value)) throw new Invalid("This makes no whole number of seconds.");
  return value;
}

/* read(text, field, texts, row), write(value, field, texts); say(value, field, texts): what was understood, where it is not plain. */
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
  whole: {read: (text) => readUnits(text, 0, null), write: String, say: number},
  scaled: {read: readScaled, write: (value, {scale}) => String(value / scale), say: (value, {scale}) => number(value / scale)},
  money: {
    read: readMoney,
    write: (value, field, texts) => writeNumber(value, digitsOf(currencyOf(texts))),
    say: (value, field, texts) => money(value, currencyOf(texts)),
  },
  time: {
    read: (text, field, texts, row) => readTime(text, zoneOf(texts), row.which),
    write: (value, field, texts) => toWall(value, zoneOf(texts)),
    say: (value, field, texts) => moment(value, zoneOf(texts)),
  },
};

const typeOf = (field) => TYPES[field.type ?? "text"];

/* What the text of a field is read by besides: as long as it is the same, the same text is the same value. */
function basis(field, texts) {
  return {time: zoneOf, money: currencyOf}[field.type]?.(texts);
}

/* ---- controls ---- */

function control(field, id) {
  const common = {id, name: field.at, "aria-describedby": `${id}-hint ${id}-reading ${id}-error`, required: field.required};

  if (field.type === "select")
    return choice(common, field.options);
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
    inputmode: {whole: "numeric", scaled: "decimal", money: "decimal"}[field.type],
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

/* The same, with which of two times is meant. */
const filledIn = ({input, which}) => typed(input) + (which && !which.hidden ? `#${which.value}` : "");

function fieldRow(field) {
  const id = uniqueId("field"),
    input = control(field, id);
  const error = el("p", {class: "error", id: `${id}-error`}),
    reading = el("p", {class: "reading", id: `${id}-reading`});
  const which = field.type === "time" ? el("select", {"aria-label": `${field.label}: which of the two`, hidden: true}) : null;
  const label = el("label", {for: id}, field.label, field.required ? " *" : "");
  const node = el("div", {class: "field"},
    field.type === "check" ? [input, label] : [label, input],
    field.type === "zone"
      ? el(
          "datalist",
          {id: `${id}-zones`},
          zones().map((zone) => el("option", {value: zone})),
        )
      : null,
    which,
    reading,
    el("p", {class: "hint", id: `${id}-hint`}, field.hint ?? ""),
    error);

  return {field, node, input, error, reading, which};
}

/* Which of the two, where clocks show a time twice. */
function offerWhich({which, input}, zone) {
  const moments = input.value && isZone(zone) ? momentsOf(input.value, zone) : [];
  const words = moments.map((ms, i) => `${moment(new Date(ms).toISOString(), zone)}, the ${["first", "second"][i]} of two`);

  which.hidden = moments.length < 2;
  if (words.join() === [...which.options].map((option) => option.text).join()) return;
  replace(which, words.map((text, i) => el("option", {value: String(i)}, text)));
}

/* The fields of a form, and their contents. */
class Fields {
  constructor(fields, values) {
    const all = fields.map((field) => (typeof field === "string" ? {node: el("h3", {}, field), heading: true} : fieldRow(field)));

    this.rows = all.filter((r) => !r.heading);
    this.node = el("div", {class: "fields"}, all.filter((r) => !r.field?.more).map((r) => r.node));
    const more = this.rows.filter((r) => r.field.more);
    if (more.length) {
      this.details = el("details", {class: "wide"}, el("summary", {}, "More settings"),
        el("div", {class: "fields"}, more.map((r) => r.node)));
      this.node.append(this.details);
    }
    this.fill(values);
    for (const name of ["input", "change"])
      this.node.addEventListener(name, ({target}) => {
        this.clear(this.rows.filter((r) => r.node.contains(target)));
        this.arrange();
      });
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

  /* One of them, as it is in values. */
  set(row, values) {
    const value = valueAt(values, row.field.at),
      {options} = row.field;

    put(row.input,
      value === null || value === undefined ? (options?.[0][0] ?? "") : typeOf(row.field).write(value, row.field, this.hidden(values)));
    const texts = {...this.hidden(values), "/time_zone": zoneOf(this.hidden(values))};
    if (row.which) {
      offerWhich(row, zoneOf(texts));
      if (!row.which.hidden)
        row.which.value = String(momentsOf(typed(row.input), zoneOf(texts)).indexOf(Math.floor(Date.parse(value) / 1000) * 1000));
    }
    row.filled = filledIn(row);
    row.value = value ?? null;
    row.basis = basis(row.field, texts);
  }

  /* True if a field no longer has what it was filled with. */
  isChanged() {
    return this.rows.some((r) => filledIn(r) !== r.filled);
  }

  /* What other fields are read by, also where it is no field of this form. */
  hidden(values) {
    const of = (at) => valueAt(values, at);

    return Object.fromEntries(["/time_zone", "/discount/currency"].filter(of).map((at) => [at, of(at)]));
  }

  /* Show the fields that apply. */
  arrange() {
    const texts = {...this.hidden(this.values), ...this.texts()};

    for (const r of this.rows) {
      r.node.hidden = r.field.when ? !r.field.when(texts) : false;
      if (r.which) offerWhich(r, zoneOf(texts));
      this.say(r, texts);
    }
  }

  /* What is understood of it so far, where that does not go without saying. */
  say(row, texts) {
    const {say} = typeOf(row.field),
      text = typed(row.input);

    row.reading.textContent = "";
    if (!say || !text || (row.field.type === "time" && !isZone(zoneOf(texts)))) return;
    try {
      const said = say(this.value(row, text, texts), row.field, texts);
      if (said !== text) row.reading.textContent = said;
    } catch (error) {
      if (!(error instanceof Invalid)) throw error; // it is said when the form is sent
    }
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
    if (filledIn(row) === row.filled && row.value !== null && basis(row.field, texts) === row.basis) return row.value;
    return text || row.field.type === "area" ? typeOf(row.field).read(text, row.field, texts, row) : null;
  }

  point(row, text) {
    row.error.textContent = text;
    row.input.setAttribute("aria-invalid", "true");
    if (row.field.more) this.details.open = true;
  }

  /* What was said to be wrong with these. */
  clear(rows = this.rows) {
    for (const r of rows) {
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
      const isAt = ({at, type}) => e.pointer === at || (type === "list" && e.pointer?.startsWith(`${at}/`));
      const row = this.rows.find((r) => isAt(r.field) && !r.node.hidden);
      if (row) this.point(row, `${e.detail[0].toUpperCase()}${e.detail.slice(1)}.`);
      return !row;
    });

    this.focusFirst();
    return rest;
  }
}

/* ---- the dialog ---- */

/*
 * A modal dialog: Escape closes it, and the keyboard goes back to where it was. isChanged(): something was typed that closing would
 * lose, so closing it by Escape or the cross asks first. Returns {dialog, body, close}.
 */
export function openDialog(title, signal, isChanged = () => false) {
  const id = uniqueId("dialog"),
    before = document.activeElement,
    body = el("div", {class: "body"}),
    close = () => dialog.close();
  const leave = async (event) => {
    event.preventDefault(); // or the same key closes what is below this one
    if (!isChanged()) return close();
    if (await ask("Discard what you typed?", "Nothing of it was saved.", "Discard", signal, "Go on editing")) close();
    return undefined;
  };
  const dialog = el("dialog", {"aria-labelledby": id},
    el("div", {class: "head"}, el("h2", {id}, title), button("\u00d7", leave, {class: "close", "aria-label": "Close"})),
    body);

  /* Both: a browser may close it at the second Escape without asking the second event. */
  dialog.addEventListener("keydown", (event) => event.key === "Escape" && leave(event));
  dialog.addEventListener("cancel", (event) => event.target === dialog && leave(event));
  dialog.addEventListener("close", (event) => {
    if (event.target !== dialog) return;
    dialog.remove();
    before?.focus?.();
  });
  signal?.addEventListener("abort", close);
  document.body.append(dialog);
  dialog.showModal();
  return {dialog, body, close};
}

/* Ask, then do: `action` may fail, and that is said here. */
export function confirm(title, text, verb, action, signal, keepWords = "Keep it as it is") {
  const {body, close, dialog} = openDialog(title, signal),
    trouble = el("div"),
    keep = button(keepWords, close);
  const yes = button(verb,
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
    {class: "danger"});

  body.append(el("p", {}, text), trouble, el("div", {class: "actions"}, keep, yes));
  keep.focus(); // what changes nothing
  return dialog;
}

/* Promises whether `verb` was pressed. */
export function ask(title, text, verb, signal, keepWords) {
  return new Promise((resolve) => {
    const dialog = confirm(title, text, verb, async () => resolve(true), signal, keepWords);

    dialog.addEventListener("close", () => resolve(false)); // too late where it was pressed
  });
}

/*
 * A dialog with a form. submit(found, form) gets the values by pointer and may throw; form: {fields, trouble, close, body}.
 * It closes when submit returns true.
 */
export function openForm({title, fields, values = {}, verb, intro, submit, signal}) {
  const f = new Fields(fields, values),
    trouble = el("div");
  const {body, close, dialog} = openDialog(title, signal, () => body.contains(f.node) && f.isChanged());
  const go = el("button", {type: "submit", class: "primary"}, verb);
  const node = el("form", {novalidate: true},
    intro ? el("p", {class: "small"}, intro) : null,
    f.node,
    trouble,
    el("div", {class: "actions"}, button("Cancel", close), go));
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
  body.append(node);
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
