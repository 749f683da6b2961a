// The frame of the console: sign-in, navigation, news from the server, and the page that is shown.

import { Away, Problem, ask, drop, get, h, morph, post } from "./core.js";
import { listen, quiet } from "./news.js";
import * as overview from "./overview.js";
import * as job from "./job.js";
import * as tasks from "./tasks.js";
import * as supply from "./supply.js";
import * as money from "./money.js";
import * as planning from "./planning.js";
import * as fleets from "./fleets.js";
import * as system from "./system.js";

const PAGES = [
  ["overview", "Overview", overview.page], ["pools", "Pools", supply.pools], ["hosts", "Hosts", supply.hosts],
  ["machines", "Machines", supply.machines], ["fleets", "Fleets", fleets.list], ["money", "Money", money.page], ["decisions", "Decisions", planning.decisions],
  ["policies", "Policies", planning.policies], ["plan", "Plan", planning.plan], ["system", "System", system.page],
];
// What somebody sees whose token shows the jobs of one user alone.
const OF_USER = ["overview", "pools", "hosts"];
const ROUTES = { ...Object.fromEntries(PAGES.map(([name, , page]) => [name, page])), job: job.page, tasks: tasks.list, task: tasks.one, fleet: fleets.fleet, site: fleets.site };
const BELOW = { job: "overview", tasks: "overview", task: "overview", fleet: "fleets", site: "fleets" };

const main = document.getElementById("main"), header = document.getElementById("top"), banner = document.getElementById("banner");
// The first page after a load leaves the focus at the top, before the link that skips the navigation.
let moved = false;
let who = null, current = null, loading = false, again = false, timer = 0;

// --- where we are: #/job/7?state=failed ---

function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const name = Object.hasOwn(ROUTES, parts[0]) ? parts[0] : "overview";
  return { name, args: parts.slice(1), query: new URLSearchParams(query) };
}

function showHeader() {
  const name = place().name, here = BELOW[name] ?? name;
  const links = who ? PAGES.filter(([name]) => !who.user || OF_USER.includes(name)).map(([name, title]) => h("li", {}, h("a", { href: `#/${name}`, "aria-current": name === here && (BELOW[place().name] ? "true" : "page") }, title))) : [];
  const me = who ? h("div", { class: "who" }, h("span", {}, `${who.role}${who.user ? ` of ${who.user}` : ""}${who.may.jobs ? "" : ": looks, changes nothing"}`), h("button", { type: "button", "data-act": "sign-out" }, "Sign out")) : "";
  const fresh = h("header", { id: "top" }, h("a", { class: "brand", href: "#/overview" }, h("img", { src: "/console/icon.svg", alt: "" }), "Windfall"),
    h("nav", { "aria-label": "Pages" }, h("ul", {}, links)), me);
  morph(header, fresh);
  const at = header.querySelector("nav a[aria-current]"), row = at?.closest("nav");
  if (row && row.scrollWidth > row.clientWidth) row.scrollLeft = at.offsetLeft - (row.clientWidth - at.offsetWidth) / 2;
}

function say(text, bad = false) {
  banner.textContent = text;
  banner.className = bad ? "bad" : "";
}

// --- the page ---

class Shown {
  constructor(where) {
    this.where = where;
    this.page = ROUTES[where.name];
    this.state = {};
    this.left = new AbortController();
  }

  get signal() { return this.left.signal; }

  // Whether the token sees more than the jobs of one user.
  get all() { return !who?.user; }

  get may() { return who?.may ?? { jobs: false, hosts: false }; }

  async load() { this.data = await this.page.load(this.where, this); }

  draw(first = false) {
    if (current !== this) return;
    const title = this.page.title(this.where, this.data);
    const fresh = h("main", { id: "main", tabindex: "-1" }, this.page.view(this.data, this.where, this));
    morph(main, fresh);
    document.title = `${title} · Windfall`;
    document.documentElement.dataset.page = this.where.name;
    if (first && moved) main.focus({ preventScroll: false }), window.scrollTo(0, 0);
  }

  // After something was done, or when news came.
  async refresh() {
    if (loading) { again = true; return; }
    loading = true;
    try {
      await this.load();
      this.draw();
    } catch (error) {
      fail(error);
    } finally {
      loading = false;
      if (again) { again = false; current?.refresh(); }
    }
  }

  say(text, bad) { say(text, bad); }
}

function fail(error) {
  if (error.name === "AbortError" || (error instanceof Problem && error.status === 401)) return;
  if (error instanceof Away) { away(); return; }
  say(error.hint ? `${error.message}. ${error.hint}` : error.message, true);
}

async function show() {
  showHeader();
  if (!who) return;
  current?.left.abort();
  moved ||= current !== null;
  const mine = current = new Shown(place());
  say("");
  main.setAttribute("aria-busy", "true");
  try {
    await mine.load();
    if (current === mine) main.replaceChildren(), mine.draw(true), mine.page.shown?.(mine);
  } catch (error) {
    if (current !== mine) return;
    if (error instanceof Problem && error.status !== 401) {
      main.replaceChildren(h("h1", {}, error.status === 404 ? "Not found" : "That did not work"), h("p", {}, error.message), h("p", { class: "soft" }, error.hint));
      document.title = `${error.status === 404 ? "Not found" : "Error"} · Windfall`;
      document.documentElement.dataset.page = "error";
      if (moved) main.focus();
    } else fail(error);
  } finally {
    main.removeAttribute("aria-busy");
  }
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

// --- news ---

// Only windows that are seen hear news. One that comes back from the browser's own store of pages is seen again.
const seen = () => { if (who && !document.hidden) listen(heard), current?.refresh(); };
document.addEventListener("visibilitychange", () => { if (who && document.hidden) quiet(); else seen(); });
window.addEventListener("pageshow", (event) => { if (event.persisted) seen(); });

function heard(name, data) {
  if (!who) return;
  const { dataset } = document.documentElement;
  if (name === "hello") { if (dataset.live === "away") say("The server is back."), current?.refresh(); dataset.live = "yes"; }
  if (name === "change") {
    const { jobs } = JSON.parse(data);
    if (current?.data && (!current.page.watches || current.page.watches(current.where, jobs, current.data))) current.refresh();
  }
  if (name === "signed-out") signedOut("your sign-in has ended");
  if (name === "error") away();
}

// A stream gives up after an answer that is none; then we ask again ourselves.
async function away() {
  if (!who) return;
  document.documentElement.dataset.live = "away";
  say("The server does not answer. This page shows what was known; it asks again by itself.", true);
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (!who || document.documentElement.dataset.live !== "away") return;
    try {
      const still = await get("/v1/console/session");
      if (!still.role) { signedOut("your sign-in has ended"); return; }
      who = still;
      listen(heard);
    } catch (error) { if (error.status !== 401) away(); }
  }, 2000);
}

// --- signing in and out ---

function signedOut(why = "") {
  who = null;
  current?.left.abort();
  current = null;
  quiet();
  document.documentElement.dataset.live = "no";
  showHeader();
  say(why ? `You are signed out: ${why}.` : "");
  main.replaceChildren(h("section", { class: "signin" }, h("h1", {}, "Sign in"),
    h("p", {}, "A token of role read looks; submit also acts on jobs; admin also on hosts and pools."),
    h("form", { "data-act": "sign-in" }, h("label", {}, h("span", {}, "Token"), h("input", { name: "token", type: "password", autocomplete: "current-password", required: true, size: "34", spellcheck: "false" })),
      h("div", { class: "actions" }, h("button", { class: "main", type: "submit" }, "Sign in"))),
    h("p", { class: "soft" }, "On the server's machine this makes a link that signs you in: ", h("code", {}, "windfall console"))));
  document.title = "Sign in · Windfall";
}

async function signIn(body) {
  who = await post("/v1/console/session", body);
  moved = true;
  say("");
  if (location.hash.startsWith("#signin=") || !location.hash) history.replaceState(null, "", "#/overview");
  listen(heard, true);
  await show();
}

const OWN = {
  "sign-in": (_, form) => signIn({ token: new FormData(form).get("token") }),
  "sign-out": async () => { await drop("/v1/console/session"); signedOut(); },
};

async function act(event, node) {
  const name = node.dataset.act, mine = current;
  const action = OWN[name] ?? mine?.page.actions?.[name];
  if (!action) return;
  event.preventDefault();
  try {
    await action(node.dataset.arg, node, mine, ask);
  } catch (error) { if (error instanceof Problem && error.status === 401 && name === "sign-in") say(`${error.message}. ${error.hint}`, true); else if (error instanceof Problem || error instanceof Away) fail(error); else say(error.message, true); }
}

document.addEventListener("click", (event) => { const node = event.target.closest("button[data-act]"); if (node) act(event, node); });
document.addEventListener("submit", (event) => { if (event.target.dataset.act) act(event, event.target); });
document.addEventListener("change", (event) => { const node = event.target.closest("select[data-act],input[data-act]"); if (node) act(event, node); });
document.addEventListener("signed-out", (event) => { if (who) signedOut(event.detail?.detail ?? "your sign-in has ended"); });
window.addEventListener("hashchange", () => {
  if (location.hash === "#main") main.focus();
  else if (location.hash.startsWith("#signin=")) start();
  else show();
});

async function start() {
  const code = location.hash.startsWith("#signin=") ? location.hash.slice("#signin=".length) : "";
  try {
    if (code) { await signIn({ code }); return; }
    who = await get("/v1/console/session");
    if (!who.role) { signedOut(); return; }
    if (!document.hidden) listen(heard);
    await show();
  } catch (error) {
    signedOut();
    if (code) say(`${error.message}. ${error.hint ?? ""}`, true);
  }
}

start();
