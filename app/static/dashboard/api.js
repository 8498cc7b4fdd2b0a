/*
 * dashboard/api.js -- the service, asked with the key of this tab.
 *
 * Key     in sessionStorage: it ends with the tab, and no other tab has it. The page of the API has it from there, too
 * Errors  every failure is a Problem; status 0: nobody answered. 401 also forgets the key and tells `onKeyLost`
 */

const KEY = "coupons-key",
  ROLE = "coupons-role";
const TIMEOUT_MS = 30000,
  NOT_MODIFIED = 304;

class Problem extends Error {
  constructor(status, document, requestId, retryAfterS = 0) {
    super(document.title ?? `HTTP status ${status}`);
    this.status = status;
    this.code = document.code ?? null;
    this.detail = document.detail ?? "";
    this.errors = document.errors ?? [];
    this.requestId = document.request_id ?? requestId ?? null;
    this.retryAfterS = retryAfterS;
  }
}

export const session = {
  onKeyLost: () => {},
  get key() {
    return sessionStorage.getItem(KEY);
  },
  /* Of this key; null: not known yet. */
  get role() {
    const [role, key] = (sessionStorage.getItem(ROLE) ?? "").split(" ");

    return key && key === this.key ? role : null;
  },
  get isOps() {
    return this.role === "ops";
  },
  forget() {
    tagged.clear();
    sessionStorage.removeItem(KEY);
    sessionStorage.removeItem(ROLE);
  },
};

export const path = (...segments) => `/coupons/${segments.map(encodeURIComponent).join("/")}`;

export function query(address, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");

  return given.length ? `${address}?${new URLSearchParams(given)}` : address;
}

function parse(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" ? value : {};
  } catch {
    return {};
  }
}

/* Nobody answered; changing: the call was to change something. */
function unreachable(changing) {
  const detail = changing ? "It may have been done anyway: check before you do it again." : "The network or the service is down.";

  return new Problem(0, {title: "The service does not answer", code: "unreachable", detail});
}

function problemOf(status, text, header) {
  if (status === 401 && session.key) {
    session.forget();
    session.onKeyLost();
  }
  return new Problem(status, parse(text), header("X-Request-Id"), Number(header("Retry-After")) || 0);
}

/* as: "text", or "blob" for what may be long: it is waited for as long as it takes. */
async function send(method, address, {body, headers = {}, signal, key = session.key, as = "text"} = {}) {
  const ends = [signal, as === "text" ? AbortSignal.timeout(TIMEOUT_MS) : null].filter(Boolean);
  const json = body === undefined ? {} : {"Content-Type": "application/json"};
  let reply, content;

  try {
    reply = await fetch(address, {
      method,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      headers: {Authorization: `Bearer ${key}`, Accept: "application/json", ...json, ...headers},
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(ends),
    });
    content = await (reply.ok ? reply[as]() : reply.text());
  } catch (error) {
    throw signal?.aborted ? error : unreachable(!["GET", "HEAD"].includes(method));
  }
  if (!reply.ok && reply.status !== NOT_MODIFIED) throw problemOf(reply.status, content, (name) => reply.headers.get(name));
  return {reply, content};
}

/* The body of the answer. */
export async function call(method, address, options) {
  return parse((await send(method, address, options)).content);
}

export const get = (address, signal) => call("GET", address, {signal});

const tagged = new Map(); // by address: what was read last
const TAGGED_MOST = 2000;

/* {value, etag}: what a PATCH needs. What has not changed since is not sent again. */
export async function getTagged(address, signal) {
  const known = tagged.get(address);
  const {reply, content} = await send("GET", address, {signal, headers: known ? {"If-None-Match": known.etag} : {}});

  if (reply.status === NOT_MODIFIED) return known;
  const read = {value: parse(content), etag: reply.headers.get("ETag")};
  tagged.delete(address);
  tagged.set(address, read);
  if (tagged.size > TAGGED_MOST) tagged.delete(tagged.keys().next().value);
  return read;
}

export async function getLines(address, signal) {
  const headers = {Accept: "application/x-ndjson"};

  return (await send("GET", address, {signal, headers})).content.split("\n").filter(Boolean).map(parse);
}

/* As a Blob: it is not taken apart, and may be long. */
export async function getCsv(address, signal) {
  return (await send("GET", address, {signal, headers: {Accept: "text/csv"}, as: "blob"})).content;
}

export const patch = (address, etag, body) => call("PATCH", address, {body, headers: {"If-Match": etag}});

/* A key for a call that must not happen twice, however often its button is pressed. */
export const newKey = () => crypto.randomUUID();

/* What a list holds, up to `most`, on so many of its pages: with a filter a page may be empty and still have a next; {items, more}. */
export async function getAll(address, parameters, most, signal, pages = Infinity) {
  const items = [];
  let cursor = null,
    left = pages;

  do {
    const page = await get(query(address, {...parameters, limit: Math.min(1000, most - items.length), cursor}), signal);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most && --left > 0);
  return {items, more: Boolean(cursor)};
}

/* All tasks (functions that return promises), a few at a time. */
export async function several(tasks, atOnce = 6) {
  const waiting = tasks.slice();

  await Promise.all(Array.from({length: atOnce}, async () => {
    while (waiting.length) await waiting.shift()();
  }));
}

/* POST a file; fetch tells nothing of what was sent so far, XMLHttpRequest does. */
export function upload(address, file, type, key, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();

    request.open("POST", address);
    request.setRequestHeader("Authorization", `Bearer ${session.key}`);
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("Idempotency-Key", key);
    request.upload.onprogress = (event) => onProgress(event.loaded, event.total);
    request.onerror = () => reject(unreachable(true));
    request.onabort = () => reject(new Problem(0, {title: "Stopped", detail: "The file was not sent to its end: nothing was imported."}));
    request.onload = () =>
      request.status < 300
        ? resolve(parse(request.responseText))
        : reject(problemOf(request.status, request.responseText, (name) => request.getResponseHeader(name)));
    signal?.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/* Keep the key if it may read what is shown here. Returns null, or why not. */
export async function signIn(key) {
  if (!/^[\x21-\x7e]+$/.test(key)) return "That is not a key: a key is one word of letters, digits and symbols.";
  try {
    await call("GET", "/coupons/-/jobs?limit=1", {key});
  } catch (problem) {
    if (problem.status === 401) return "The service does not know this key, or it was revoked or has expired.";
    if (problem.status === 403 && problem.detail.startsWith("This key ")) return problem.detail;
    if (problem.status === 403)
      return "This key is of another role. The dashboard needs one of the role reporting (to view) or ops (to change).";
    return `${problem.message}. ${problem.detail}`;
  }
  /* Only ops may look at codes, also at one that is not there: so this says which of the two it is. */
  const status = await call("HEAD", path("_", "codes", "_"), {key}).then(() => 200, (problem) => problem.status);

  if (![200, 403, 404].includes(status))
    return "The service knows the key, but cannot say right now what it permits. Try again in a moment.";
  sessionStorage.setItem(KEY, key);
  sessionStorage.setItem(ROLE, `${status === 403 ? "reporting" : "ops"} ${key}`);
  return null;
}
