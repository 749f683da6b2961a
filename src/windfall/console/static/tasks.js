// The tasks of a job in pages, and one task: its story, its command, its output while it is written.

import { windows } from "./news.js";
import { badge, causeText, clock, dur, facts, get, getFrame, h, lines, link, num, q, table } from "./core.js";

const PAGE = 100, KEPT = 200_000, NEXT_MS = 1500;
// A request that waits takes one of the six connections of a browser: with more windows than this, none waits.
const MOST_WAITING = 3;
const OVER = ["done", "failed", "cancelled"];
const FILTERS = ["state", "cause", "host"];
const STATES = ["", "waiting", "running", "done", "failed", "cancelled"];

export const list = {
  title: (where, data) => `Tasks of job ${data.status.job}`,
  watches: (where, jobs, data) => jobs === null || jobs.includes(data.status.job),
  async load(where) {
    const status = await get(`/v1/jobs/${q(where.args[0] ?? "last")}`);
    const wanted = Object.fromEntries(FILTERS.map((name) => [name, where.query.get(name) ?? ""])), after = Number(where.query.get("after") ?? 0);
    const found = await get(`/v1/jobs/${status.job}/tasks?limit=${PAGE}&after=${after}${asked(wanted)}`);
    return { status, wanted, after, ...found };
  },
  view: ({ status, wanted, after, tasks, next }) => [
    h("h1", {}, "Tasks of ", link(status.name || `job ${status.job}`, `#/job/${status.job}`)),
    h("form", { class: "row", "data-act": "filter", "data-arg": status.job },
      choice("State", "state", STATES.map((each) => [each, each ? `${each} (${num(status.tasks[each])})` : `all (${num(status.tasks.total)})`]), wanted.state),
      choice("Cause", "cause", ["", ...new Set(["done", ...Object.keys(status.causes), wanted.cause].filter(Boolean))].map((each) => [each, each || "any"]), wanted.cause),
      h("label", {}, h("span", {}, "Host"), h("input", { name: "host", size: "14", value: wanted.host, autocomplete: "off", spellcheck: "false" })), h("button", { type: "submit" }, "Filter")),
    h("form", { class: "row", "data-act": "go", "data-arg": status.job },
      h("label", {}, h("span", {}, "Task number or name"), h("input", { name: "task", size: "14", autocomplete: "off" })), h("button", { type: "submit" }, "Show")),
    table(caption(wanted, after), [["task", "num"], ["state"], ["attempts", "num"], ["host"], ["started"], ["took", "num"], ["exit", "num"], ["cause"]],
      tasks.map((task) => [link(task.name ?? String(task.task), `#/task/${status.job}/${task.task}`), badge(task.blocked ? "blocked" : task.state), num(task.attempts), places(task).map((host, place) => [place ? ", " : "", link(host, to(status.job, { ...wanted, host }, 0))]),
        clock(task.sent_s ?? task.start_s), task.end_s && !task.hosts ? dur(task.end_s - task.start_s) : "", task.exit_code ?? "", task.cause ? link(causeText(task.cause, task.exit_code), to(status.job, { ...wanted, cause: task.cause }, 0)) : ""]), "There is no such task."),
    h("p", {}, after ? [link("first page", to(status.job, wanted, 0)), " · "] : "", next !== null ? [link("next page", to(status.job, wanted, next)), " · "] : "", asked(wanted) ? link("all tasks", to(status.job, {}, 0)) : ""),
  ],
  actions: {
    filter(_, node) {
      const form = node.form ?? node, said = new FormData(form);
      location.hash = to(form.dataset.arg, Object.fromEntries(FILTERS.map((name) => [name, said.get(name).trim()])), 0);
    },
    async go(job, form) {
      const wanted = new FormData(form).get("task").trim();
      if (!wanted) return;
      if (/^\d+$/.test(wanted)) { location.hash = `#/task/${job}/${wanted}`; return; }
      const found = await get(`/v1/jobs/${job}/tasks?name=${q(wanted)}`);
      location.hash = `#/task/${job}/${found.tasks[0].task}`;
    },
  },
};

const asked = (wanted) => FILTERS.filter((name) => wanted[name]).map((name) => `&${name}=${q(wanted[name])}`).join("");
const to = (job, wanted, after) => `#/tasks/${job}?after=${after}${asked(wanted)}`;
const caption = ({ state, cause, host }, after) => `${state || "all"} tasks${cause ? ` that ended by ${cause}` : ""}${host ? ` on host ${host}` : ""} from number ${num(after)} on`;
// Where it runs; of a task that does not, where its last attempt was.
const places = (task) => task.hosts ?? [task.host].filter(Boolean);

function choice(label, name, options, chosen) {
  return h("label", {}, h("span", {}, label), h("select", { "data-act": "filter", name }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
}

export const one = {
  title: (where) => `Task ${where.args[1]} of job ${where.args[0]}`,
  watches: (where, jobs, data) => jobs === null || jobs.includes(data.job),
  async load(where, shown) {
    const [job, task] = where.args.map(q);
    const [told, rendered, row] = await Promise.all([get(`/v1/jobs/${job}/explain?task=${task}`), get(`/v1/jobs/${job}/render/${task}`).catch(() => null), get(`/v1/jobs/${job}/tasks?after=${task}&limit=2`)]);
    shown.state.stdout ??= "";
    shown.state.stderr ??= "";
    return { job: told.job, told, rendered, row: row.tasks[0], more: row.tasks.length > 1 };
  },
  view({ told, rendered, row, more }, where, shown) {
    const number = Number(where.args[1]);
    return [
      h("h1", {}, `${told.task_name ?? `Task ${number}`} of `, link(told.name || `job ${told.job}`, `#/job/${told.job}`), " ", badge(told.state)),
      h("p", {}, number > 0 ? [link("previous task", `#/task/${told.job}/${number - 1}`), " · "] : "", more ? [link("next task", `#/task/${told.job}/${number + 1}`), " · "] : "", link("all tasks", `#/tasks/${told.job}`)),
      facts([["attempts", num(row?.attempts)], ["failures", num(row?.failures)], ["losses", num(row?.losses)], ["host", (row && places(row).join(", ")) || "-"],
        ["took", row?.end_s ? dur(row.end_s - row.start_s) : "-"], ["exit code", row?.exit_code ?? "-"], ["cause", row?.cause ? causeText(row.cause, row.exit_code) : "-"]]),
      rendered?.argv ? [h("h2", {}, "Command"), lines(rendered.argv.map((word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`).join(" "), "command")] : "",
      told.waiting?.waits ? h("section", { class: "card" }, h("h2", {}, "Why it waits"), h("p", {}, told.waiting.because)) : "",
      h("h2", {}, "Story"),
      table("What happened to this task", [["when"], ["attempt", "num"], ["what", "wide"]], (told.story ?? []).map((step) => [clock(step.t), step.attempt ?? "", words(step)]), "Nothing has happened to it yet."),
      h("h2", {}, "Standard output"), shown.state.stdout ? lines(shown.state.stdout, "standard output") : h("p", { class: "soft" }, "Nothing."),
      h("h2", {}, "Standard error"), shown.state.stderr ? lines(shown.state.stderr, "standard error") : h("p", { class: "soft" }, "Nothing."),
    ];
  },
  shown: follow,
};

function words(step) {
  const skip = new Set(["t", "attempt", "what", "text", "last_line"]);
  const rest = Object.entries(step).filter(([name, value]) => !skip.has(name) && value !== null && value !== "" && typeof value !== "object").map(([name, value]) => plainly(name, value));
  return [step.what ?? "", rest.length ? ` (${rest.join(", ")})` : "", step.text ? h("div", {}, step.text) : "", step.last_line ? h("div", {}, h("code", {}, step.last_line)) : ""];
}

function plainly(name, value) {
  if (name === "deadline") return `given up at ${clock(value)}`;
  if (name === "rss_bytes") return `memory: ${(value / 1e6).toFixed(1)} MB`;
  return `${name.replace(/_s$/, "").replaceAll("_", " ")}: ${name.endsWith("_s") ? dur(value) : value}`;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Output is asked for from where we are, for as long as the page is shown: of the attempt that runs, then of the next.
async function follow(shown) {
  const [job, task] = shown.where.args.map(q);
  let fromOut = new TextDecoder(), fromErr = new TextDecoder(), attempt = 0, out = 0, err = 0, ended = false, asked = false;
  while (!shown.signal.aborted) {
    const patient = !ended && windows <= MOST_WAITING;
    if (asked && !patient) await pause(NEXT_MS);
    asked = true;
    if (document.hidden || (ended && OVER.includes(shown.data?.told.state))) { ended = true; continue; }
    let header, bytes;
    try {
      [header, bytes] = await getFrame(`/v1/jobs/${job}/output/${task}?stdout_from=${out}&stderr_from=${err}&wait_s=${patient ? 10 : 0}${attempt && !ended ? `&attempt=${attempt}` : ""}`, shown.signal);
    } catch (error) {
      if (error.name === "AbortError" || (error.status && error.status < 500)) return;
      await pause(NEXT_MS);
      continue;
    }
    if (ended && header.attempt !== attempt) {
      // Another attempt has begun: its output begins anew.
      [fromOut, fromErr, attempt, out, err, ended] = [new TextDecoder(), new TextDecoder(), header.attempt, 0, 0, false];
      shown.state.stdout = shown.state.stderr = "";
      continue;
    }
    attempt = header.attempt;
    shown.state.stdout = (shown.state.stdout + fromOut.decode(bytes.subarray(0, header.n_stdout), { stream: true })).slice(-KEPT);
    shown.state.stderr = (shown.state.stderr + fromErr.decode(bytes.subarray(header.n_stdout), { stream: true })).slice(-KEPT);
    out = header.stdout_at + header.n_stdout;
    err = header.stderr_at + header.n_stderr;
    ended = header.ended;
    shown.draw();
  }
}
