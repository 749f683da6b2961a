// The server about itself.

import { clock, dur, facts, get, h, num, pictures, table } from "./core.js";

const ms = (seconds) => seconds === null ? "-" : seconds < 1 ? `${num(1000 * seconds, 2)} ms` : `${num(seconds, 2)} s`;
const QUEUES = { records_to_commit: "records that are not durable yet", hosts_waiting_for_work: "hosts that wait for work", requests_waiting_for_change: "requests that wait for a change", pages_open: "open pages of the console" };

export const page = {
  title: () => "System",
  load: () => get("/v1/system"),
  view: (data) => [
    h("h1", {}, "System"),
    data.illness ? h("p", { class: "bad" }, data.illness) : "", data.snapshot_error ? h("p", { class: "bad" }, `The last snapshot failed: ${data.snapshot_error}`) : "",
    data.standby_of ? h("p", {}, `This server stands by; the server is ${data.standby_of}.`) : "",
    facts([["version", data.version], ["protocol", data.protocol], ["Python", data.python], ["began", clock(data.began_s)], ["up for", dur(data.now_s - data.began_s)],
      ["memory", data.memory_bytes === null ? "-" : `${num(data.memory_bytes / 2 ** 20)} MiB`], ["records in the log", num(data.log_records)], ["behind the last snapshot", num(data.records_behind_snapshot)],
      ["jobs", num(data.jobs)], ["tasks", num(data.tasks)], ["hosts", num(data.hosts)], ["machines", num(data.machines)]]),
    h("h2", {}, "How long things take"),
    table("Since the server began", [["what", "wide"], ["count", "num"], ["mean", "num"], ["half within", "num"], ["99 of 100 within", "num"]],
      Object.values(data.times).map((row) => [row.what, num(row.count), ms(row.mean_s), row.count ? ms(row.half_s) : "-", row.count ? row.most_s === null ? "more than 10 s" : ms(row.most_s) : "-"])),
    pictures(data.pictures),
    h("h2", {}, "Queues"),
    table("What waits now", [["queue", "wide"], ["length", "num"]], Object.entries(data.queues).map(([name, length]) => [QUEUES[name] ?? name, num(length)])),
    h("p", { class: "soft" }, "For graphs over time and alarms: ", h("code", {}, "GET /metrics"), " (Prometheus)."),
  ],
};
