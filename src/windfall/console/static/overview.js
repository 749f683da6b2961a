// All jobs with progress, slack and spend, and what needs somebody's attention.

import { badge, clock, dur, get, h, link, many, num, table, usd } from "./core.js";

const PAGE = 50;

export const page = {
  title: () => "Overview",
  async load(where) {
    const before = where.query.get("before");
    const [jobs, pools, health, counts] = await Promise.all([
      get(`/v1/jobs?limit=${PAGE}${before ? `&before=${Number(before)}` : ""}`), get("/v1/pools"),
      get("/healthz").catch((error) => ({ ok: false, error: { message: error.message } })), get("/v1/hosts?limit=0"),
    ]);
    return { ...jobs, pools: pools.pools, renting: pools.renting, health, hosts: counts.counts };
  },
  view: (data, where) => [
    h("h1", {}, "Overview"),
    h("p", { class: "soft" }, `${many(data.total, "job")} · ${many(data.hosts.live, "host")} with ${many(data.hosts.slots, "slot")} · Windfall ${data.health.version ?? ""}`),
    alerts(data),
    table("Jobs, the newest first", [["job", "num"], ["name", "wide"], ["state"], ["progress"], ["tasks", "num"], ["failed", "num"], ["slack", "short"], ["spent", "num"], ["submitted", "short"], ["took", "num"]],
      data.jobs.map(row), "There are no jobs yet. Try: windfall run --range 1-10 -- echo {}"),
    h("p", {}, where.query.get("before") ? link("newest jobs", "#/overview") : "", " ", data.next ? link("older jobs", `#/overview?before=${data.next}`) : ""),
  ],
};

function row(job) {
  const { total, done, failed, cancelled } = job.tasks, ended = done + failed + cancelled;
  const bar = h("progress", { max: total || 1, value: ended, "aria-label": `${ended} of ${total} tasks of job ${job.job} have ended` });
  return [job.job, link(job.name || `job ${job.job}`, `#/job/${job.job}`), badge(job.state), bar, num(total), failed ? h("span", { class: "bad" }, num(failed)) : "0",
    slack(job), spent(job), clock(job.submitted_s), dur(job.elapsed_s)];
}

export function slack(job) {
  if (job.deadline_s === null) return "-";
  if (job.finished_s !== null) return job.finished_s <= job.deadline_s ? "met" : h("span", { class: "bad" }, "missed");
  const expected = job.plan?.finish_s ?? null, left = job.deadline_s - Date.now() / 1000;
  if (left < 0) return h("span", { class: "bad" }, `${dur(-left)} late`);
  if (expected === null) return `${dur(left)} left`;
  return expected > job.deadline_s ? h("span", { class: "bad" }, `${dur(expected - job.deadline_s)} late by plan`) : `${dur(job.deadline_s - expected)} by plan`;
}

export function spent(job) {
  if (!job.money) return "-";
  return usd(job.money.spent_usd) + (job.money.budget_usd === null ? "" : ` of ${usd(job.money.budget_usd)}`);
}

function alerts(data) {
  const found = [];
  if (!data.health.ok) found.push(["The server cannot write: ", data.health.error?.message ?? ""]);
  if (data.health.snapshot_error) found.push(["The last snapshot failed: ", data.health.snapshot_error]);
  for (const pool of data.pools) {
    if (pool.last_error && pool.errors) found.push([link(`pool ${pool.pool}`, "#/pools"), `: ${pool.last_error}`]);
    if (pool.mode !== "open") found.push([link(`pool ${pool.pool}`, "#/pools"), ` is ${pool.mode}${pool.reason ? `: ${pool.reason}` : ""}`]);
  }
  for (const job of data.jobs) {
    const name = () => link(`job ${job.job} '${job.name}'`, `#/job/${job.job}`);
    if (job.money?.held_by_budget) found.push([name(), " is held by its budget"]);
    if (job.plan?.error) found.push([name(), `: ${job.plan.error}`]);
    if (job.state === "running" && job.deadline_s !== null && job.deadline_s < Date.now() / 1000) found.push([name(), " is behind its deadline"]);
    if (job.state === "running" && job.tasks.failed) found.push([name(), `: ${num(job.tasks.failed)} tasks have failed`]);
  }
  if (!found.length) return "";
  return h("section", { "aria-label": "Needs attention" }, h("h2", {}, "Needs attention"), h("ul", { class: "plain alerts" }, found.map((parts) => h("li", {}, parts))));
}
