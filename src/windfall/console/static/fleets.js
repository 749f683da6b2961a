// Who lends machines to many: shared fleets with their machines and jobs, sites with their hosts, volunteers.

import { badge, button, clock, dur, facts, get, h, link, num, pictures, post, q, share, table, usd } from "./core.js";
import { reasons } from "./planning.js";

const SHOWN = 200;

export const list = {
  title: () => "Fleets",
  async load() {
    const [fleets, sites, people] = await Promise.all([get("/v1/fleets"), get("/v1/sites"), get("/v1/volunteers")]);
    return { fleets: fleets.fleets, sites: sites.sites, people };
  },
  view: (data, where, shown) => [
    h("h1", {}, "Fleets, sites and volunteers"),
    h("h2", {}, "Fleets"),
    table("Rented machines that several jobs share", [["fleet"], ["mode"], ["planner"], ["pools"], ["jobs", "num"], ["machines", "num"], ["idle", "num"], ["spent", "num"], ["budget left", "num"], ["", "acts"]],
      data.fleets.map((row) => [link(row.fleet, `#/fleet/${q(row.fleet)}`), badge(row.mode), row.planner, row.pools.join(", "), num(row.jobs), num(row.machines), num(row.idle), usd(row.spent_usd), row.budget_usd === null ? "no limit" : `${usd(row.budget_left_usd)} of ${usd(row.budget_usd)}`, acts(row, shown)]),
      "There is no shared fleet. Try: windfall fleet create night --pool POOL"),
    h("h2", {}, "Sites"),
    table("Hosts of one's own that are lent", [["site"], ["hosts", "num"], ["normal", "num"], ["preemptible", "num"], ["leaving", "num"], ["waiting", "num"], ["room", "num"], ["limit", "num"]],
      data.sites.map((row) => [link(row.site, `#/site/${q(row.site)}`), num(row.hosts_live), num(row.normal), num(row.preemptible), num(row.leaving), num(row.waiting), num(row.room), num(row.limit)]),
      "There is no site. Try: windfall site create lab --instance-vcpu 1 --instance-ram 1000"),
    h("h2", {}, "Volunteers"),
    data.people.fronts ? [
      h("p", {}, `${num(data.people.total)} people with ${num(data.people.sums.hosts)} hosts; ${num(data.people.sums.done)} results, ${num(data.people.sums.credit)} credit. Names are shown of those who agreed.`),
      table("Volunteers, the most credit first", [["volunteer", "wide"], ["pool"], ["hosts", "num"], ["results", "num"], ["credit", "num"]],
        data.people.volunteers.map((row) => [row.name || `volunteer ${row.account}`, row.pool, num(row.hosts), num(row.done), num(row.credit, 2)]), "Nobody has an account yet. Try: windfall boinc invite"),
    ] : h("p", { class: "soft" }, "This server takes no volunteers. Try: windfall boinc enable --url http://HOST:PORT/NAME/"),
  ],
  actions: { switch: turn },
};

function acts(row, shown) {
  if (!shown.may.hosts) return "";
  return (row.mode === "open" ? ["pause", "drain"] : ["resume"]).map((what) => [button(`${what}…`, "switch", row.fleet, { "data-what": what, "aria-label": `${what} fleet ${row.fleet}` }), " "]);
}

async function turn(fleet, node, shown, ask) {
  const what = node.dataset.what, text = { pause: "Nothing more is rented for it. What runs goes on.", drain: "It takes no more jobs and ends its machines when its jobs are done.", resume: "It rents and takes jobs again." }[what];
  if (!await ask(`${what[0].toUpperCase()}${what.slice(1)} fleet ${fleet}?`, text, what)) return;
  await post(`/v1/fleets/${q(fleet)}/${what}`, {});
  shown.say(`Fleet ${fleet}: ${what} is done.`);
  shown.refresh();
}

export const fleet = {
  title: (where) => `Fleet ${where.args[0]}`,
  async load(where) {
    const name = q(where.args[0] ?? "");
    const [told, drawn] = await Promise.all([get(`/v1/fleets/${name}`), get(`/v1/machines/pictures?fleet=${name}`)]);
    return { told, drawn };
  },
  view: ({ told, drawn }, where, shown) => [
    h("h1", {}, `${told.fleet} `, h("span", { class: "soft" }, "fleet"), " ", badge(told.mode)),
    h("div", { class: "actions" }, acts(told, shown)),
    facts([["planner", told.planner], ["pools", told.pools.join(", ")], ["jobs now", num(told.jobs)], ["jobs ever", num(told.jobs_ever)], ["machines", num(told.machines)], ["idle", num(told.idle)],
      ["spent", usd(told.spent_usd)], ["of it for idle cycles", usd(told.idle_usd)], told.budget_usd !== null && ["budget", `${usd(told.budget_usd)} in ${dur(told.budget_s)}`], told.budget_usd !== null && ["budget left", usd(told.budget_left_usd)]]),
    told.error ? h("p", { class: "bad" }, told.error) : "", told.because.length ? [h("h2", {}, "Last plan"), reasons(told.because)] : "",
    drawn.pictures.length ? [h("p", { class: "soft" }, `Time zero of the pictures is ${clock(drawn.since_s)}.`), pictures(drawn.pictures)] : "",
    h("h2", {}, "Jobs"),
    table("Unfinished jobs of this fleet", [["job", "num"], ["name", "wide"], ["state"], ["open tasks", "num"], ["deadline"], ["owner"]],
      told.unfinished.slice(0, SHOWN).map((row) => [row.job, link(row.name || `job ${row.job}`, `#/job/${row.job}`), badge(row.state), `${num(row.unfinished)} of ${num(row.total)}`, clock(row.deadline_s), row.owner || "-"]), "It has no unfinished job."),
    h("h2", {}, "Machines"),
    table("Machines of this fleet, and which jobs share them", [["machine"], ["offer"], ["market"], ["cores", "num"], ["state"], ["ordered"], ["cost", "num"], ["jobs", "wide"]],
      told.there.map((row) => [`m${row.machine}`, row.offer, row.market, num(row.cores), badge(row.state), clock(row.requested_s), usd(row.cost_usd), row.jobs.flatMap((each) => [link(`job ${each.job}`, `#/job/${each.job}`), ` ${usd(each.cost_usd)} `])]), "It has no machine now."),
  ],
  actions: { switch: turn },
};

export const site = {
  title: (where) => `Site ${where.args[0]}`,
  load: (where) => get(`/v1/sites/${q(where.args[0] ?? "")}`),
  view: (told) => [
    h("h1", {}, `${told.site} `, h("span", { class: "soft" }, "site")),
    facts([["hosts", num(told.hosts_live)], ["normal instances", num(told.normal)], ["preemptible instances", num(told.preemptible)], ["leaving", num(told.leaving)], ["waiting requests", num(told.waiting)],
      ["room for more", num(told.room)], ["limit", num(told.limit)], ["cost of an eviction by", told.cost], ["grace", dur(told.grace_s)]]),
    table("Hosts of this site", [["host"], ["state"], ["seen"], ["used", "wide"], ["tags"], ["instances", "wide"]],
      told.hosts.slice(0, SHOWN).map((row) => [row.host, badge(row.state), h("span", { class: "nobreak" }, `${dur(row.seen_s_ago)} ago`), used(row), row.tags.join(", "),
        row.instances.map((each) => h("div", {}, `${each.name} `, badge(each.preemptible ? "preemptible" : "normal"), " ", each.state))]), "No host has joined."),
    told.hosts.length > SHOWN ? h("p", { class: "soft" }, `The first ${num(SHOWN)} of ${num(told.hosts.length)} hosts.`) : "",
  ],
};

function used(row) {
  return Object.entries(row.capacity).map(([name, most]) => h("div", {}, h("meter", { min: "0", max: most, value: row.used[name] ?? 0, "aria-label": `${name}: ${row.used[name] ?? 0} of ${most}` }), ` ${name} ${num(row.used[name] ?? 0, 2)} of ${num(most, 2)} (${share((row.used[name] ?? 0) / (most || 1))})`));
}
