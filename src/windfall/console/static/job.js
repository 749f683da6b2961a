// One job: state, actions, pictures, why it waits, errors in groups, what each pool did.

import { alike, badge, button, causeText, clock, dur, facts, get, h, lines, link, many, num, number, pictures, post, q, seconds, table, usd } from "./core.js";
import { slack, spent } from "./overview.js";
import { predicted, reasons } from "./planning.js";

const ENDED = ["done", "failed", "cancelled"];

export const page = {
  title: (where, data) => `${data.status.name || "job"} (${data.status.job})`,
  watches: (where, jobs, data) => jobs === null || jobs.includes(data.status.job),
  async load(where) {
    const job = q(where.args[0] ?? "last");
    const status = await get(`/v1/jobs/${job}`);
    const at = `/v1/jobs/${status.job}`;
    const [drawn, groups, pools, told] = await Promise.all([
      get(`${at}/pictures`), status.tasks.failed || Object.keys(status.causes).length ? get(`${at}/groups`) : { groups: [] },
      get(`${at}/pools`), get(`${at}/explain`),
    ]);
    return { status, pictures: drawn.pictures, groups: groups.groups, pools: pools.pools, told };
  },
  view(data, where, shown) {
    const { status } = data, { tasks } = status;
    return [
      h("h1", {}, `${status.name || "job"} `, h("span", { class: "soft" }, `job ${status.job}`), " ", badge(status.state)),
      status.stopped ? h("p", { class: "bad" }, `Stopped: ${status.stopped}`) : "",
      actions(status, shown),
      h("nav", { class: "actions", "aria-label": "More of this job" }, link("Tasks", `#/tasks/${status.job}`), shown.all && status.plan ? link("Decisions", `#/decisions?job=${status.job}`) : "", shown.all && status.plan ? link("What if?", `#/plan?job=${status.job}`) : "", shown.all ? link("Policies", `#/policies?job=${status.job}`) : ""),
      facts([
        ["tasks done", `${num(tasks.done)} of ${num(tasks.total)}`], ["running", num(tasks.running)], ["waiting", num(tasks.waiting)],
        ["failed", tasks.failed ? h("span", { class: "bad" }, num(tasks.failed)) : "0"], tasks.cancelled && ["cancelled", num(tasks.cancelled)],
        ["deadline", status.deadline_s === null ? "none" : clock(status.deadline_s)], status.deadline_s !== null && ["slack", slack(status)],
        status.money && ["spent", spent(status)], status.money && ["expected in the end", usd(status.money.forecast_usd)],
        ["submitted", clock(status.submitted_s)], ["took", dur(status.elapsed_s)], ["mean run time", dur(status.mean_run_s)],
        ["attempts", num(status.attempts)], ["owner", status.owner || "-"], status.tail && !ENDED.includes(status.state) && ["phase", "tail"],
      ]),
      waiting(data.told),
      pictures(data.pictures),
      errors(data.groups, status.job),
      h("h2", {}, "Pools"),
      table("What each pool did for this job", [["pool"], ["tasks done", "num"], ["attempts lost", "num"], ["hosts", "num"], ["tasks a second", "num"], ["machines", "num"], ["cost", "num"]],
        data.pools.map((row) => [row.pool, num(row.tasks_done), num(row.attempts_lost), num(row.hosts), num(row.tasks_per_s, 2), num(row.machines), usd(row.cost_usd)]), "No pool has done anything yet."),
      status.plan ? plan(status) : "",
    ];
  },
  actions: {
    async cancel(job, node, shown, ask) {
      const said = await ask(`Cancel job ${job}?`, "Waiting tasks are dropped and running ones are stopped. Results stay.", "Cancel the job", [{ name: "reason", label: "Reason (may be empty)" }]);
      if (!said) return;
      const done = await post(`/v1/jobs/${job}/cancel`, { reason: said.reason });
      shown.say(`${many(done.cancelled, "task")} of job ${job} ${done.cancelled === 1 ? "is" : "are"} cancelled.`);
      shown.refresh();
    },
    async retry(job, node, shown, ask) {
      if (!await ask(`Run failed tasks of job ${job} again?`, "They keep their numbers and get new attempts.", "Retry")) return;
      const done = await post(`/v1/jobs/${job}/retry`, {});
      shown.say(`${many(done.retried, "task")} of job ${job} ${done.retried === 1 ? "runs" : "run"} again.`);
      shown.refresh();
    },
    async pause(job, node, shown, ask) {
      const pause = node.dataset.pause === "1";
      if (!await ask(`${pause ? "Pause" : "Continue"} job ${job}?`, pause ? "What runs goes on; nothing more is handed out." : "Tasks are handed out again.", pause ? "Pause" : "Continue")) return;
      await post(`/v1/jobs/${job}/change`, { paused: pause });
      shown.say(`Job ${job} ${pause ? "is paused" : "goes on"}.`);
      shown.refresh();
    },
    async change(job, node, shown, ask) {
      const { status } = shown.data, left = status.deadline_s === null ? "" : `${Math.round(status.deadline_s - status.submitted_s)}s`;
      const said = await ask(`Change job ${job}`, "What is left as it is stays as it is.", "Change", [
        { name: "deadline", label: "Deadline after its submission, as in 2h30m", value: left },
        { name: "budget", label: "Budget in dollars", value: status.money?.budget_usd ?? "" }, { name: "priority", label: "Priority", value: status.priority }]);
      if (!said) return;
      const body = {};
      if (said.deadline !== left) body.deadline_s = said.deadline.trim() ? seconds(said.deadline) : null;
      if (said.budget !== String(status.money?.budget_usd ?? "")) body.budget_usd = said.budget.trim() ? number(said.budget, "Budget") : null;
      if (said.priority !== String(status.priority)) body.priority = number(said.priority, "Priority");
      if (!Object.keys(body).length) return;
      await post(`/v1/jobs/${job}/change`, body);
      shown.say(`Job ${job} is changed.`);
      shown.refresh();
    },
  },
};

function actions(status, shown) {
  if (!shown.may.jobs) return "";
  const over = ENDED.includes(status.state), paused = status.state === "paused";
  return h("div", { class: "actions" },
    over ? "" : button("Cancel…", "cancel", status.job, { class: "danger" }),
    over ? "" : button(paused ? "Continue…" : "Pause…", "pause", status.job, { "data-pause": paused ? "0" : "1" }),
    over ? "" : button("Change…", "change", status.job),
    status.tasks.failed ? button("Retry failed…", "retry", status.job, { class: "main" }) : "");
}

function waiting(told) {
  const why = told.waiting;
  if (!why?.waits) return "";
  return h("section", { class: "card", "aria-label": "Why tasks wait" }, h("h2", { class: why.stuck ? "bad" : "" }, why.stuck ? "Stuck" : "Why tasks wait"), h("p", {}, why.because),
    h("ul", {}, (why.reasons ?? []).map((reason) => h("li", {}, `${num(reason.hosts)} host${reason.hosts === 1 ? "" : "s"}: `, h("code", {}, reason.clause), reason.detail ? `, ${reason.detail}` : ""))),
    why.nearest ? h("p", {}, why.nearest) : "",
    (why.pools ?? []).length ? h("ul", {}, why.pools.map((pool) => h("li", {}, `${pool.pool}: ${pool.what}`))) : "",
    (why.try ?? []).length ? h("p", { class: "soft" }, "Try: ", why.try.map((line) => [h("code", {}, line), " "])) : "");
}

function errors(groups, job) {
  if (!groups.length) return "";
  return h("section", { "aria-label": "Errors" }, h("h2", {}, "Errors"), groups.slice(0, 20).map((group, place) =>
    h("details", { class: "card", open: true }, h("summary", {}, `${num(group.count)} failed: ${causeText(group.cause, group.exit_code)}${group.final ? "" : ", tried again"}`),
      h("p", {}, "tasks ", group.tasks.map((task) => [link(String(task), `#/task/${job}/${task}`), " "]), group.count > group.tasks.length ? "… " : "", group.final ? link(`all that ended by ${group.cause}`, `#/tasks/${job}?cause=${q(group.cause)}`) : ""),
      group.stderr_tail || group.last_line || group.text ? lines(group.stderr_tail || group.last_line || group.text, `last lines of error ${place + 1}`) : "")));
}

function plan(status) {
  const { plan: made } = status;
  return h("section", { "aria-label": "Plan" }, h("h2", {}, "Plan"),
    h("p", {}, `${made.planner}, plan number ${num(made.plans)}, made ${clock(made.planned_s)}; next review ${clock(made.look_again_s)}.`),
    predicted(made), reasons(made.because),
    made.refused.length ? h("p", { class: "bad" }, alike(made.refused).join("; ")) : "");
}
