/*
 * dashboard/app.js -- the frame: asks for the key once per tab, and shows the page that the address names (#/coupon/ID).
 *
 * Reading order  app.js, list.js, calendar.js, coupon.js, reports.js, change.js, codes.js, webhooks.js; below them panel.js, form.js,
 *                book.js, address.js, api.js, dom.js
 */
import {chooseZone, chosenZone, followZone, pageOf} from "./address.js";
import {session, signIn} from "./api.js";
import {showCalendar} from "./calendar.js";
import {showCoupon} from "./coupon.js";
import {button, choice, el, replace} from "./dom.js";
import {browserZone} from "./format.js";
import {showJobs} from "./jobs.js";
import {showKeys} from "./keys.js";
import {showList} from "./list.js";
import {showLookup} from "./lookup.js";
import {showWebhook, showWebhooks} from "./webhooks.js";

/* Columns: address, name in the navigation, what draws it, the link to it, and if only keys of the role ops see it. What is in
 * parentheses is given to what draws it. */
const PAGES = [
  [/^#?\/?$/, "Coupons", showList, "#/"],
  [/^#\/calendar$/, "Calendar", showCalendar, "#/calendar"],
  [/^#\/lookup$/, "Look up", showLookup, "#/lookup"],
  [/^#\/jobs$/, "Jobs", showJobs, "#/jobs"],
  [/^#\/webhooks$/, "Webhooks", showWebhooks, "#/webhooks", true],
  [/^#\/keys$/, "Keys", showKeys, "#/keys", true],
  [/^#\/coupon\/([^/]+)$/, null, showCoupon, null],
  [/^#\/webhook\/([^/]+)$/, null, showWebhook, null, true],
];

const main = document.getElementById("main");
let leave = new AbortController(); // aborted when the page is left: what it reads, waits for and shows in dialogs ends

/* In which zone times are shown. */
function zoneChoice() {
  const mine = browserZone(),
    chosen = chosenZone();
  const others = [...new Set([mine, "UTC", ...(chosen ? [chosen] : [])])];
  const select = choice({"aria-label": "Times in"}, [
    ["", "Times: coupon\u2019s zone"], ...others.map((zone) => [zone, zone === mine ? `Times: mine, ${zone}` : `Times: ${zone}`])]);

  select.value = chosen ?? "";
  select.addEventListener("change", () => {
    chooseZone(select.value);
    show();
  });
  return select;
}

function drawFrame(current) {
  replace(
    document.getElementById("nav"),
    session.key
      ? [
          ...PAGES.filter(([, name, , , opsOnly]) => name && (session.isOps || !opsOnly)).map(([, name, , address]) =>
            el("a", {href: address, "aria-current": name === current ? "page" : null}, name),
          ),
          el("a", {href: "/coupons/-/docs/"}, "API"),
        ]
      : null,
  );
  replace(
    document.getElementById("account"),
    session.key
      ? [
          zoneChoice(),
          el("span", {class: session.isOps ? "small ops" : "small"}, session.isOps ? "ops key" : "reporting key: reads only"),
          button("Forget the key", () => {
            session.forget();
            show();
          }),
        ]
      : null,
  );
}

function showKeyForm(message) {
  const input = el("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "key-error",
  });
  const error = el("p", {class: "error", id: "key-error", role: "alert"}, message ?? "");
  const go = el("button", {type: "submit", class: "primary"}, "Open");
  const form = el("form", {class: "panel key", novalidate: true}, el("h1", {}, "Coupons"),
    el(
      "p",
      {},
      "This page reads the service with an API key of the role reporting, or ops to change things too. " +
        "The key stays in this tab, and is gone when you close it.",
    ),
    el("div", {class: "field"}, el("label", {for: "key"}, "API key"), input, error),
    go);

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    error.textContent = "";
    const why = await signIn(input.value.trim());

    go.disabled = false;
    if (why === null) return show();
    error.textContent = why;
    input.setAttribute("aria-invalid", "true");
    input.focus();
  });
  replace(main, form);
  input.focus();
}

function showNothing() {
  replace(main, el("h1", {}, "No such page"), el("p", {}, el("a", {href: "#/"}, "All coupons")));
}

/* A parameter of the address; what cannot be decoded is taken as it is. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show(message) {
  leave.abort();
  leave = new AbortController();
  if (session.key) followZone();
  const page = PAGES.find(([address]) => address.test(pageOf()));

  document.title = page?.[1] ? `${page[1]} \u2013 Coupons` : "Coupons";
  drawFrame(page?.[1]);
  if (!session.key) return showKeyForm(message);
  if (!page || (page[4] && !session.isOps)) return showNothing();
  page[2](main, pageOf().match(page[0]).slice(1).map(decoded), leave.signal);
  return undefined;
}

/* A key that another page of this tab was given is tried before anybody is asked. */
async function start() {
  const why = session.key && !session.role ? await signIn(session.key) : null;

  if (why) session.forget();
  show(why);
}

session.onKeyLost = () => show("The service no longer knows the key: it was revoked, it expired, or the service was set up again.");
addEventListener("hashchange", () => {
  show();
  if (session.key) main.focus({preventScroll: true});
  scrollTo(0, 0);
});
addEventListener("keydown", (event) => {
  const search = document.getElementById("search");

  if (event.key === "/" && search && !event.target.closest("input, select, textarea, dialog")) {
    event.preventDefault();
    search.focus();
  }
});
start();
