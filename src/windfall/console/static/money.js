// What everything costs, and what was paid for and not used.

import { badge, dur, get, h, link, many, num, pictures, q, table, usd } from "./core.js";

const WASTE = { tasks: "results", idle: "idle", boot: "boots", remainder: "rest of cycles", lost: "lost", failed: "failed", replica: "replicas", cancelled: "cancelled" };

export const page = {
  title: () => "Money",
  load: () => get("/v1/bills"),
  view: (data) => [
    h("h1", {}, "Money"),
    h("p", {}, `${usd(data.total_usd)} for ${many(data.counted, "machine")}${data.counted < data.machines ? ` (the newest of ${num(data.machines)})` : ""}; begun billing cycles count in full.`),
    data.waste.length ? [pictures(data.pictures),
      table("The newest renting jobs and fleets: dollars, and core time below, by what they went into", [["job or fleet", "wide"], ["cost", "num"], ...Object.values(WASTE).map((name) => [name, "num"])],
        data.waste.map((row) => [row.fleet ? link(`fleet ${row.fleet}`, `#/fleet/${q(row.fleet)}`) : link(row.name || `job ${row.job}`, `#/job/${row.job}`), usd(row.usd), ...row.parts.map((part) => part.core_s ? h("span", {}, usd(part.usd), h("br"), h("span", { class: "soft" }, dur(part.core_s))) : "-")]))] : "",
    h("h2", {}, "By job"),
    table("Cost by job", [["job", "num"], ["name", "wide"], ["state"], ["spent", "num"], ["budget", "num"], ["expected in the end", "num"], ["of the budget"]],
      data.jobs.map((row) => [row.job, row.state === "forgotten" ? row.name || `job ${row.job}` : link(row.name || `job ${row.job}`, `#/job/${row.job}`), badge(row.state), usd(row.usd), usd(row.budget_usd), usd(row.forecast_usd),
        row.budget_usd ? h("meter", { min: "0", max: row.budget_usd, value: Math.min(row.usd, row.budget_usd), "aria-label": `${usd(row.usd)} of ${usd(row.budget_usd)}` }) : ""]), "No job has rented anything."),
    h("h2", {}, "By pool"), table("Cost by pool", [["pool"], ["spent", "num"]], data.pools.map((row) => [row.pool, usd(row.usd)])),
    h("h2", {}, "By month"), table("Cost by month (UTC) in which machines ended", [["month"], ["spent", "num"]], data.months.map((row) => [row.month, usd(row.usd)])),
    h("h2", {}, "By day"), table("Cost by day (UTC)", [["day"], ["spent", "num"]], data.days.map((row) => [row.day, usd(row.usd)])),
  ],
};
