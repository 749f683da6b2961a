// Why money was spent, which hosts a policy matches, and what another deadline would cost.

import { alike, badge, clock, dur, facts, get, h, link, many, num, number, pictures, post, q, seconds, share, table, tally, usd } from "./core.js";

const PAGE = 25;

// The newest jobs, and the one that a link is about: it may be older.
async function newest(job) {
  const { jobs } = await get("/v1/jobs?limit=50");
  return !job || jobs.some((each) => String(each.job) === job) ? jobs : [await get(`/v1/jobs/${q(job)}`), ...jobs];
}

export const decisions = {
  title: () => "Decisions",
  async load(where) {
    const job = where.query.get("job") ?? "", all = where.query.get("all") === "1", before = Number(where.query.get("before") ?? 0);
    return { job, all, before, ...await get(`/v1/decisions?limit=${PAGE}${all ? "" : "&acted=1"}${job ? `&job=${q(job)}` : ""}${before ? `&before=${before}` : ""}`) };
  },
  // Older pages do not change.
  watches: (where) => !where.query.get("before"),
  view: (data) => [
    h("h1", {}, data.job ? `Decisions of job ${data.job}` : "Decisions"),
    h("p", {}, data.all ? link("only those that changed something", `#/decisions?job=${q(data.job)}`) : link("also those that changed nothing", `#/decisions?all=1&job=${q(data.job)}`), data.job ? [" · ", link("of all jobs", "#/decisions")] : ""),
    h("h2", {}, "Predicted and actual"),
    table("The first plan of each job beside what came of it", [["job", "num"], ["name", "wide"], ["state"], ["planner"], ["first said", "num"], ["spent", "num"], ["first said done by"], ["done or now expected"], ["deadline"]],
      Object.entries(data.jobs).map(([number, row]) => [number, link(row.name || `job ${number}`, `#/job/${number}`), badge(row.state), row.planner, usd(row.first_forecast_usd), usd(row.spent_usd), clock(row.first_finish_s), clock(row.finished_s ?? row.finish_s), clock(row.deadline_s)]), data.decisions.length ? "The plans below are of fleets, which serve several jobs." : "No plan has been made."),
    h("h2", {}, "Plans, the newest first"),
    data.decisions.map((each, place) => h("article", { class: "card" },
      h("h3", {}, `${clock(each.t)}: `, each.fleet ? `fleet ${each.fleet}` : link(`job ${each.job}`, `#/job/${each.job}`)),
      each.inputs ? inputs(each.inputs, place === 0) : "", reasons(each.because),
      h("p", {}, [each.started.length ? `ordered ${counted(each.started)}` : "", each.stopped.length ? `gave back ${each.stopped.map((m) => `m${m}`).join(", ")}` : "", each.moved ? `moved ${many(each.moved, "task")}` : ""].filter(Boolean).join("; ") || "changed nothing"),
      predicted(each, data.jobs[each.job]),
      each.rejected.length ? [h("p", {}, "Alternatives that were rejected:"), h("ul", {}, each.rejected.map((other) => h("li", {}, `${other.what}${other.cost_usd === null ? "" : `: ${usd(other.cost_usd)}`}`)))] : "",
      each.refused.length ? h("p", { class: "bad" }, `Refused: ${alike(each.refused).join("; ")}`) : "",
      each.error ? h("p", { class: "bad" }, each.error) : "")),
    data.decisions.length ? "" : h("p", { class: "soft" }, data.next ? "None among these records." : "There are none."),
    h("p", {}, data.before ? [link("newest plans", older(data, 0)), " · "] : "", data.next ? link("older plans", older(data, data.next)) : ""),
  ],
};

const older = (data, before) => `#/decisions?job=${q(data.job)}${data.all ? "&all=1" : ""}${before ? `&before=${before}` : ""}`;

// What the planner was shown when it decided.
function inputs(told, open) {
  const there = Object.entries(told.machines).map(([phase, count]) => `${num(count)} ${phase}`).join(", ") || "none";
  return h("details", { open }, h("summary", {}, `Inputs: ${num(told.unfinished)} of ${num(told.total)} tasks open, machines: ${there}, spent ${usd(told.spent_usd)}`),
    facts([["running tasks", num(told.running)], ["open work at speed 1", `${dur(told.core_s)} of a core`], ["longest open task", dur(told.longest_s)], ["deadline", clock(told.deadline_s)], ["confidence", share(told.confidence)],
      ["budget", told.budget_usd === null ? "none" : usd(told.budget_usd)], told.jobs > 0 && ["jobs", num(told.jobs)], ["offers, price a cycle", told.offers.map((each) => `${each.offer} ${usd(each.price_usd)}${each.limit === null ? "" : ` (at most ${num(each.limit)})`}`).join(", ")]]));
}

const counted = (started) => tally(started.map(({ offer }) => offer)).join(", ");

// Plans say when in Unix seconds; people read a clock.
export const reasons = (because) => h("ul", {}, [because].flat().filter(Boolean).map((line) => h("li", {}, line.replace(/^safe until (\d+)/, (_, t) => `safe until ${clock(Number(t))}`))));

export function predicted(plan, actual) {
  if (plan.finish_s === null && plan.cost_usd === null) return "";
  const said = `Predicted: ${usd(plan.cost_usd)}, done ${clock(plan.finish_s)}.`;
  if (!actual || actual.spent_usd === null) return h("p", { class: "soft" }, said);
  const over = actual.finished_s !== null;
  return h("p", { class: "soft" }, `${said} Actual: ${usd(actual.spent_usd)}${over ? `, done ${clock(actual.finished_s)}` : " so far"}${over && plan.finish_s !== null ? ` (${dur(Math.abs(actual.finished_s - plan.finish_s))} ${actual.finished_s > plan.finish_s ? "later" : "earlier"} than predicted)` : ""}.`);
}

const POLICIES = ["JobRequirements", "Rank", "Concurrency", "Deadline", "ReplicationRequirements", "GridPolicy"];

export const policies = {
  title: () => "Policies",
  watches: () => false,
  async load(where) {
    const job = where.query.get("job") ?? "", jobs = await newest(job);
    const chosen = job ? jobs.filter((each) => String(each.job) === job) : jobs.filter((each) => ["running", "paused", "open"].includes(each.state)).slice(0, 20);
    const told = await Promise.all(chosen.map((each) => get(`/v1/jobs/${each.job}/explain`).then((found) => ({ ...found, job: each.job }))));
    return { job, jobs, told };
  },
  view(data, where, shown) {
    const { tried } = shown.state;
    const listed = data.told.flatMap((each) => Object.entries(each.policies ?? {}).map(([name, text]) => [link(each.name || `job ${each.job}`, `#/job/${each.job}`), name, h("code", {}, typeof text === "string" ? text : JSON.stringify(text)), each.waiting?.waits && each.waiting.hosts !== undefined ? `${num(each.waiting.willing)} of ${num(each.waiting.hosts)} hosts` : ""]));
    return [
      h("h1", {}, "Policies"),
      table(data.job ? `Policies of job ${data.job}` : "Policies of unfinished jobs", [["job"], ["policy"], ["expression", "wide"], ["would take a task now"]], listed, "No job here has a policy of its own: every host that fits gets tasks, higher priority first."),
      h("h2", {}, "Try an expression"),
      h("form", { "data-act": "try" },
        h("label", {}, h("span", {}, "Expression"), h("textarea", { name: "expression", required: true, spellcheck: "false", placeholder: "Host.Memory >= 8192 && Host.ErrorRate < 0.1" })),
        h("div", { class: "row actions" },
          h("label", {}, h("span", {}, "as"), h("select", { name: "policy" }, POLICIES.map((name) => h("option", { value: name }, name)))),
          h("label", {}, h("span", {}, "for"), h("select", { name: "job" }, h("option", { value: "" }, "the newest job"), data.jobs.map((each) => h("option", { value: each.job, selected: String(each.job) === data.job }, `${each.job} ${each.name}`)))),
          h("button", { class: "main", type: "submit" }, "Try"))),
      tried ? outcome(tried) : "",
    ];
  },
  actions: {
    async try(_, form, shown) {
      shown.state.tried = await post("/v1/policies/test", Object.fromEntries(new FormData(form)));
      shown.draw();
    },
  },
};

function outcome(tried) {
  const wrong = tried.findings.map((each) => h("li", { class: each.level === "error" ? "bad" : "" }, `${each.level}, ${each.where}: ${each.message}. `, each.hint));
  const condition = tried.hosts.some((row) => row.matches !== null);
  return h("section", { "aria-label": "Outcome", role: "status" }, wrong.length ? h("ul", {}, wrong) : "",
    tried.job === null ? h("p", {}, "There is no job yet whose tasks it could be tried with.") : "",
    condition ? h("p", {}, `${num(tried.matching)} of ${num(tried.tried)} hosts match.`) : "",
    tried.hosts.length ? table("Each host", [["host"], ["pool"], [condition ? "matches" : "value"], ["clauses", "wide"]], tried.hosts.map((row) => [row.host, row.pool, condition ? h("span", { class: row.matches ? "good" : "bad" }, row.matches ? "yes" : "no") : String(row.value), row.clauses.map((each) => h("div", { class: each.ok ? "" : "bad" }, each.ok ? "✓ " : "✗ ", h("code", {}, each.text), ` ${each.detail}`))])) : h("p", { class: "soft" }, "No host is connected."));
}

export const plan = {
  title: () => "Plan",
  watches: () => false,
  async load(where) {
    const job = where.query.get("job") ?? "", [jobs, { offers }] = await Promise.all([newest(job), get("/v1/machines?there=1&limit=0")]);
    return { job, jobs: jobs.filter((each) => each.money || each.workflow), offers, pools: [...new Set(offers.map((each) => each.pool))] };
  },
  view(data, where, shown) {
    const { told, busy } = shown.state;
    return [
      h("h1", {}, "Plan"),
      h("p", {}, "What another deadline would cost, simulated with the planner and the prices of now. Nothing is rented."),
      data.pools.length ? h("form", { class: "row", "data-act": "ask" },
        h("label", {}, h("span", {}, "Job or workflow"), h("select", { name: "job" }, h("option", { value: "" }, "a job that is not submitted"), data.jobs.map((each) => h("option", { value: each.job, selected: String(each.job) === data.job }, `${each.job} ${each.name} (${each.state})`)))),
        h("label", {}, h("span", {}, "of which"), h("select", { name: "whole" }, h("option", { value: "" }, "what is left"), h("option", { value: "1" }, "the whole, once more"))),
        h("label", {}, h("span", {}, "Tasks of a new one"), h("input", { name: "tasks", inputmode: "numeric", size: "8", value: "100" })),
        h("label", {}, h("span", {}, "A task takes"), h("input", { name: "estimate", size: "8", placeholder: "5m", value: "5m" })),
        h("label", {}, h("span", {}, "Pool"), h("select", { name: "pool" }, h("option", { value: "" }, "all"), data.pools.map((pool) => h("option", { value: pool }, pool)))),
        h("label", {}, h("span", {}, "Deadlines"), h("input", { name: "deadlines", size: "18", placeholder: "1h, 2h, 4h" })),
        h("label", {}, h("span", {}, "Budget ($)"), h("input", { name: "budget", size: "7", inputmode: "decimal" })),
        h("button", { class: "main", type: "submit", disabled: busy }, busy ? "Simulating…" : "Simulate")) : h("p", { class: "soft" }, "This server rents no machines: start it with --pools pools.toml, or use windfall plan with --offers."),
      told ? result(told) : "",
    ];
  },
  actions: {
    async ask(_, form, shown) {
      const said = Object.fromEntries(new FormData(form));
      const body = { job: said.job, pool: said.pool, deadlines_s: said.deadlines.split(",").filter((each) => each.trim()).map(seconds) };
      if (said.estimate.trim()) body.estimate_s = seconds(said.estimate);
      if (said.job) body.whole = said.whole === "1"; else body.tasks = number(said.tasks, "Tasks of a new one");
      if (said.budget.trim()) body.budget_usd = number(said.budget, "Budget");
      shown.state.busy = true;
      shown.state.told = null;
      shown.draw();
      try { shown.state.told = await post("/v1/what-if", body); } finally { shown.state.busy = false; shown.draw(); }
    },
  },
};

function result(told) {
  return h("section", { "aria-label": "Forecast", role: "status" },
    facts([["of", told.name], ["earliest possible", told.earliest_s === null ? "never" : dur(told.earliest_s)], told.bundle > 1 && ["tasks counted as one", num(told.bundle)]]),
    told.picture ? pictures([told.picture]) : "",
    table("Deadlines and what they cost", [["deadline"], ["cost", "num"], ["interval", "num"], ["done after"], ["runs in time", "num"], ["machines at once", "num"]],
      told.deadlines.map((row) => row.possible ? [dur(row.deadline_s), usd(row.cost_usd.mean), `${usd(row.cost_usd.low)} to ${usd(row.cost_usd.high)} (${Math.round(100 * row.holds)} %)`, row.finish_s ? `${dur(row.finish_s.low)} to ${row.finish_s.high === null ? "never" : dur(row.finish_s.high)}` : "never", `${row.met} of ${row.runs}`, num(row.machines)] : [dur(row.deadline_s), h("span", { class: "bad" }, "impossible"), "", "", "", ""])));
}
