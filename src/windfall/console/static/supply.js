// Where work is done: pools, hosts with their record, rented machines.

import { badge, button, clock, dur, get, h, link, many, num, pictures, post, q, share, table, usd } from "./core.js";

const PAGE = 100;

export const pools = {
  title: () => "Pools",
  load: () => get("/v1/pools"),
  view: (data, where, shown) => [
    h("h1", {}, "Pools"),
    h("h2", {}, "Pools that give workers"),
    table("Pools that are asked for workers", [["pool"], ["kind"], ["mode"], ["wanted slots", "num"], ["pending", "num"], ["workers", "num"], ["busy slots", "num"], ["limit", "num"], ["remark", "wide"], ["", "acts"]],
      data.pools.map((row) => [row.pool, row.kind, badge(row.mode), num(row.wanted_slots), num(row.pending), num(row.running), num(row.busy_slots), num(row.limit),
        [row.reason, row.held_back, row.errors ? h("span", { class: "bad" }, `${num(row.errors)} errors: ${row.last_error}`) : ""].filter(Boolean).flatMap((part) => [part, " "]), acts(row, shown)]), "This server asks no pool for workers."),
    h("h2", {}, "Pools that rent machines"),
    table("Pools that rent machines for plans", [["pool"], ["kind"], ["mode"], ["machines", "num"], ["pending", "num"], ["remark", "wide"], ["", "acts"]],
      data.renting.map((row) => [row.pool, row.kind, badge(row.mode), num(row.machines), num(row.pending), row.reason, acts(row, shown)]), "This server rents nothing."),
    last([...data.pools, ...data.renting]),
  ],
  actions: {
    async switch(pool, node, shown, ask) {
      const what = node.dataset.what, text = { pause: "Nothing more is started there. What runs goes on.", drain: "Nothing more is started, and its workers end after their tasks.", resume: "It is asked for workers again." }[what];
      const said = await ask(`${what[0].toUpperCase()}${what.slice(1)} pool ${pool}?`, text, what, what === "resume" ? [] : [{ name: "reason", label: "Reason (may be empty)" }]);
      if (!said) return;
      await post(`/v1/pools/${q(pool)}/${what}`, { reason: said.reason ?? "" });
      shown.say(`Pool ${pool}: ${what} is done.`);
      shown.refresh();
    },
  },
};

function acts(row, shown) {
  if (!shown.may.hosts) return "";
  return (row.mode === "open" ? ["pause", "drain"] : ["resume"]).map((what) => [button(`${what}…`, "switch", row.pool, { "data-what": what, "aria-label": `${what} pool ${row.pool}` }), " "]);
}

function last(rows) {
  const words = rows.flatMap((row) => row.never_came.map((each) => [row.pool, clock(each.at_s), each.host, each.said]));
  return words.length ? [h("h2", {}, "Started and never came"), table("Last words of what was started and never asked for work", [["pool"], ["when"], ["host"], ["said", "wide"]], words)] : "";
}

export const hosts = {
  title: () => "Hosts",
  async load(where) {
    const after = where.query.get("after") ?? "", state = where.query.get("state") ?? "";
    return { after, state, ...await get(`/v1/hosts?limit=${PAGE}${after ? `&after=${q(after)}` : ""}${state ? `&state=${q(state)}` : ""}`) };
  },
  view: (data, where, shown) => [
    h("h1", {}, "Hosts"),
    h("p", { class: "soft" }, `${num(data.counts.live)} live with ${many(data.counts.slots, "slot")}, ${num(data.counts.unknown)} unknown, ${num(data.counts.total)} in all`),
    h("form", { class: "row" }, h("label", {}, h("span", {}, "State"), h("select", { "data-act": "state" }, ["", "live", "unknown", "gone"].map((each) => h("option", { value: each, selected: each === data.state }, each || "all"))))),
    table("Hosts", [["host"], ["state"], ["pool"], ["tasks / slots", "num"], ["seen"], ["done", "num"], ["failed", "num"], ["lost", "num"], ["errors", "num"], ["losses", "num"], ["mean turnaround", "num"], ["standing", "wide"], ["", "acts"]],
      data.hosts.map((row) => [row.host, badge(row.blocked ? "blocked" : row.draining ? "draining" : row.state), row.pool, `${num(row.held)} / ${num(row.slots)}`, h("span", { class: "nobreak" }, `${dur(row.seen_s_ago)} ago`), num(row.done), num(row.failed), num(row.lost), share(row.error_rate), share(row.loss_rate), dur(row.turnaround_s), standing(row), act(row, shown)]), "No host has joined."),
    h("p", {}, data.after ? [link("first page", "#/hosts"), " · "] : "", data.next ? link("next page", `#/hosts?after=${q(data.next)}&state=${q(data.state)}`) : ""),
  ],
  actions: {
    state: (_, node) => { location.hash = `#/hosts?state=${q(node.value)}`; },
    async host(name, node, shown, ask) {
      const what = node.dataset.what, text = { block: "It gets no tasks until it is unblocked. What it runs goes on.", unblock: "It gets tasks again.", drain: "It ends after the tasks that it runs." }[what];
      const said = await ask(`${what[0].toUpperCase()}${what.slice(1)} host ${name}?`, text, what, what === "block" ? [{ name: "reason", label: "Reason" }] : []);
      if (!said) return;
      await post(`/v1/hosts/${q(name)}/${what}`, said.reason ? { reason: said.reason } : {});
      shown.say(`Host ${name}: ${what} is done.`);
      shown.refresh();
    },
  },
};

// Why the server trusts a host or does not.
function standing(row) {
  const now = Date.now() / 1000, found = [];
  if (row.blocked) found.push(h("span", { class: "bad" }, `blocked: ${row.blocked}${row.blocked_until ? `, until ${clock(row.blocked_until)}` : ""}`));
  if (row.draining) found.push("takes nothing more");
  if (row.probation_until && row.probation_until > now) found.push(h("span", { class: "bad" }, `on probation until ${clock(row.probation_until)}: ${row.suspicion}`));
  else if (row.suspicion) found.push(`was suspected: ${row.suspicion}`);
  if (row.left) found.push(`left: ${row.left}`);
  if (row.volunteer) found.push(`volunteer${row.ad.volunteer ? ` ${row.ad.volunteer}` : ""}: ${num(row.volunteer.credit, 2)} credit, ${many(row.volunteer.confirmed_in_a_row, "result")} confirmed in a row, ${num(row.volunteer.contradicted)} contradicted`);
  if (!found.length) found.push(row.done + row.failed + row.lost ? (row.error_rate > 0.2 || row.loss_rate > 0.2 ? "fails or is lost often" : "reliable so far") : "nothing known yet");
  return found.flatMap((part) => [part, " "]);
}

function act(row, shown) {
  if (!shown.may.hosts || row.state === "gone") return "";
  return (row.blocked ? ["unblock"] : ["block", "drain"]).map((what) => [button(`${what}…`, "host", row.host, { "data-what": what, "aria-label": `${what} host ${row.host}` }), " "]);
}

export const machines = {
  title: () => "Machines",
  async load() {
    const [rented, drawn] = await Promise.all([get("/v1/machines?limit=200"), get("/v1/machines/pictures")]);
    return { ...rented, pictures: drawn.pictures, since: drawn.since_s };
  },
  view: (data) => [
    h("h1", {}, "Machines"),
    data.machines.length ? [h("p", { class: "soft" }, `Time zero of the pictures is ${clock(data.since)}.`), pictures(data.pictures)] : "",
    table("Rented machines, the newest first", [["machine"], ["pool"], ["offer"], ["market"], ["job", "num"], ["state"], ["running", "num"], ["reserved", "num"], ["ordered"], ["boot", "num"], ["held", "num"], ["paid for", "num"], ["cost", "num"], ["hibernated", "num"], ["remark", "wide"]],
      data.machines.map((row) => [`m${row.machine}`, row.pool, row.offer, row.market, row.fleet ? link(`fleet ${row.fleet}`, `#/fleet/${q(row.fleet)}`) : link(String(row.job), `#/job/${row.job}`), badge(row.phase), num(row.running), num(row.waiting), clock(row.requested_s), row.ready_s ? dur(row.ready_s - row.requested_s) : "-", dur(row.held_s), dur(row.paid_for_s), usd(row.cost_usd), num(row.hibernations), row.error || (row.taken_in_s !== null ? `will be reclaimed in ${dur(row.taken_in_s)}` : row.cause)]), "No machine has been rented."),
    h("h2", {}, "Offers"),
    table("What can be rented", [["pool"], ["offer"], ["market"], ["cores", "num"], ["speed", "num"], ["price", "num"], ["billing cycle", "num"], ["boot", "num"], ["limit", "num"], ["when reclaimed"]],
      data.offers.map((row) => [row.pool, row.offer, row.market, num(row.cores), num(row.speed, 2), usd(row.price_usd), dur(row.cycle_s), dur(row.lag_s), num(row.limit), row.market === "spot" ? row.when_taken : ""]), "Nothing is offered."),
    data.strangers.length ? [h("h2", {}, "Machines of others"), table("At a provider, and not this server's", [["pool"], ["id"], ["about", "wide"]], data.strangers.map((row) => [row.pool, row.id, row.about]))] : "",
  ],
};
