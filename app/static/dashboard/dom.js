/*
 * dashboard/dom.js -- elements. The only place that makes any: text becomes text nodes, and nothing else can be given.
 *
 * Never  innerHTML, inline styles or handlers: the policy forbids them, and titles and metadata are whatever somebody sent
 */

const SVG = "http://www.w3.org/2000/svg";
const ATTRIBUTES = new Set([
  "accept", "for", "form", "href", "id", "inputmode", "list", "max", "maxlength", "min", "method", "name", "novalidate", "open",
  "placeholder", "points", "role", "rows", "scope", "step", "tabindex", "title", "type", "value", "viewBox", "width", "autocomplete",
  "autocapitalize", "spellcheck", "required", "disabled", "checked", "hidden", "download", "preserveAspectRatio",
]);

/* Addresses are ours, or a file made here: never what somebody sent. */
function isOurs(address) {
  return /^(#|\/coupons\/|blob:)/.test(address);
}

function setProperty(node, name, value) {
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
  } else if (name === "class") {
    node.setAttribute("class", value);
  } else if (name === "data") {
    Object.assign(node.dataset, value);
  } else if (name === "href" && !isOurs(value)) {
    throw new Error(`not an address of ours: ${value}`);
  } else if (name.startsWith("aria-") || ATTRIBUTES.has(name)) {
    node.setAttribute(name, value === true ? "" : value);
  } else {
    throw new Error(`no such property: ${name}`);
  }
}

function append(node, children) {
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
}

function make(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {}))
    if (value !== null && value !== undefined && value !== false) setProperty(node, name, value);
  append(node, children);
  return node;
}

/* el("a", {class: "x", href: "#/", on: {click: f}}, "text", node, null) */
export function el(name, properties, ...children) {
  return make(document.createElement(name), properties, children);
}

export function svg(name, properties, ...children) {
  return make(document.createElementNS(SVG, name), properties, children);
}

export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
}

export function button(text, action, properties = {}) {
  return el("button", {type: "button", ...properties, on: {click: action}}, text);
}

/* options: [value, text] of each. */
export function choice(properties, options) {
  return el("select", properties, options.map(([value, text]) => el("option", {value}, text)));
}

/* Names and what they mean; a row that is null is omitted. */
export function pairs(rows, kind = "pairs") {
  return el("dl", {class: kind}, rows.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

let count = 0;

/* An id that no other element has. */
export function uniqueId(prefix) {
  return `${prefix}-${++count}`;
}

/* rows: of arrays of cells. A cell is text, a node, or an array of them; its column's name goes along for narrow screens. */
export function table(caption, columns, rows, kind = "") {
  return el(
    "table",
    {class: kind},
    el("caption", {class: "unseen"}, caption),
    el("thead", {}, el("tr", {}, columns.map((c) => el("th", {scope: "col"}, c)))),
    el("tbody", {},
      rows.map((cells) =>
        el("tr", {}, cells.map((cell, i) => el("td", {data: {column: columns[i]}}, cell))),
      )),
  );
}

/* A sentence at the edge of the screen, also spoken. */
export function toast(text, kind = "good") {
  const note = el("p", {class: `toast ${kind}`}, text);
  const box = document.getElementById("toasts");

  box.append(note);
  while (box.children.length > 3) box.firstChild.remove();
  setTimeout(() => note.remove(), 8000);
}

/* What went wrong, likewise. */
export const toastProblem = (problem) => toast(`${problem.message}. ${problem.detail ?? ""}`, "bad");
