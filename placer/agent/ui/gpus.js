// Pages about GPUs: of the cluster, of a rack, of a node, one GPU, failures; and the page Tenants.
import {badge, command, empty, events, eventTable, failed, failures, failureTable, firstGPUs, get, gpuLink, h, learnGPUs, link, mark, marked, named, nodeLink, plural, query, rackPath, short, table, time, when} from "./dom.js";
import {allocated, classes, cluster, count, degraded, free, gpus as gpusOf, listen, nodeOf, nodes, quarantined, unavailable, unhealthy} from "./cluster.js";
import {classKeys, clusterMap} from "./map.js";
import {during, gantt, toJob} from "./gantt.js";
import {gpuActions} from "./actions.js";
import {notStarted} from "./jobs.js";

const rows = 50; // of a table at a time

// live calls draw, at most every 3 s, when a rack changes for which concerns(rack) is true. With jobsEvery, live also
// calls draw, at most every jobsEvery ms, when jobs, failures or reasons change although no rack does.
function live(concerns, draw, jobsEvery) {
  let timer, last = 0, due = Infinity;
  const stop = listen((what, changed) => {
    const jobs = what === "jobs" && jobsEvery;
    if (!jobs && !(what === "cells" && changed.some(concerns))) return;
    const at = last + (jobs || 3000);
    if (at >= due) return;
    due = at;
    clearTimeout(timer);
    timer = setTimeout(() => { last = Date.now(); due = Infinity; draw(); }, Math.max(0, at - Date.now()));
  });
  return () => { stop(); clearTimeout(timer); };
}

const figures = list => h("dl", {className: "figures"}, list.map(([n, what]) => h("div", {}, h("dt", {}, what), h("dd", {}, n.toLocaleString()))));
const counted = {Allocated: allocated, Free: free, Unhealthy: unhealthy, Quarantined: quarantined, Unavailable: unavailable, Degraded: degraded};
const counts = nodes => Object.values(counted).map(f => count(nodes, f)), countHeads = Object.keys(counted).map(name => "#" + name);
const figuresOf = nodes => figures([[gpusOf(nodes), "GPUs"], ...counts(nodes).map((c, i) => [c, Object.keys(counted)[i].toLowerCase()])]);

// paged is a table that keeps only one page of its rows in the document.
function paged(caption, heads, items, row) {
  const host = h("div", {});
  let at = 0;
  const draw = () => {
    at = Math.max(0, Math.min(at, items().length - 1));
    at -= at % rows;
    const all = items(), some = all.slice(at, at + rows), go = to => () => { at = to; draw(); };
    host.replaceChildren(table(caption, heads, some.map(row)), all.length <= rows ? "" : h("nav", {className: "row", ariaLabel: "Pages of " + caption},
      h("button", {disabled: at === 0, onclick: go(at - rows)}, "Previous"), h("span", {}, `${at + 1} to ${at + some.length} of ${all.length.toLocaleString()}`), h("button", {disabled: at + rows >= all.length, onclick: go(at + rows)}, "Next")));
  };
  draw();
  return {element: host, draw};
}

export const none = () => cluster.hidden
  ? empty("This token may not read nodes, so there is no map. It needs ", h("code", {}, 'node { policy = "read" }'), ". Your jobs are on the page ", link("#/jobs", "Jobs"), ".")
  : empty("Nomad knows no GPU. Install the device plugin ", h("code", {}, "nomad-device-pal"), " on a client, then run ", command("nomad-pal doctor"), " to see what is missing.");

// models shows the speeds of GPU models relative to each other, if several models were measured.
function models() {
  const host = h("div", {});
  get("/v1/models?stale").then(all => {
    const names = [...new Set(all.map(m => m.device))].sort();
    if (names.length < 2) return;
    const cell = (device, c) => { const m = all.find(m => m.device === device && m.app_class === c); return m ? h("span", {title: `${m.rate.toPrecision(3)} ${m.unit}, the median of ${plural(m.gpus, "GPU")}`}, String(+m.speed.toPrecision(3))) : "–"; };
    host.replaceChildren(h("h2", {}, "GPU models"), h("p", {className: "soft"}, "Measured speed by application class, relative to the fastest model."),
      h("div", {className: "plain"}, table("Speed of GPU models", ["GPU model", ...classes.map(c => "#" + c)], names.map(n => [n, ...classes.map(c => cell(n, c))]))));
  }).catch(() => {}); // the map already names the missing right
  return host;
}

// mapPage shows figures, the map and a table of racks() and their nodes. It draws all again when racks come or go.
function mapPage(title, says, racks, missing, heads, items, row, after) {
  const host = h("div", {}, empty("Reading the cluster …"));
  let map, sums, list;
  function draw() {
    if (!cluster.known) return;
    const nodes = racks().flatMap(r => r.nodes);
    if (!nodes.length) { map?.close(); map = null; host.replaceChildren(cluster.racks.length ? missing : none()); return; }
    const fresh = figuresOf(nodes);
    if (map) { sums.replaceWith(fresh); sums = fresh; list.draw(); return; }
    sums = fresh;
    map = clusterMap(racks);
    list = paged(heads[0] + "s", [...heads, ...countHeads], items, row);
    host.replaceChildren(sums, h("section", {className: "card map-card"}, map.element), h("h2", {}, heads[0] + "s"), h("div", {className: "plain"}, list.element), after?.() ?? "");
  }
  const stop = listen(what => { if (what === "cells") draw(); });
  draw();
  return {title, element: [h("h1", {}, title), says, host], close: () => { stop(); map?.close(); }};
}

export const gpusPage = () => mapPage("GPUs", "", () => cluster.racks, "", ["Rack", "Datacenter", "#Nodes", "#GPUs"], () => cluster.racks,
  r => [link(rackPath(r), r.name), r.datacenter, r.nodes.length, gpusOf(r.nodes), ...counts(r.nodes)], models);

export function rackPage(datacenter, name) {
  const racks = () => cluster.racks.filter(r => r.name === name && r.datacenter === datacenter);
  return mapPage("Rack " + name, empty("Datacenter ", datacenter), racks, empty("There is no such rack now. ", link("#/gpus", "All racks")), ["Node", "#GPUs"], () => racks().flatMap(r => r.nodes),
    n => [[nodeLink(n.name), n.away ? h("small", {}, " ", n.away) : ""], n.cells.length, ...counts([n])]);
}

// tooSlow reports whether the GPU's PM score for the class is above the outlier_threshold.
const tooSlow = (g, c) => g.outlier_for?.includes(c);
const below = (g, c) => g.uncapped && c === "A";
const score = (g, c) => { const k = g.classes?.[c]; return k ? [h("span", {className: "chip c" + Math.min(k, 5), title: `class ${k} for application class ${c}`}, k), " ", tooSlow(g, c) ? h("strong", {title: "an outlier"}, g.pm_scores[c].toFixed(3)) : g.pm_scores[c].toFixed(3), below(g, c) ? " *" : ""] : h("span", {className: "soft"}, "not measured"); };
// trouble lists what is wrong with a GPU, as pairs: the word on the badge ("" if it has no badge) and the reason.
const trouble = g => [!g.healthy && ["unhealthy", g.unhealthy || "no reason given"], g.degraded && ["degraded", g.degraded], g.quarantine && ["", `quarantined until ${new Date(g.quarantine.until) - Date.now() > 4e11 ? "an operator lifts it" : when(g.quarantine.until)}: ${g.quarantine.reason}`], g.state === "unavailable" && ["unavailable", g.unavailable], g.window && ["", `kept by window ${g.window}`]].filter(Boolean);
// said returns trouble as text, for the place beside a badge that already shows the first state.
export const said = g => trouble(g).map(([what, why], i) => i && what ? `${what}: ${why}` : why).join("; ");
const stateOf = g => g.degraded && ["free", "allocated"].includes(g.state) ? "degraded" : g.state;
const of = (n, all, scale, unit) => n == null ? "unknown" : `${+(n / scale).toFixed(1)}${all ? "/" + +(all / scale).toFixed(1) : ""} ${unit}`;
// nowOf returns a GPU's current statistics for nowHeads; utilization has a bar.
export const nowOf = (u, why) => u ? [u.utilization_percent == null ? "unknown" : [h("meter", {min: 0, max: 100, value: u.utilization_percent, ariaLabel: "Utilization"}), ` ${u.utilization_percent} %`],
  of(u.memory_used_mib, u.memory_total_mib, 1024, "GiB"), of(u.temperature_c, 0, 1, "°C"), of(u.power_w, u.power_limit_w, 1, "W")] : [h("span", {className: "soft", title: why ?? ""}, "unknown"), "", "", ""];
export const nowHeads = ["Utilization", "Memory", "Temperature", "Power"];
const lookAgain = 5000; // ms; the agent asks a node at most once in 3 s
function gpuTable(gpus, caption) {
  const told = gpus.some(g => g.live), why = [...new Set(gpus.map(g => g.not_live).filter(Boolean))].join("; ");
  return h("div", {}, table(caption, ["GPU", "Id", "Model", ...told ? nowHeads : [], ...classes.map(c => "Class " + c), "State", "Job"], gpus.map(g =>
    [gpuLink(g.id), h("span", {className: "soft word", title: g.id}, short(g.id)), g.device.replace(/^.*\//, ""), ...told ? nowOf(g.live, g.not_live) : [], ...classes.map(c => score(g, c)), [badge(stateOf(g)), " ", said(g), g.outlier_for ? [badge("outlier"), ` for class ${g.outlier_for.join(", ")} `] : "", g.idle_since ? [" idle since ", time(g.idle_since)] : ""], g.job ? [g.job.startsWith("(") ? "" : mark(g.job), named(g.job)] : ""])),
  gpus.some(g => g.classes) ? h("ul", {className: "legend"}, h("li", {}, "Variability class and PM score (1 is the median), for each application class:"), classKeys(), gpus.some(g => below(g, "A")) ? h("li", {}, "* measured below the power limit, so the score says little about training") : "") : "",
  told ? "" : empty("Utilization, memory, temperature and power are not known", why ? `: ${why}.` : "."));
}

// some shows the GPUs of one node, or one GPU.
function some(ask, title, what, missing, navigate) {
  const host = h("div", {}, empty("Reading the GPUs …"));
  let closed = false, mine = null, shown;
  const read = () => get("/v1/gpus?" + query({...ask, live: true}));
  async function now() {
    if (document.hidden || !shown) return;
    const gpus = await read().catch(() => []); // draw shows errors
    if (closed || !gpus.length) return;
    const next = gpuTable(gpus, title);
    shown.replaceWith(next);
    shown = next;
  }
  async function draw() {
    try {
      const gpus = await read();
      if (closed) return;
      if (!gpus.length) { host.replaceChildren(empty(missing, " ", link("#/gpus", "All GPUs"))); return; }
      const node = nodeOf(gpus[0]), name = node?.name ?? gpus[0].node;
      mine = node;
      const [uses, fails] = await Promise.all([get("/v1/uses?" + query({node: name})), failures().catch(() => [])]);
      if (closed) return;
      shown = gpuTable(gpus, title);
      const near = fails.filter(f => ask.gpu ? (f.gpus ?? []).includes(ask.gpu) : f.node === gpus[0].node);
      host.replaceChildren(h("p", {}, what === "GPU" ? ["On node ", nodeLink(name)] : "", node ? [what === "GPU" ? ", rack " : "Rack ", link(rackPath(node.rack), node.rack.name)] : ""), what === "GPU" ? gpuActions(gpus[0], draw) : "",
        h("div", {className: "plain"}, shown), h("h2", {}, "Who had ", what === "GPU" ? "it" : "which GPU"), h("section", {className: "card"}, gantt(during(gpus, uses), "Who had which GPU", {open: toJob(navigate)})),
        h("h2", {}, "Failures"), near.length ? h("div", {className: "plain"}, failureTable(near)) : empty(`None of the last 120 failed allocations was on this ${what}.`));
    } catch (e) { if (!closed) host.replaceChildren(failed(e)); }
  }
  const stop = live(rack => rack.nodes.some(n => n.name === mine?.name), draw, 10000), timer = setInterval(now, lookAgain);
  draw();
  return {title, element: [h("h1", {}, title), host], close: () => { closed = true; stop(); clearInterval(timer); }};
}
export const nodePage = (name, navigate) => some({node: name}, "Node " + name, "node", "There is no such node with GPUs now.", navigate);
export const gpuPage = (id, navigate) => some({gpu: id}, "GPU " + id, "GPU", "There is no such GPU now.", navigate);

// alike groups elements for which says() returns the same text, and keeps their order.
function alike(all, says) {
  const groups = new Map();
  for (const x of all) { const key = JSON.stringify(says(x)); groups.set(key, [...groups.get(key) ?? [], x]); }
  return [...groups.values()];
}

export function failuresPage() {
  const away = h("div", {}), stuck = h("div", {}, empty("Reading the jobs …")), host = h("div", {}, empty("Reading the GPUs …")), slow = h("div", {}, empty("Reading the GPUs …")), allocs = h("div", {}, empty("Reading the failures …")), what = h("div", {}, empty("Reading the events …"));
  let closed = false;
  async function draw() {
    const gone = nodes().filter(n => n.away);
    away.replaceChildren(...gone.length ? [h("h2", {}, "Nodes away"), h("div", {className: "plain"}, paged("Nodes away", ["Node", "#GPUs", "Why"], () => gone, n => [nodeLink(n.name), n.cells.length, n.away]).element)] : []);
    try {
      const {jobs, matching} = await get("/v1/queue/page?" + query({state: notStarted, sort: "submitted", order: "desc", limit: rows}));
      if (closed) return;
      stuck.replaceChildren(jobs.length ? table("Jobs that do not run", ["Job", "State", "#GPUs", "Submitted", "Reason"], jobs.map(j => [marked(j), badge(j.state), j.gpus, time(j.submitted), j.reason?.text ?? ""])) : empty("No job is stuck or failed."), matching > rows ? link("#/jobs?state=" + notStarted, `All ${matching.toLocaleString("en")}`) : "");
    } catch (e) { if (!closed) stuck.replaceChildren(failed(e)); }
    try {
      const gpus = await get("/v1/gpus?trouble=true");
      if (closed) return;
      const rows = alike(gpus, g => [g.node_id, g.state, said(g), g.job]);
      const list = gpus.length ? paged("GPUs in trouble", ["Node", "GPUs", "State", "Why", "Job on it"], () => rows, same => { const g = same[0]; return [nodeLink(nodeOf(g)?.name ?? g.node), firstGPUs(same.map(g => g.id)), badge(g.state === "allocated" || g.state === "free" ? "degraded" : g.state), said(g), g.job ? named(g.job) : ""]; }).element : empty("No GPU is unhealthy, degraded, or quarantined.");
      host.replaceChildren(list);
    } catch (e) { if (!closed) host.replaceChildren(failed(e)); }
    try {
      const gpus = await get("/v1/gpus?outliers=true");
      if (closed) return;
      slow.replaceChildren(gpus.length ? paged("Outliers", ["Node", "GPU", ...classes.map(c => "#Class " + c), "Job on it"], () => gpus, g =>
        [nodeLink(nodeOf(g)?.name ?? g.node), gpuLink(g.id), ...classes.map(c => tooSlow(g, c) ? h("strong", {}, g.pm_scores[c].toFixed(2)) : g.pm_scores?.[c]?.toFixed(2) ?? ""), g.job ? named(g.job) : ""]).element : empty("No GPU's PM score is above the outlier_threshold."));
    } catch (e) { if (!closed) slow.replaceChildren(failed(e)); }
    try {
      const list = await failures();
      await learnGPUs(list);
      if (!closed) allocs.replaceChildren(list.length ? failureTable(list) : empty("This token sees no failed allocation."));
    } catch (e) { if (!closed) allocs.replaceChildren(failed(e)); }
    try {
      const found = await events({kind: "quarantined,unhealthy,healthy,lost,failed", last: 100});
      await learnGPUs(found);
      if (!closed) what.replaceChildren(found.length ? eventTable(found, "Events, the latest first") : empty("This token sees no such event among the agent's last 5,000 events."));
    } catch (e) { if (!closed) what.replaceChildren(failed(e)); }
  }
  const stop = live(() => true, draw, 3000);
  draw();
  return {title: "Failures", element: [h("h1", {}, "In trouble"), h("h2", {}, "GPUs in trouble"), h("div", {className: "plain"}, host), away, h("h2", {}, "Jobs that do not run"), h("div", {className: "plain"}, stuck), h("h2", {}, "Outliers"), h("div", {className: "plain"}, slow), h("h2", {}, "What failed"), h("div", {className: "plain"}, allocs), h("h2", {}, "Events"), h("div", {className: "plain"}, what)], close: () => { closed = true; stop(); }};
}

const fades = half => half ? empty(`Old GPU hours count less: a GPU hour used ${half >= 2 * 86400 ? plural(+(half / 86400).toFixed(1), "day") : plural(+(half / 3600).toFixed(1), "hour")} ago counts half (usage_half_life).`) : "";

export function tenantsPage() {
  const host = h("div", {}, empty("Reading the tenants …"));
  const users = list => list.flatMap(t => (t.users ?? []).map(u => [u.user, t.tenant, u.gpus, t.max_gpus_per_user ?? "", u.jobs, t.max_jobs_per_user ?? ""]));
  get("/v1/tenants").then(list => host.replaceChildren(...list?.length ? [table("Tenants", ["Tenant", "#GPUs", "#Without gate", "#Quota", "#At most", "#Recent GPU hours", "#Times its share"], list.map(t => [t.tenant, t.gpus, t.ungated ?? "", t.quota || "none", t.limit ?? "none", t.gpu_hours.toFixed(1), t.times.toFixed(2)])), fades(list[0].half_life_seconds),
    users(list).length ? table("Users", ["User", "Tenant", "#GPUs", "#At most", "#Jobs", "#At most"], users(list)) : ""]
    : [empty("No tenant that this token may see has jobs with GPUs.")]), e => host.replaceChildren(failed(e)));
  return {title: "Tenants", element: [h("h1", {}, "Tenants"), h("p", {className: "soft"}, "The GPUs that each tenant holds and may hold, and its recent GPU hours as fair share counts them. ", link("#/usage", "Usage"), " shows all GPU hours of a month or year."), h("div", {className: "plain"}, host)], close: () => {}};
}
