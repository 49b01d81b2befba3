// One job: why it runs where it runs, or why it waits.
import {badge, commands, empty, events, eventTable, expected, failed, get, gpuLink, h, learnGPUs, mark, named, nodeLink, plural, put, query, range, table, time, when, zoneName} from "./dom.js";
import {classes, cluster, listen, nodeOf} from "./cluster.js";
import {clusterMap, view} from "./map.js";
import {gantt} from "./gantt.js";
import {states} from "./jobs.js";
import {nowHeads, nowOf} from "./gpus.js";
import {jobActions} from "./actions.js";

const tiers = ["island", "numa", "node", "rack", "datacenter", "cluster"];

export function jobPage(namespace, id, navigate) {
  const name = namespace === "default" ? id : `${namespace}/${id}`, body = h("div", {className: "plain"}, empty("Reading why …")), place = h("div", {}), more = h("div", {className: "plain"});
  let map, lit, timer, closed = false, first = true, looked = false;
  async function read() {
    const job = `/v1/job/${encodeURIComponent(id)}/explain?` + query({namespace, zone: zoneName()});
    try {
      const e = await get(job);
      await learnGPUs([...e.allocations ?? [], ...e.failures ?? []]);
      if (closed) return;
      const opened = body.querySelector("details")?.open;
      put(body, why(e, jobActions(e, read)));
      if (opened) body.querySelector("details").open = true;
      if (first) { rest(); view.by = Math.max(0, classes.indexOf(e.decision?.class)); }
      first = false;
    } catch (e) { if (!closed) body.replaceChildren(failed(e), e.status === 404 ? empty("Somebody may have purged the job, or it never existed. ", h("a", {href: "#/jobs"}, "All jobs")) : ""); }
    light();
  }
  async function light() {
    looked = cluster.known;
    try {
      const gpus = await get("/v1/gpus?" + query({job: `${namespace}/${id}`}));
      if (closed) return;
      lit = Map.groupBy(gpus.filter(nodeOf), g => nodeOf(g).name);
      for (const [name, on] of lit) lit.set(name, new Set(on.map(g => g.position)));
      if (!lit.size) { place.replaceChildren(); map?.close(); map = null; return; }
      if (map) { map.draw(); return; }
      const racks = () => cluster.racks.filter(r => r.nodes.some(n => lit.has(n.name)));
      map = clusterMap(racks, () => lit);
      place.replaceChildren(h("h2", {}, "Its GPUs"), h("p", {className: "soft"}, `${plural(gpus.length, "GPU")} on ${plural(lit.size, "node")} in ${plural(racks().length, "rack")}: the map highlights them.`), h("section", {className: "card"}, map.element));
    } catch (e) { if (e.status !== 403) place.replaceChildren(failed(e)); }
  }
  async function rest() {
    const parts = await Promise.allSettled([events({job: id, namespace}), get("/v1/uses?" + query({job: id, namespace}))]);
    if (closed) return;
    const [es, us] = parts.map(p => p.status === "fulfilled" ? p.value : []);
    more.replaceChildren(...us.length ? [h("h2", {}, "When it had GPUs"), h("section", {className: "card"}, gantt(us.map(u => ({row: plural(u.gpus.length, "GPU"), from: u.from, to: u.to, text: name, job: {namespace, job: id}})), "When the job had GPUs"))] : [],
      ...es.length ? [h("h2", {}, "What happened"), eventTable(es, "Events of the job, the latest first")] : []);
  }
  const later = () => { clearTimeout(timer); timer = setTimeout(read, 5000); };
  const stop = listen(what => { if (what === "jobs") later(); if (what === "cells" && !looked) light(); });
  read();
  return {title: name, element: [h("h1", {}, mark(`${namespace}/${id}`), "Job ", name), body, place, more], close: () => { closed = true; stop(); clearTimeout(timer); map?.close(); }};
}

const fact = (term, ...what) => what.some(x => x || x === 0) ? [h("dt", {}, term), h("dd", {}, what)] : [];

// next shows the steps that nomad-pal explain suggests at its end.
const next = steps => steps?.length ? h("section", {className: "next"}, h("h2", {}, "Next"), h("ul", {}, steps.map(s => h("li", {}, commands(s))))) : "";

const allGPUs = (gpus = []) => gpus.flatMap((g, i) => [i ? ", " : "", gpuLink(g)]);

function why(e, actions) {
  const d = e.decision, holders = e.holders;
  return [
    h("p", {className: "lead"}, badge(e.outcome?.status ?? e.state, states[e.state]), " ", e.summary),
    actions, next(e.next),
    h("dl", {className: "facts"},
      fact("Expected start", expected(e)), fact("Expected end", e.end_to ? [range(e.end_from, e.end_to), e.end_why && `: ${e.end_why}`] : e.end_why), fact("Waits for", e.waits_for?.text !== e.reason?.text && e.waits_for?.text), fact("Submitted", e.submitted && [time(e.submitted), ", ", when(e.submitted)]), fact("Ended", e.outcome?.at && [time(e.outcome.at), ", ", when(e.outcome.at)]), fact("Decided", time(e.decided)), fact("Ready", time(e.ready)),
      fact("Application class", d && d.class + (e.class_from ? `: ${e.class_from}` : "")), fact("Policy", d && d.policy), fact("Note", e.note)),
    holders?.jobs?.length ? [h("h2", {}, "Who holds the GPUs that this job could use"), table("Jobs that hold GPUs", ["Job", "#GPUs", "Expected end", "Its end makes room"], holders.jobs.map(j => [named(j.job), j.gpus, [j.stopping ? "soon: the job was stopped, and its tasks are ending" : j.service ? "when somebody stops the job, which is a service" : j.end_to ? range(j.end_from, j.end_to) : "not known", j.preemptible && !j.stopping ? "; nomad-pal may stop the job for other jobs (pal_preempt)" : ""].flat(), j.needed ? "yes" : ""])), sick(holders, d), holders.enough ? empty(holders.jobs.filter(j => j.needed).length > 1 ? "This job has room once all jobs marked “yes” have ended." : "This job has room once the job marked “yes” has ended.") : "", holders.omitted ? empty(`and ${plural(holders.omitted, "more job")}`) : ""] : "",
    e.obstacles?.length ? [h("h2", {}, "Why nodes cannot take it"), table("Obstacles", ["Group", "Nodes", "Reason", "Goes away"], e.obstacles.map(o => [o.group, `${o.nodes} of ${o.total}`, o.what, o.now ? "when other jobs end" : "not by itself"]))] : "",
    e.allocations?.length ? [h("h2", {}, "Allocations"), table("Allocations", ["Allocation", "Group", "Node", "Status", "GPUs"], e.allocations.map(a => [a.id.slice(0, 8), a.group, nodeLink(a.node), badge(a.status), allGPUs(a.gpus)]))] : "",
    e.live && Object.keys(e.live).length ? [h("h2", {}, "Current load of its GPUs"), table("Current load of its GPUs", ["Node", "GPU", ...nowHeads, "Idle since"], e.allocations.flatMap(a => (a.gpus ?? []).map(g => [nodeLink(a.node), gpuLink(g), ...nowOf(e.live[g.split("::")[0]]), e.idle?.[g] ? time(e.idle[g]) : ""])))] : "",
    d ? decision(d, e.predicted, e.alternatives ?? [], e.speeds_from) : "",
    e.failures?.length ? [h("h2", {}, "Members that failed"), table("Members that failed", ["#Try", "Time", "Node", "Cause", "Reason", "GPUs"], e.failures.map(f => [f.try, time(f.at), nodeLink(f.node), badge(f.cause), f.reason, allGPUs(f.gpus)]))] : "",
    h("details", {}, h("summary", {}, "The whole explanation as JSON"), h("pre", {tabIndex: 0}, JSON.stringify(e, null, 2))),
  ].flat(Infinity).filter(x => x !== "");
}

// sick explains why the jobs hold more GPUs than the decision counts as allocated.
function sick(holders, d) {
  const n = holders.omitted ? 0 : holders.jobs.reduce((sum, j) => sum + j.gpus, 0) - (d?.candidates?.allocated ?? Infinity);
  return n > 0 ? empty(`${plural(n, "GPU")} of these ${n === 1 ? "is" : "are"} unhealthy or quarantined, and ${n === 1 ? "does" : "do"} not count as allocated.`) : "";
}

// decision compares the placements and GPU models, and shows the L×V matrix.
function decision(d, predicted, alternatives, from) {
  const choices = [...predicted ? [["As it runs", d.chosen], ["As nomad-pal chose", predicted]] : [["Chosen", d.chosen]], ["Packing would take", d.packed], ...alternatives.map(a => [a.what.slice(0, 1).toUpperCase() + a.what.slice(1), a])].filter(([, c]) => c?.members);
  const c = d.candidates;
  return [
    h("h2", {}, d.chosen ? "Placements compared" : "Why it does not fit"),
    choices.length ? table("Placements", ["Placement", "Locality", "#Nodes", "#Slowest PM score", "#Penalty", "#Slowdown", "On"], choices.map(([what, p]) =>
      [what, p.tier, p.nodes, p.pm_score.toFixed(3), p.locality_penalty.toFixed(2), p.cost.toFixed(3), [...new Set(p.members.map(m => m.node))].slice(0, 6).flatMap((n, i) => [i ? ", " : "", nodeLink(n)]).concat(p.nodes > 6 ? ` and ${p.nodes - 6} more` : "")])) : "",
    choices.some(([, p]) => p.tier === "cluster") && d.walk?.length && !d.walk_omitted && !d.walk.some(e => e.tier === "rack") ? h("p", {className: "soft"}, "Locality “cluster” means anywhere. Racks do not count: this agent's locality has no penalty for the tier rack.") : "",
    d.models?.length ? [h("h3", {}, "GPU models"), table("GPU models", ["GPU model", "#Speed", "#Slowdown", "Result", "Speed known from"], d.models.map(m =>
      [m.device, +m.speed.toPrecision(3), m.fits ? m.cost.toFixed(3) : "–", m.chosen ? "chosen" : m.fits ? "has room" : d.replicas ? "–" : "no room now", from?.[m.device] ?? ""]))] : "",
    predicted ? h("p", {}, "Nomad gave the job GPUs that nomad-pal did not choose, but that the job's pins allow.") : "",
    h("p", {className: "soft"}, `Of ${plural(c.total, "GPU")}, ${c.free.toLocaleString()} ${c.free === 1 ? "was" : "were"} free for it, ${c.allocated.toLocaleString()} allocated, ${c.unhealthy} unhealthy, ${c.quarantined} quarantined, ${c.unavailable ?? 0} unavailable${c.outliers ? `, ${c.outliers} too slow` : ""}${c.kept ? `, ${c.kept} kept by windows` : ""}; ${c.ineligible.toLocaleString()} not eligible (GPU model, constraints, or a node that is not ready).`),
    d.walk?.length ? matrix(d) : "",
  ];
}

// matrix shows PAL's L×V matrix, locality by variability, and the order in which the placer tried its cells.
function matrix(d) {
  const bins = [...new Set(d.walk.map(e => e.bin))].sort((a, b) => a - b), rows = tiers.filter(t => d.walk.some(e => e.tier === t));
  const told = h("p", {role: "status"}, "Choose a cell to read what was tried there.");
  const at = (t, b) => d.walk.findIndex(e => e.tier === t && e.bin === b), penalty = t => { const e = d.walk.find(e => e.tier === t); return e.product / e.bin; };
  // Agents of earlier versions send no scores.
  const scores = b => { const {lowest = b, highest = b} = d.walk.find(e => e.bin === b), low = lowest.toFixed(3), high = highest.toFixed(3); return {high, range: low === high ? low : `${low}–${high}`}; };
  const cell = (t, b) => {
    const i = at(t, b), e = d.walk[i], product = (e ? e.product : b * penalty(t)).toFixed(3);
    const what = `Within one ${t}, GPUs with a PM score up to ${scores(b).high}: predicted slowdown ${product}, by the mean of the bin.`;
    const tried = e && (e.taken ? "the gang fits, so this was chosen." : e.passed_over ? "the gang fits, but would break up more free nodes, which are left to wider gangs." : `no ${t} had ${plural(d.gpus, "GPU")} for the gang.`);
    const text = e ? `${what} Free GPUs that match, up to that bin: ${e.free}. Try ${i + 1}: ${tried}` : `${what} Not tried: the gang fit at a cell with a smaller value.`;
    return h("button", {type: "button", className: e ? (e.taken ? "chosen" : "tried") : "not", ariaLabel: text, onclick: () => { told.textContent = text; }}, product, h("small", {ariaHidden: "true"}, e ? (e.taken ? "chosen" : `no. ${i + 1}`) : "not tried"));
  };
  return [h("h3", {}, "Locality × variability"), h("p", {className: "soft"}, "A row is how far apart the GPUs may be. A column is a bin of GPUs with similar PM scores (1 is the median): the slowest GPU may be in that bin. A cell is the penalty × the mean of the bin, the predicted slowdown. PAL tries the cells in ascending order and takes the first at which the gang fits; but it prefers a fuller node to an emptier one if that costs little more."),
    h("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: "L×V matrix"}, h("table", {className: "lv"}, h("caption", {className: "hidden"}, "L×V matrix: predicted slowdown by locality and PM score"),
      h("thead", {}, h("tr", {}, h("td", {}), bins.map(b => h("th", {scope: "col"}, scores(b).range)))), h("tbody", {}, rows.map(t => h("tr", {}, h("th", {scope: "row"}, t), bins.map(b => h("td", {}, cell(t, b)))))))),
    told, d.walk_omitted ? empty(`${plural(d.walk_omitted, "cell")} in the middle of this order ${d.walk_omitted === 1 ? "is" : "are"} not shown.`) : ""];
}
