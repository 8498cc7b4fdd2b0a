/* dashboard/webhooks.js -- subscriptions to events: all of them, and one with its deliveries and a test. */
import {zoneFor} from "./address.js";
import {call, get, getAll, path, query} from "./api.js";
import {button, el, pairs, replace, table, toast, toastProblem} from "./dom.js";
import {confirm, openDialog, openForm} from "./form.js";
import {number, time} from "./format.js";
import {empty, failure, panel} from "./panel.js";

const MOST = 1000,
  LATEST = 20,
  POLL_MS = 500,
  PATIENCE_MS = 60000;
const TYPES = [
  ["redemption.batch", "Redemptions: handed out, put on hold, used, ended"],
  ["coupon.low_stock", "Few are left"],
  ["coupon.sold_out", "None is left"],
  ["coupon.refilled", "More were added after that"],
  ["coupon.changed", "A coupon was created, changed or deleted"],
];
const REASONS = {gone: "the receiver answered 410", failing: "it failed for days", asked: "somebody disabled it"};

const address = (...segments) => path("-", "webhooks", ...segments);

function stateOf(hook) {
  const zone = zoneFor();

  if (hook.state === "disabled")
    return [el("span", {class: "badge ended"}, "Disabled"), el("div", {class: "small"}, REASONS[hook.reason] ?? hook.reason)];
  if (!hook.failing_since) return el("span", {class: "badge active"}, "Enabled");
  return [el("span", {class: "badge low"}, "Failing"), el("div", {class: "small"}, `since ${time(hook.failing_since, zone)} (${zone})`)];
}

const couponsOf = (hook) => (hook.coupons ? hook.coupons.join(", ") : "all coupons");
const eventsOf = (hook) => (hook.events.length === TYPES.length ? "all events" : hook.events.join(", "));

/* ---- making and changing ---- */

const FIELDS = [
  {at: "/url", label: "URL", required: true, most: 2000, hint: "Where events are sent: https, at a public address"},
  "Events",
  ...TYPES.map(([type, label]) => ({at: `/on/${type}`, label, type: "check", hint: type})),
];
const COUPONS = {at: "/coupons", label: "Coupons", type: "list", hint: "Ids, separated by commas. Empty: all"};

const chosen = (values) => ({url: values["/url"], events: TYPES.map(([type]) => type).filter((type) => values[`/on/${type}`])});
const ticked = (events) => Object.fromEntries(events.map((type) => [type, true]));

function untilNextPage() {
  const page = new AbortController();

  addEventListener("hashchange", () => page.abort(), {once: true});
  return page.signal;
}

function showSecret(secret, signal) {
  const {body, close} = openDialog("The secret", signal),
    done = button("I have copied it", close, {class: "primary"});

  replace(body,
    el("p", {}, "It signs what is sent. The receiver needs it to check that an event comes from here. It is never shown again."),
    el("pre", {tabindex: "0"}, secret),
    el("div", {class: "actions"}, done));
  done.focus();
}

function openNew(signal) {
  openForm({
    title: "New webhook",
    verb: "Create",
    signal,
    fields: [...FIELDS, COUPONS],
    values: {on: ticked(TYPES.map(([type]) => type))},
    async submit(values, form) {
      const hook = await call("POST", address(), {body: {...chosen(values), coupons: values["/coupons"]}});

      form.close();
      location.hash = `#/webhook/${hook.id}`;
      addEventListener("hashchange", () => showSecret(hook.secret, untilNextPage()), {once: true});
      return true;
    },
  });
}

function openChange(hook, done, signal) {
  openForm({
    title: "Change the webhook",
    verb: "Save",
    signal,
    fields: FIELDS,
    values: {url: hook.url, on: ticked(hook.events)},
    async submit(values) {
      await call("PATCH", address(hook.id), {body: chosen(values)});
      toast("Saved.");
      done();
      return true;
    },
  });
}

/* ---- one ---- */

/* The delivery of the event; null: it takes longer than anybody looks at it. */
async function delivered(hook, event, signal) {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; ) {
    const {items} = await get(query(address(hook.id, "deliveries"), {limit: 1000}), signal);
    const found = items.find((d) => d.event === event);

    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return null;
}

function outcome({state, status, error, took_ms: took}) {
  const what = status === null ? error : `the receiver answered ${status} after ${number(took)} ms`;

  return el("p", {class: `warning ${state}`}, state === "succeeded" ? `Delivered: ${what}.` : `Not delivered: ${what}.`);
}

async function test(hook, box, done, signal) {
  replace(box, el("p", {class: "loading"}, "The test event is on its way\u2026"));
  try {
    const {event} = await call("POST", address(hook.id, "test")),
      delivery = await delivered(hook, event, signal);

    replace(box, delivery ? outcome(delivery) : el("p", {class: "warning"}, `${event} has not been sent yet. It will appear among the deliveries below.`));
    done();
  } catch (problem) {
    if (!signal.aborted) replace(box, failure(problem));
  }
}

function actions(hook, box, done, signal) {
  const switchTo = async (state) => {
    await call("PATCH", address(hook.id), {body: {state}});
    done();
  };
  const rotate = async () => {
    const {secret} = await call("POST", address(hook.id, "rotate"), {body: {}});
    done();
    showSecret(secret, signal);
  };
  const remove = async () => {
    await call("DELETE", address(hook.id));
    toast("The webhook was deleted.");
    location.hash = "#/webhooks";
  };
  const asked = (verb, key, text, action) =>
    button(verb, () => confirm(`${verb}?`, text, verb, action, signal), {data: {key}});

  return el("div", {class: "actions"},
    button("Send a test event", () => test(hook, box, done, signal), {data: {key: "test"}}),
    button("Change", () => openChange(hook, done, signal), {data: {key: "change"}}),
    hook.state === "enabled"
      ? asked("Disable", "switch", "Nothing is sent until it is enabled; then it resumes where it stopped.", () => switchTo("disabled"))
      : asked("Enable", "switch", "It resumes where it stopped.", () => switchTo("enabled")),
    asked("New secret", "rotate", "For a day the old one signs as well, so that no event is refused meanwhile.", rotate),
    asked("Delete", "delete", "Undelivered events are dropped. This cannot be undone.", remove));
}

function hookPanel(id, signal, done) {
  const box = el("div", {role: "status"}),
    facts = el("div");
  const shown = panel("Webhook", {
    signal,
    every: 5,
    level: "h1",
    load: (s) => get(address(id), s),
    draw(body, hook) {
      const zone = zoneFor();
      const rows = [
        ["URL", el("code", {}, hook.url)],
        ["State", stateOf(hook)],
        ["Events", eventsOf(hook)],
        ["Coupons", couponsOf(hook)],
        ["Created", `${time(hook.created_at, zone)} (${zone})`],
        hook.old_secret_until ? ["The old secret signs until", `${time(hook.old_secret_until, zone)} (${zone})`] : null,
      ];

      replace(facts,
        pairs(rows),
        actions(hook, box, done, signal));
      if (!body.contains(facts)) replace(body, facts, box);
    },
  });

  return shown;
}

async function redeliver(id, delivery) {
  await call("POST", address(id, "deliveries", delivery.id, "redeliver")).then(() => toast("It will be sent again."), toastProblem);
}

function deliveriesPanel(id, signal) {
  const zone = zoneFor();

  return panel("Latest deliveries", {
    signal,
    every: 3,
    load: (s) => get(query(address(id, "deliveries"), {limit: LATEST}), s),
    draw(body, {items}) {
      if (!items.length) return replace(body, empty("Nothing has been sent yet."));
      replace(
        body,
        table("Deliveries", [`At (${zone})`, "Event", "Outcome", "Answer", ""],
          items.map((d) => [
            time(d.at, zone),
            [d.type, el("div", {class: "small id"}, d.event)],
            [
              el("span", {class: `badge ${d.state === "succeeded" ? "active" : "sold"}`}, d.state),
              el("div", {class: "small"}, d.redelivery_of ? "sent again" : d.attempt > 1 ? `attempt ${number(d.attempt)}` : null),
            ],
            [
              d.status === null ? d.error : `${d.status}, ${number(d.took_ms)} ms`,
              d.response ? el("div", {class: "small"}, d.response.slice(0, 200)) : null,
            ],
            button("Send again", () => redeliver(id, d), {data: {key: `again-${d.id}`}, "aria-label": `Send ${d.event} again`}),
          ]),
          "cards"),
      );
    },
  });
}

export function showWebhook(main, [id], signal) {
  const latest = deliveriesPanel(id, signal);
  const hook = hookPanel(id, signal, () => {
    hook.refresh();
    latest.refresh();
  });

  replace(main,
    el("p", {class: "small"}, el("a", {href: "#/webhooks"}, "\u2190 All webhooks")),
    el("div", {class: "column"}, hook.node, latest.node));
}

/* ---- all ---- */

export function showWebhooks(main, parameters, signal) {
  const p = panel("Webhooks", {
    signal,
    every: 5,
    level: "h1",
    load: (s) => getAll(address(), {}, MOST, s),
    draw(body, {items}) {
      if (!items.length) return replace(body, empty("No webhooks yet. A webhook sends events to a URL of yours."));
      replace(
        body,
        table("Webhooks", ["URL", "State", "Events", "Coupons"],
          items.map((hook) => [
            el("a", {class: "title", href: `#/webhook/${encodeURIComponent(hook.id)}`, data: {key: `w-${hook.id}`}}, hook.url),
            stateOf(hook),
            eventsOf(hook),
            couponsOf(hook),
          ]),
          "cards"),
      );
    },
  });

  p.head.append(button("New webhook", () => openNew(signal), {class: "primary"}));
  replace(main, p.node);
}
