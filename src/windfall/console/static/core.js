// What every page needs: elements, texts without control characters, numbers for people, requests, dialogs.

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

// Whatever tasks, hosts or users named may hold control characters: they are shown, and never carried out.
export function clean(text, lines = false) {
  const shown = String(text ?? "").replace(CONTROL, (char) => {
    const code = char.codePointAt(0);
    return code < 32 ? String.fromCodePoint(0x2400 + code) : code === 127 ? "\u2421" : `\\u{${code.toString(16)}}`;
  });
  return lines ? shown : shown.replace(/\n/g, "\u240a").replace(/\t/g, " ");
}

const DIRECT = new Set(["value", "checked", "open", "disabled", "selected"]);

export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (DIRECT.has(name)) node[name] = value;
    node.setAttribute(name, value === true ? "" : clean(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
}

export const lines = (text, label) => {
  const node = h("pre", { tabindex: "0", role: "region", "aria-label": clean(label) });
  node.append(document.createTextNode(clean(text, true)));
  return node;
};

// A picture that the server drew from escaped text. Scripts in it would not run: the security policy forbids them.
export function drawn(html) {
  const parsed = new DOMParser().parseFromString(html ?? "", "text/html");
  for (const bad of parsed.querySelectorAll("script,iframe,object,embed,link,style,form")) bad.remove();
  return [...parsed.body.childNodes].map((node) => document.importNode(node, true));
}

export function pictures(list) {
  if (!list.length) return h("p", { class: "soft" }, "There is nothing to draw yet.");
  const made = h("div", { class: "pictures" }, list.map((each) => h("section", { "aria-label": each.name, class: each.wide && "wide" }, h("h2", {}, each.name), drawn(each.html))));
  for (const chart of made.querySelectorAll(".chart")) chart.setAttribute("tabindex", "0"), chart.setAttribute("role", "group"), chart.setAttribute("aria-label", "picture, can be scrolled");
  return made;
}

// --- numbers ---

export const num = (value, digits = 0) => value === null || value === undefined ? "-" : Number(value).toLocaleString("en", { maximumFractionDigits: digits });
export const usd = (value) => value === null || value === undefined ? "-" : value !== 0 && Math.abs(value) < 0.1 ? `$${value.toPrecision(2)}` : `$${Number(value).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
export const many = (count, word) => `${num(count)} ${word}${count === 1 ? "" : "s"}`;
// Equal texts once, with how many there are of each.
export function tally(texts) {
  const seen = new Map();
  for (const text of texts) seen.set(text, (seen.get(text) ?? 0) + 1);
  return [...seen].map(([text, count]) => `${num(count)} × ${text}`);
}
// Texts that differ in numbers alone: the first of them, and how many there are like it.
export function alike(texts) {
  const seen = new Map();
  for (const text of texts) {
    const kind = text.replace(/\d+/g, "#"), [first, count] = seen.get(kind) ?? [text, 0];
    seen.set(kind, [first, count + 1]);
  }
  return [...seen.values()].map(([first, count]) => count > 1 ? `${first} (${num(count)} like this)` : first);
}
export const share = (value) => value === null || value === undefined ? "-" : `${(100 * value).toLocaleString("en", { maximumFractionDigits: 1 })} %`;

export function dur(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "-";
  if (seconds < 0) return `-${dur(-seconds)}`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)}h${two(minutes % 60)}m`;
  const hours = Math.round(seconds / 3600);
  return `${Math.floor(hours / 24)}d${two(hours % 24)}h`;
}

export function clock(unix) {
  if (unix === null || unix === undefined) return "-";
  const at = new Date(1000 * unix), sameDay = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString("en-GB");
  return sameDay ? time : `${at.toISOString().slice(0, 10)} ${time}`;
}

// "1h30m", "90s", "5m", or a number of seconds.
export function seconds(text) {
  const found = /^\s*(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?\s*$/.exec(text ?? "");
  if (!found || !text.trim()) throw new Error(`'${text}' is no duration; as in: 90s, 5m, 1h30m`);
  const [, d, hh, m, s] = found.map((part) => Number(part ?? 0));
  return 86400 * d + 3600 * hh + 60 * m + s;
}

// A number that somebody typed. What is none is said, and never sent: JSON would make "nothing" of it.
export function number(text, what) {
  const plain = String(text).trim().replace(/^\$/, ""), value = Number(plain);
  if (!plain || !Number.isFinite(value)) throw new Error(`${what}: '${text}' is no number; as in: 2.5`);
  return value;
}

// --- tables ---

// A cell of several parts is one thing: on a phone it stands beside its name.
function whole(cell) {
  const parts = [cell].flat(Infinity).filter((part) => part !== null && part !== undefined && part !== false && part !== "");
  return parts.length > 1 ? h("div", {}, parts) : parts;
}

// heads: [name, kind] with kind "num" or "wide" or nothing; rows: arrays of cells.
export function table(caption, heads, rows, empty = "None.") {
  if (!rows.length) return h("p", { class: "soft" }, empty);
  const kind = (place) => heads[place]?.[1];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map(([name, of]) => name ? h("th", { scope: "col", class: of }, name) : h("td", {})))),
      h("tbody", {}, rows.map((cells) => h("tr", { "data-key": cells[0] instanceof Node ? cells[0].textContent : cells[0] }, cells.map((cell, place) => h("td", { class: kind(place), "data-name": heads[place]?.[0] || null }, whole(cell))))))));
}

// Why an attempt ended, in the words of the command line (client/results.py; a test holds them to each other).
const CAUSES = {
  "oom": "out of memory", "time": "killed after its time limit", "python": "the call raised", "outputs": "declared output missing",
  "inputs": "input not available", "no-command": "program not found or not executable", "no-cwd": "no such working directory",
  "preempted": "worker was stopped", "bad-task": "the server could not make its command",
  "disagreed": "volunteers came to different results", "quota": "more files than its job may have", "lost": "host vanished",
};
const SIGNALS = { 1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV", 13: "PIPE", 15: "TERM" };
export function causeText(cause, code) {
  if (cause === "exit") return `exit code ${code}`;
  if (cause !== "signal") return CAUSES[cause] ?? cause;
  const number = Math.abs(code) > 128 ? Math.abs(code) - 128 : Math.abs(code);
  return `killed by ${SIGNALS[number] ? `SIG${SIGNALS[number]}` : `signal ${number}`}`;
}

export const badge = (state) => h("span", { class: `badge ${String(state).replace(/[^a-z-]/g, "")}` }, state);
export const link = (text, to) => h("a", { href: to }, text);
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
export const button = (text, act, arg, more = {}) => h("button", { type: "button", "data-act": act, "data-arg": arg, ...more }, text);

// --- requests ---

export class Problem extends Error {
  constructor(status, said) {
    super(said?.detail ?? said?.error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.hint = said?.hint ?? said?.error?.hint ?? "";
    this.code = said?.code ?? said?.error?.code ?? "";
  }
}

export class Away extends Error {}

async function send(method, path, body, raw = false, signal = undefined) {
  let response;
  try {
    response = await fetch(path, {
      method, signal, credentials: "same-origin", cache: "no-store",
      headers: method === "GET" ? {} : { "content-type": "application/json", "x-windfall-console": "1" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away("the server does not answer");
  }
  if (!response.ok) {
    let said = null;
    try { said = await response.json(); } catch { /* no JSON: the status says it */ }
    if (response.status === 401) document.dispatchEvent(new CustomEvent("signed-out", { detail: said }));
    throw new Problem(response.status, said);
  }
  if (response.status === 204) return null;
  return raw ? response.arrayBuffer() : response.json();
}

export const get = (path) => send("GET", path);
export const post = (path, body = {}) => send("POST", path, body);
export const drop = (path) => send("DELETE", path);
export const q = encodeURIComponent;

// A frame: a JSON header behind its length, then raw bytes.
export async function getFrame(path, signal) {
  const buffer = await send("GET", path, undefined, true, signal);
  const length = new DataView(buffer).getUint32(0);
  return [JSON.parse(new TextDecoder().decode(buffer.slice(4, 4 + length))), new Uint8Array(buffer, 4 + length)];
}

// --- asking before something is done ---

// fields: [{name, label, value, placeholder}]; the answer is null, or an object with their values.
export function ask(title, text, action, fields = []) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    const inputs = fields.map((field) => h("label", {}, h("span", {}, field.label), h("input", { name: field.name, value: field.value ?? "", placeholder: field.placeholder, autocomplete: "off" })));
    const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), h("p", {}, text), inputs,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "main", value: "yes" }, action), h("button", { type: "button", id: "dialog-no" }, "Do nothing")));
    dialog.replaceChildren(form);
    let answer = null;
    form.addEventListener("submit", (event) => { event.preventDefault(); answer = Object.fromEntries(new FormData(form)); dialog.close(); });
    form.querySelector("#dialog-no").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => resolve(answer), { once: true });
    dialog.showModal();
  });
}

// --- keeping what is on the page while it is drawn again ---

// Rows are the same if their first cells are: a row that is new above the others does not move the focus to another one.
function reorder(old, mine, theirs) {
  const known = new Map();
  for (const node of mine) if (node.dataset?.key && !known.has(node.dataset.key)) known.set(node.dataset.key, node); else node.remove();
  const wanted = new Set(theirs.map((node) => node.dataset?.key));
  for (const [key, node] of known) if (!wanted.has(key)) node.remove(), known.delete(key);
  let at = old.firstChild;
  for (const node of theirs) {
    const same = known.get(node.dataset?.key);
    if (same) known.delete(node.dataset.key), morph(same, node);
    if (same && same === at) at = at.nextSibling; else old.insertBefore(same ?? node, at);
  }
}

// Make `old` like `fresh` and leave alone what is equal, so that focus, scroll positions and inputs stay.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) { if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue; return; }
  if (old.isEqualNode(fresh)) return;
  const keeps = ["INPUT", "TEXTAREA", "SELECT"].includes(old.nodeName);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (name !== "open" && old.getAttribute(name) !== value && !(keeps && name === "value")) old.setAttribute(name, value);
  if (old.nodeName === "PROGRESS" || old.nodeName === "METER") old.value = fresh.value;
  if (keeps && old.nodeName !== "SELECT") return;
  const mine = [...old.childNodes], theirs = [...fresh.childNodes];
  if (mine.length && theirs.some((node) => node.dataset?.key)) { reorder(old, mine, theirs); return; }
  theirs.forEach((node, place) => place < mine.length ? morph(mine[place], node) : old.append(node));
  mine.slice(theirs.length).forEach((node) => node.remove());
}
