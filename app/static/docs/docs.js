/*
 * docs.js -- shows openapi.json, and sends the calls that it describes.
 *
 * Safe    text becomes text nodes: nothing that the document or an answer says is ever taken for HTML
 * Key     kept in sessionStorage: for this tab, until it is closed or the key is forgotten
 * Order   helpers, schemas, trying a call, one call, events, the page
 */
const KEY = 'coupons-key';
const METHODS = ['get', 'post', 'patch', 'delete'];
let api; // the document

// ---- helpers ----

/** An element; attributes that are null or false are omitted, functions are listeners. */
function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const byId = (id) => document.getElementById(id);
const pretty = (value) => (typeof value === 'string' ? value : JSON.stringify(value, null, 2));

/** What a reference leads to. */
function resolve(value) {
  if (!value || !value.$ref) return value;
  return value.$ref.slice(2).split('/').reduce((at, part) => at[part], api);
}

function listOf(names) {
  return names.map((name) => h('code', {}, name)).reduce((all, one) => all.concat(all.length ? [', ', one] : [one]), []);
}

// ---- schemas ----

function bounds(schema) {
  const words = [];
  if ('const' in schema) words.push(`= ${JSON.stringify(schema.const)}`);
  if (schema.enum && schema.enum.length <= 12) words.push(`one of ${schema.enum.map((e) => JSON.stringify(e)).join(', ')}`);
  if ('minimum' in schema) words.push(`from ${schema.minimum.toLocaleString('en')}`);
  if ('maximum' in schema) words.push(`to ${schema.maximum.toLocaleString('en')}`);
  if ('minLength' in schema || 'maxLength' in schema) words.push(`${schema.minLength ?? 0} to ${schema.maxLength ?? '∞'} characters`);
  if ('minItems' in schema || 'maxItems' in schema) words.push(`${schema.minItems ?? 0} to ${schema.maxItems ?? '∞'} items`);
  if (schema.pattern) words.push(`matches ${schema.pattern}`);
  return words.join(', ');
}

function kindOf(schema) {
  const to = resolve(schema);
  if (schema.$ref) return schema.$ref.split('/').pop();
  if (to.anyOf || to.oneOf) return (to.anyOf || to.oneOf).map(kindOf).join(' or ');
  const type = [to.type ?? 'anything'].flat().join(' or ');
  if (to.type === 'array') return `list of ${kindOf(to.items)}`;
  return to.format ? `${type} (${to.format})` : type;
}

/** The object or objects whose members are to be shown. */
function objectsIn(schema) {
  const to = resolve(schema);
  if (to.properties && to.type) return [[schema, to]];
  if (to.items) return objectsIn(to.items);
  return [to.oneOf ?? to.anyOf ?? to.allOf ?? []].flat().flatMap(objectsIn);
}

/** asked: the caller sends it, so required members say so. */
function showMembers(schema, asked) {
  return h('ul', { class: 'members' }, Object.entries(schema.properties).map(([name, member]) => {
    const needed = asked && (schema.required ?? []).includes(name);
    const to = resolve(member);
    return h('li', {}, h('code', { class: 'name' }, name), ' ', h('span', { class: 'kind' }, kindOf(member)),
      needed ? h('span', { class: 'needed' }, ' required') : null,
      h('div', { class: 'soft' }, [member.description ?? to.description, bounds(to)].filter(Boolean).join(' · ')),
      showInner(member, asked));
  }));
}

/** Members of what a member is: folded, and made when they are first looked at, because schemas can hold themselves. */
function showInner(schema, asked) {
  const objects = objectsIn(schema);
  if (!objects.length) return null;
  const inside = h('div', { class: 'inside' });
  const fold = h('details', {
    toggle: () => { if (fold.open && !inside.childElementCount) inside.append(...objects.map(([, to]) => showMembers(to, asked))); },
  }, h('summary', {}, `members of ${kindOf(schema)}`), inside);
  return fold;
}

function showSchema(schema, asked) {
  const objects = objectsIn(schema);
  if (!objects.length) return h('p', { class: 'kind' }, kindOf(schema));
  return h('div', {}, objects.map(([, to]) => [to.description ? h('p', { class: 'soft' }, to.description) : null, showMembers(to, asked)]));
}

function showExample(caption, value) {
  return h('figure', {}, h('figcaption', {}, caption), h('pre', { tabindex: 0 }, pretty(value)));
}

// ---- trying a call ----

function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** An input for a parameter: a choice where there are few values. */
function inputFor(parameter, id) {
  const schema = resolve(parameter.schema);
  const values = schema.enum ?? (schema.type === 'boolean' ? ['true', 'false'] : null);
  if (values) {
    return h('select', { id, required: parameter.required },
      parameter.required ? null : h('option', { value: '' }, '(not sent)'), values.map((value) => h('option', {}, value)));
  }
  return h('input', { id, required: parameter.required, autocomplete: 'off', spellcheck: 'false',
    inputmode: schema.type === 'integer' ? 'numeric' : null, placeholder: schema.format === 'date-time' ? '2026-11-01T00:00:00Z' : null,
    value: parameter.name === 'Idempotency-Key' && parameter.required ? randomKey() : parameter.name === 'If-Match' && parameter.required ? '*' : null });
}

/** What the form asks for: [address, options of fetch]. */
function requestOf(call, inputs, body) {
  const headers = new Headers(), query = new URLSearchParams();
  let path = call.path;
  for (const [parameter, input] of inputs) {
    if (parameter.in === 'path') path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value === '') continue;
    else if (parameter.in === 'query') query.set(parameter.name, input.value);
    else headers.set(parameter.name, input.value);
  }
  const key = sessionStorage.getItem(KEY);
  if (key && call.operation.security.length) headers.set('Authorization', `Bearer ${key}`);
  if (body) headers.set('Content-Type', body.type.value);
  const options = { method: call.method.toUpperCase(), headers, cache: 'no-store', credentials: 'omit', redirect: 'error' };
  if (body) options.body = body.text.value;
  return [path + (query.size ? `?${query}` : ''), options];
}

async function textOf(response) {
  const text = await response.text();
  if (!(response.headers.get('Content-Type') ?? '').includes('json') || text.length > 1e6) return text;
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text; // lines of JSON
  }
}

async function send(call, inputs, body, answer, button) {
  const [address, options] = requestOf(call, inputs, body);
  const started = performance.now();
  answer.replaceChildren(h('p', { role: 'status' }, 'Waiting for the answer…'));
  button.disabled = true;
  try {
    const response = await fetch(address, options);
    const text = await textOf(response);
    const took = Math.round(performance.now() - started);
    answer.replaceChildren(
      h('p', { role: 'status' }, h('span', { class: `status ${response.ok ? 'good' : 'bad'}` }, `${response.status} ${response.statusText}`), ` in ${took} ms`),
      showExample(`${options.method} ${address}`, [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n')),
      text ? showExample('Body', text) : h('p', { class: 'soft' }, 'No body.'));
    answer.scrollIntoView({ block: 'nearest' });
  } catch (error) {
    answer.replaceChildren(h('p', { class: 'failure', role: 'alert' }, `No answer: ${error.message}. Is the service running?`));
  } finally {
    button.disabled = false;
  }
}

function bodyFields(call, id) {
  const content = call.operation.requestBody?.content;
  if (!content) return [null, null];
  const types = Object.keys(content);
  const text = h('textarea', { id: `${id}-body`, spellcheck: 'false' }, pretty(content[types[0]].example ?? ''));
  const type = h('select', { id: `${id}-type`, change: () => { text.value = pretty(content[type.value].example ?? ''); } },
    types.map((one) => h('option', {}, one)));
  return [{ text, type }, h('div', {},
    h('div', { class: 'field' }, h('label', { for: `${id}-type` }, 'Content-Type'), type),
    h('div', { class: 'field body' }, h('label', { for: `${id}-body` }, 'Body'), text))];
}

function showTry(call) {
  const id = call.operation.operationId;
  const inputs = call.parameters.map((parameter, i) => [parameter, inputFor(parameter, `${id}-${i}`)]);
  const [body, fields] = bodyFields(call, id);
  const answer = h('div', { class: 'answer' });
  const button = h('button', { class: 'send', type: 'submit' }, `Send ${call.method.toUpperCase()}`);
  const fresh = inputs.filter(([parameter]) => parameter.name === 'Idempotency-Key');
  return h('form', { class: 'try', submit: (event) => { event.preventDefault(); send(call, inputs, body, answer, button); } },
    h('h3', {}, 'Try it'),
    inputs.map(([parameter, input]) => h('div', { class: 'field' },
      h('label', { for: input.id }, h('code', {}, parameter.name), parameter.required ? h('span', { class: 'needed' }, ' required') : null),
      input, h('span', { class: 'soft' }, parameter.description ?? ''))),
    fields,
    h('div', { class: 'row' }, button,
      fresh.length ? h('button', { type: 'button', click: () => fresh.forEach(([, input]) => { input.value = randomKey(); }) }, 'New Idempotency-Key') : null,
      call.method === 'get' ? null : h('span', { class: 'soft' }, 'This is the live service: it does what you ask.')),
    answer);
}

// ---- one call ----

function showProblemList(codes) {
  return h('ul', {}, codes.map((code) => h('li', {}, h('a', { href: `../problems/${code}` }, h('code', {}, code)))));
}

function showAnswer([status, reference]) {
  const answer = resolve(reference);
  const content = Object.entries(answer.content ?? {});
  return h('details', {}, h('summary', {}, h('strong', {}, status), ' ', answer.description),
    h('div', { class: 'inside' },
      answer.headers ? h('p', { class: 'soft' }, 'Fields: ', listOf(Object.keys(answer.headers))) : null,
      content.map(([type, one]) => [h('h3', {}, h('code', {}, type)),
        answer['x-problems'] ? showProblemList(answer['x-problems']) : showSchema(one.schema, false),
        one.example === undefined ? null : showExample('Example', one.example)])));
}

function showParameters(call) {
  if (!call.parameters.length) return null;
  return [h('h3', {}, 'Parameters'), h('ul', { class: 'members' }, call.parameters.map((parameter) => h('li', {},
    h('code', { class: 'name' }, parameter.name), ' ', h('span', { class: 'kind' }, `${parameter.in}, ${kindOf(parameter.schema)}`),
    parameter.required ? h('span', { class: 'needed' }, ' required') : null,
    h('div', { class: 'soft' }, [parameter.description, bounds(resolve(parameter.schema))].filter(Boolean).join(' · ')))))];
}

function showBody(call, asked) {
  const body = call.operation.requestBody;
  if (!body) return null;
  const types = Object.entries(body.content);
  return [h('h3', {}, 'Body'), h('p', { class: 'soft' }, `${body.description} ${body.required ? '' : 'It may be absent.'}`),
    h('p', {}, listOf(types.map(([type]) => type))), showSchema(types[0][1].schema, asked), showExample('Example', types[0][1].example)];
}

/** The same call as keys of the role public make it: another body, another answer. */
function showPublic(call) {
  const post = resolve(call.operation['x-public'])?.post;
  if (!post) return null;
  return [h('h3', {}, 'With a key of the role public'), h('details', {}, h('summary', {}, post.summary),
    h('div', { class: 'inside' }, h('p', {}, post.description), showBody({ operation: post }, true), showAnswer(['200', post.responses['200']])))];
}

function showRoles(call) {
  const names = call.operation.security.flatMap((one) => Object.keys(one));
  return h('p', {}, names.length ? 'Roles: ' : 'Needs no key.', names.map((name) => h('span', { class: 'role' }, name)));
}

function showCall(call) {
  const inside = h('div', { class: 'inside' });
  const { operation, method, path } = call;
  call.element = h('details', { class: 'call', id: operation.operationId, toggle: () => { if (call.element.open) fill(); } },
    h('summary', {}, h('span', { class: `method ${method}` }, method.toUpperCase()), h('code', { class: 'path' }, path),
      h('span', { class: 'what' }, operation.summary)), inside);
  /* made when it is opened: 40 forms at once would be slow on a phone */
  function fill() {
    if (inside.childElementCount) return;
    inside.append(...[operation.description ? h('p', {}, operation.description) : null, showRoles(call), showParameters(call), showBody(call, true),
      h('h3', {}, 'Answers'), Object.entries(operation.responses).map(showAnswer), showPublic(call), showTry(call)].flat(Infinity).filter(Boolean));
  }
  return call.element;
}

// ---- events ----

/** What a webhook is sent: shown as a call is, without a form. */
function showEvent([type, { post }]) {
  return h('details', { class: 'event', id: post.operationId },
    h('summary', {}, h('span', { class: 'method post' }, 'POST'), h('code', { class: 'path' }, type), h('span', { class: 'what' }, post.summary)),
    h('div', { class: 'inside' }, h('p', {}, post.description), showParameters({ parameters: post.parameters.map(resolve) }), showBody({ operation: post }, false),
      h('h3', {}, 'Your answer'), Object.entries(post.responses).map(showAnswer)));
}

/** The calls of a tag; or the events, which are no calls of this service. */
function showGroup(tag, i, calls) {
  const inside = calls.filter((call) => call.operation.tags[0] === tag.name).map(showCall);
  return h('section', { id: `group-${i}`, 'aria-labelledby': `group-${i}-name` }, h('h2', { id: `group-${i}-name` }, tag.name),
    h('p', { class: 'soft' }, tag.description), inside.length ? inside : Object.entries(api.webhooks).map(showEvent));
}

// ---- the page ----

function callsOf(document_) {
  return Object.entries(document_.paths).flatMap(([path, methods]) => METHODS.filter((method) => methods[method]).map((method) => ({
    path, method, operation: methods[method], parameters: methods[method].parameters.map(resolve),
    text: `${method} ${path} ${JSON.stringify([methods[method].operationId, methods[method].summary, methods[method].description,
      methods[method].security, methods[method].tags])}`.toLowerCase(),
  })));
}

function watchFilter(calls, sections) {
  byId('filter-form').addEventListener('submit', (event) => event.preventDefault());
  byId('filter').addEventListener('input', () => {
    const words = byId('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const call of calls) {
      call.element.hidden = !words.every((word) => call.text.includes(word));
      found += !call.element.hidden;
    }
    for (const section of sections) section.hidden = !section.querySelector('.call:not([hidden]), .event');
    byId('found').textContent = words.length ? `${found} of ${calls.length} calls` : '';
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    event.preventDefault();
    byId('filter').focus();
  });
}

function watchKey() {
  const showState = () => { byId('key-state').textContent = sessionStorage.getItem(KEY) ? 'Kept for this tab.' : 'None: only open calls answer.'; };
  byId('key-form').addEventListener('submit', (event) => {
    event.preventDefault();
    if (byId('key').value.trim()) sessionStorage.setItem(KEY, byId('key').value.trim());
    byId('key').value = '';
    showState();
  });
  byId('key-forget').addEventListener('click', () => {
    sessionStorage.removeItem(KEY);
    showState();
  });
  showState();
}

/** What follows # in the address; what cannot be decoded names nothing. */
function addressed() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return '';
  }
}

/** The call or event that the address names is opened. */
function followAddress() {
  const element = byId(addressed());
  if (!element || !element.matches('.call, .event')) return;
  element.open = true;
  element.querySelector('summary').focus();
  element.scrollIntoView();
}

function showAll() {
  const calls = callsOf(api);
  const sections = api.tags.map((tag, i) => showGroup(tag, i, calls));
  byId('version').textContent = api.info.version;
  byId('about').textContent = api.info.description;
  byId('tags').replaceChildren(h('ul', {}, api.tags.map((tag, i) => h('li', {}, h('a', { href: `#group-${i}` }, tag.name)))));
  byId('calls').replaceChildren(...sections);
  watchFilter(calls, sections);
  addEventListener('hashchange', followAddress);
  followAddress();
}

async function load() {
  byId('calls').setAttribute('aria-busy', 'true');
  try {
    const response = await fetch('../openapi.json', { credentials: 'omit' });
    if (!response.ok) throw new Error(`the service answered ${response.status}`);
    api = await response.json();
    showAll();
  } catch (error) {
    byId('calls').replaceChildren(h('p', { class: 'failure', role: 'alert' }, `The description cannot be shown: ${error.message}.`),
      h('button', { type: 'button', click: load }, 'Try again'));
  }
  byId('calls').removeAttribute('aria-busy');
}

watchKey();
load();
