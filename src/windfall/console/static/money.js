// What everything costs, and what was paid for and not used.

import { badge, dur, get, h, link, num, table, usd } from "./core.js";

const WASTE = { tasks: "results that count", boot: "boot", remainder: "rest of begun billing cycles", idle: "idle, lost and failed attempts, replicas" };

export const page = {
  title: () => "Money",
  load: () => get("/v1/bills"),
  view: (data) => [
    h("h1", {}, "Money"),
    h("p", {}, `${usd(data.total_usd)} for ${num(data.counted)} machines${data.counted < data.machines ? ` (the newest of ${num(data.machines)})` : ""}; begun billing cycles count in full.`),
    h("h2", {}, "By job"),
    table("Cost by job", [["job", "num"], ["name", "wide"], ["state"], ["spent", "num"], ["budget", "num"], ["expected in the end", "num"], ["of the budget"]],
      data.jobs.map((row) => [row.job, link(row.name || `job ${row.job}`, `#/job/${row.job}`), badge(row.state), usd(row.usd), usd(row.budget_usd), usd(row.forecast_usd),
        row.budget_usd ? h("meter", { min: "0", max: row.budget_usd, value: Math.min(row.usd, row.budget_usd), "aria-label": `${usd(row.usd)} of ${usd(row.budget_usd)}` }) : ""]), "No job has rented anything."),
    h("h2", {}, "By pool"), table("Cost by pool", [["pool"], ["spent", "num"]], data.pools.map((row) => [row.pool, usd(row.usd)])),
    h("h2", {}, "By day"), table("Cost by day (UTC)", [["day"], ["spent", "num"]], data.days.map((row) => [row.day, usd(row.usd)])),
    h("h2", {}, "Where it went"),
    table("Paid core time of each job by what it went into", [["job"], ...Object.values(WASTE).map((name) => [name, "num"]), ["attempts lost", "num"], ["replicas not needed", "num"]],
      data.waste.map((row) => [link(`${row.name} (${row.job})`, `#/job/${row.job}`), ...row.parts.map((part) => h("span", {}, usd(part.usd), h("br"), h("span", { class: "soft" }, dur(part.core_s)))), num(row.attempts_lost), num(row.replicas)])),
  ],
};
