/*
 * dashboard/panel.js -- a part of a page that reads something now and then, and says honestly how that goes.
 *
 * States  loading, failed (with why, and a button), shown, and stale: shown, but the last reading failed, and since when
 * Quiet   a hidden tab reads nothing; failures are repeated ever more slowly, and what takes long more seldom; what has not changed is
 *         not drawn again
 */
import {button, el, replace} from "./dom.js";
import {clock} from "./format.js";

const SLOWEST_S = 60,
  REST = 3; /* as many times as long as a reading took */

/* What went wrong, for people; retry: what a button "Try again" does. */
export function failure(problem, retry) {
  return el("div", {class: "failure", role: "alert"},
    el("p", {}, el("strong", {}, problem.message), problem.detail ? ` ${problem.detail}` : ""),
    problem.requestId ? el("p", {class: "small"}, `Request ${problem.requestId}`) : null,
    problem.status > 0 && problem.code
      ? el("p", {class: "small"}, el("a", {href: `/coupons/-/problems/${encodeURIComponent(problem.code)}`}, "What this means"))
      : null,
    retry ? button("Try again", retry) : null);
}

export function empty(...children) {
  return el("div", {class: "empty"}, children);
}

const byKey = (body, key) => body.querySelector(`[data-key="${CSS.escape(key)}"]`);

/* Draw, and leave the keyboard where it was, on the element with the same data-key, and open what was open. */
function drawInPlace(body, draw) {
  const key = body.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const opened = [...body.querySelectorAll("details[open][data-key]")].map((d) => d.dataset.key);

  draw();
  for (const name of opened) byKey(body, name)?.setAttribute("open", "");
  if (key !== undefined && !body.contains(document.activeElement)) byKey(body, key)?.focus({preventScroll: true});
}

/* Until so many seconds have passed, state.wake() was called, or signal was aborted. */
function sleep(seconds, signal, state) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, seconds * 1000);

    state.wake = end;
    signal.addEventListener("abort", end);
  });
}

function untilVisible(signal) {
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      signal.removeEventListener("abort", check);
      resolve();
    };

    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check);
    check();
  });
}

class Panel {
  constructor({load, draw, every, signal}) {
    Object.assign(this, {load, draw, every, signal, wait: every, last: null, shownAt: 0, again: false, wake: () => {}});
    this.body = el("div", {class: "body", "aria-busy": "true"}, el("p", {class: "loading"}, "Loading\u2026"));
    this.note = el("p", {class: "stale", role: "status", hidden: true});
  }

  show(value) {
    const text = JSON.stringify(value);

    if (text !== this.last) drawInPlace(this.body, () => this.draw(this.body, value));
    this.last = text;
    this.shownAt = Date.now();
    this.note.hidden = true;
    this.body.setAttribute("aria-busy", "false");
    this.wait = this.every;
  }

  fail(problem) {
    this.wait = Math.min(SLOWEST_S, this.wait * 2);
    this.body.setAttribute("aria-busy", "false");
    if (this.last === null) {
      replace(this.body, failure(problem, () => this.refresh()));
      return;
    }
    this.note.hidden = false;
    this.note.textContent = `Not up to date: this is as of ${clock(this.shownAt)}. ${problem.message}. Trying again.`;
  }

  async run() {
    while (!this.signal.aborted) {
      this.again = false;
      try {
        const began = Date.now();

        this.show(await this.load(this.signal, (part) => !this.signal.aborted && this.show(part)));
        this.wait = Math.min(SLOWEST_S, Math.max(this.every, (REST * (Date.now() - began)) / 1000));
      } catch (error) {
        if (this.signal.aborted) return;
        if (error.status === undefined) console.error(error);
        this.fail(error);
      }
      if (this.again) continue;
      await sleep(this.wait, this.signal, this);
      await untilVisible(this.signal);
    }
  }

  /* Read again now. */
  refresh() {
    this.again = true;
    this.wake();
  }
}

/*
 * A section with a heading. load(signal, show) gives what draw(body, value) shows, every so many seconds; show(value) what there is
 * until then.
 * Returns {node, refresh, rename, head}: head is there for buttons.
 */
export function panel(title, {load, draw, every = 10, signal, level = "h2", kind = ""}) {
  const p = new Panel({load, draw, every, signal});
  const head = el("div", {class: "head"}, el(level, {}, title));
  const node = el("section", {class: `panel ${kind}`, "aria-label": title}, head, p.note, p.body);

  p.run();
  const rename = (text) => {
    head.firstChild.textContent = text;
    node.setAttribute("aria-label", text);
  };
  return {node, head, rename, refresh: () => p.refresh()};
}
