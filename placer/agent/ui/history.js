// The page History: charts of the last day, and what the placer did. The page Usage: who used the GPUs.
import {badge, empty, events, eventTable, failed, get, h, learnGPUs, link, marked, owner, query, table, typing, when} from "./dom.js";
import {allocation, byDay, chart, daysOf, ofDays, queued, samples, since} from "./charts.js";

const slowdown = () => chart("Predicted slowdown", [
  {name: "as placed", look: "main", of: x => x.slowdown_chosen ?? null},
  {name: "as packing would place them", look: "line", of: x => x.slowdown_packed ?? null}], {ratios: true});
const placed = () => chart("Decisions", [{name: "gangs placed in a minute", look: "area", of: x => x.placed}], {top: 4});
const waiting = () => chart("Waiting jobs", [{name: "jobs in the queue", look: "area", of: x => x.waiting}], {top: 4});
const troubles = () => chart("GPUs in trouble", [
  {name: "unhealthy", look: "area", of: x => x.unhealthy ?? 0},
  {name: "quarantined", look: "line", of: x => x.quarantined ?? 0},
  {name: "degraded", look: "dash", of: x => x.degraded ?? 0}], {top: 4});

export function historyPage() {
  const note = h("p", {className: "soft"}, "Reading the history …"), latest = h("div", {});
  const charts = {Allocation: allocation(), "GPUs requested": queued(), "Waiting jobs": waiting(), "GPUs in trouble": troubles(),
    "Predicted slowdown of what runs": slowdown(), Decisions: placed()};
  let closed = false, timer;
  async function draw() {
    clearTimeout(timer);
    timer = setTimeout(draw, 60e3);
    try {
      const all = await samples();
      if (closed) return;
      note.textContent = all.length ? since(all) : "The agent has no sample yet: the charts begin within a minute after it becomes active.";
      for (const c of Object.values(charts)) c.set(all);
    } catch (e) { if (!closed) note.replaceChildren(failed(e)); }
    try {
      const es = await events({last: 100});
      await learnGPUs(es);
      if (!closed) latest.replaceChildren(es.length ? eventTable(es, "What nomad-pal did, the latest first") : empty("This token sees no event of nomad-pal yet, or this agent is not active."));
    } catch (e) { if (!closed) latest.replaceChildren(failed(e)); }
  }
  draw();
  return {title: "History", close: () => { closed = true; clearTimeout(timer); for (const c of Object.values(charts)) c.close(); }, element: [
    h("h1", {}, "History"), h("p", {className: "soft"}, "The last day of the cluster, and what nomad-pal did."), note,
    h("div", {className: "grid"}, Object.entries(charts).map(([name, c]) => h("section", {className: "card w6"}, h("h2", {}, name), c.element))),
    h("h2", {}, "What nomad-pal did"), h("div", {className: "plain"}, latest)]};
}

// Usage: GPU hours by user, what was wasted and saved, and which jobs ran, from the agent's history.
const day = 86400e3;
const midnight = t => new Date(t.toISOString().slice(0, 10)); // days are in UTC
// spans are the periods to choose from: name, first day, and the day after the last (none: until now).
const spans = {
  "": ["this month", now => [new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1))]],
  last: ["last month", now => [new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 1)), new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1))]],
  "30d": ["last 30 days", now => [midnight(new Date(now - 29 * day))]],
  year: ["last 12 months", now => [new Date(Date.UTC(now.getUTCFullYear() - 1, now.getUTCMonth(), 1))]],
};
const columns = {user: "User", namespace: "Namespace", class: "Class", model: "GPU model", month: "Month"};
const filters = {user: "User", namespace: "Namespace", class: "Class", model: "GPU model"};
const states = ["pending", "running", "complete", "failed", "stopped", "unknown"];

const hours = n => n.toLocaleString("en", {maximumFractionDigits: Math.abs(n) < 10 ? 2 : 0});
const share = (part, all) => all ? `${(100 * part / all).toFixed(0)} %` : "–";
const factor = n => n ? n.toFixed(2) : "";
const long = s => s >= 7200 ? `${(s / 3600).toFixed(0)}h` : s >= 120 ? `${(s / 60).toFixed(0)}m` : `${(s ?? 0).toFixed(0)}s`;

// meanings explains the columns; docs/tasks/usage.md has the details.
const meanings = stops => h("details", {}, h("summary", {}, "What the columns mean"), h("dl", {className: "facts"}, [
  ["Used", "the time from placement to end of each allocation, for each of its GPUs"], ["Failed", "the GPU hours of allocations that failed or were lost"],
  ["In vain", "the GPU hours that members held while other members of their gang were missing"], ["Idle", "the GPU hours in which held GPUs ran nothing for at least 15 minutes"],
  ["Saved", "the GPU hours that packing would have used in addition, as predicted when the job was placed"], ["Ended", "the number of runs that ended; runs count on the day of their end, GPU hours on the day of their use, and days are in UTC"],
  ["Mean wait", "how long the runs that ended waited in the queue, on average"],
  ["Predicted slowdown", "1.2 means that the run takes 1.2 times as long on its GPUs as on median GPUs of one node"],
  ...stops ? [["Stops", "how often these runs were stopped for others (pal_preempt)"], ["Lost by stops", "the GPU hours that these stops cost: restarts, and the work since the last checkpoint"], ["Sooner by", "how much sooner these runs got GPUs because other jobs were stopped for them"]] : [],
].map(([what, text]) => [h("dt", {}, what), h("dd", {}, text)])));

const word = text => text ? h("span", {className: "word"}, text) : "";
// notes says why a run ended, what it lost when it was stopped for others, and what it gained when others were
// stopped for it.
const notes = r => [r.reason, r.stops && `stopped ${r.stops === 1 ? "once" : r.stops + " times"} for others, which cost it ${hours(r.lost_gpu_seconds / 3600)} GPU hours`,
  r.saved_wait_seconds > 0 && `got GPUs ${long(r.saved_wait_seconds)} sooner, because other jobs were stopped for it`].filter(Boolean).join("; ");
// waits returns how long a run has waited; for a run in the queue, the time until now.
const waits = r => long(r.state === "pending" ? Math.max(r.waited_seconds, (Date.now() - Date.parse(r.submitted)) / 1000) : r.waited_seconds);
function runTable(ran) {
  const seen = ran.some(r => r.seen_slowdown), users = ran.some(r => r.user);
  return table("Runs, the last submitted first", ["Job", ...users ? ["User"] : [], "State", "#GPUs", "Class", "GPU model", "Submitted", "#Waited", "Ended", "#Predicted slowdown", ...seen ? ["#Seen slowdown"] : [], "Notes"], ran.map(r =>
    [marked(r), ...users ? [owner(r.user)] : [], badge(r.state), r.gpus, r.class ?? "", word(r.model), word(when(r.submitted)), waits(r), word(when(r.ended)), factor(r.predicted_slowdown), ...seen ? [factor(r.seen_slowdown)] : [], notes(r)]));
}

export function usagePage(params, navigate) {
  const q = Object.fromEntries(["span", "by", "state", ...Object.keys(filters)].map(k => [k, params.get(k) || ""]));
  if (!spans[q.span]) q.span = "";
  const by = columns[q.by] ? q.by : "user";
  const change = more => navigate("#/usage?" + query({...q, ...more}));
  const choice = (name, label, options) => h("label", {}, label + " ", h("select", {onchange: e => change({[name]: e.target.value})},
    options.map(([v, t]) => h("option", {value: v, selected: q[name] === v}, t))));
  const texts = Object.keys(filters).map(k => [k, h("input", {value: q[k], size: 9})]);
  function filter() {
    for (const [k, i] of texts) q[k] = i.value.trim();
    history.replaceState(null, "", "#/usage?" + query(q));
    read();
  }
  for (const [, i] of texts) i.oninput = typing(filter);
  const form = h("form", {className: "row", onsubmit: e => { e.preventDefault(); filter(); }},
    choice("span", "Time", Object.entries(spans).map(([k, [t]]) => [k, t])),
    choice("by", "By", Object.entries(columns).map(([k, t]) => [k === "user" ? "" : k, t])),
    choice("state", "Runs", [["", "all"], ...states.map(s => [s, s])]),
    texts.map(([k, i]) => h("label", {}, filters[k] + " ", i)));

  const note = h("p", {className: "soft", role: "status"}, "Reading the usage …"), most = 50, figures = h("div", {}), lines = h("div", {className: "plain"}), runs = h("div", {className: "plain"});
  const days = byDay(7), body = h("div", {hidden: true}, figures, h("section", {className: "card"}, h("h2", {}, "By day", daysOf()), days.element),
    h("h2", {}, "By " + columns[by].replace(/^[A-Z](?=[a-z])/, c => c.toLowerCase())), lines, h("h2", {}, "Runs"), runs);
  let closed = false;

  async function ask() {
    const [since, until] = spans[q.span][1](new Date());
    const wanted = Object.fromEntries(Object.keys(filters).map(k => [k, q[k]]));
    const range = {...wanted, since: since.toISOString().slice(0, 19) + "Z", until: until && until.toISOString().slice(0, 19) + "Z"};
    const asked = ["", by, "day"].map(by => get("/v1/usage?" + query({...range, by})));
    const last = most => get("/v1/runs?" + query({...range, state: q.state, limit: most + 1})); // one more, to see whether there are more
    const text = query(q), [[all], of, each, ran] = await Promise.all([...asked, last(most)]);
    if (closed || text !== query(q)) return;
    body.hidden = !all && !ran.length;
    if (!all && !ran.length) {
      note.replaceChildren("This token sees no matching run in this time. ", h("button", {onclick: () => navigate("#/usage")}, "Show this month"));
      return;
    }
    note.textContent = "";
    show(all, of, each);
    showRuns(ran, most, last);
  }
  function showRuns(ran, most, last) {
    const more = h("button", {onclick: () => { more.disabled = true; last(4 * most).then(ran => closed || showRuns(ran, 4 * most, last), e => closed || more.replaceWith(failed(e))); }}, "Show more");
    runs.replaceChildren(...ran.length ? [runTable(ran.slice(0, most)), ran.length > most ? h("p", {className: "row soft"}, `These are the last ${most.toLocaleString("en")}. `, more) : ""] : [empty("No run in this state.")]);
  }
  function show(all, of, each) {
    all ??= {gpu_hours: 0, runs: 0, complete: 0, waited_hours: 0, failed_gpu_hours: 0, held_in_vain_gpu_hours: 0, idle_gpu_hours: 0, saved_gpu_hours: 0, stops: 0};
    figures.replaceChildren(h("dl", {className: "figures"}, [
      [hours(all.gpu_hours), "GPU hours"], [all.runs.toLocaleString("en"), "runs ended"], [share(all.complete, all.runs), "complete"],
      [all.runs ? long(all.waited_hours * 3600 / all.runs) : "–", "mean wait"],
      [share(all.failed_gpu_hours + all.held_in_vain_gpu_hours + all.idle_gpu_hours, all.gpu_hours), "wasted"], [hours(all.saved_gpu_hours), "GPU hours saved"]].map(([value, name]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
    days.set(ofDays(each));
    lines.replaceChildren(usageTable(of, all), meanings(all.stops));
  }
  // usageTable has a row for each user, tenant, class, model or month. It has columns about stops if any job was stopped.
  function usageTable(of, all) {
    const stops = all.stops > 0, least = by === "month" ? () => 0 : (a, b) => b.gpu_hours - a.gpu_hours;
    const name = x => by === "month" ? x.of[0] : x.of[0] ? link("#/usage?" + query({...q, [by]: x.of[0]}), x.of[0]) : by === "user" ? owner("") : "(none)";
    return table("Usage by " + columns[by], [columns[by], "#Used", "#Share", "#Failed", "#In vain", "#Idle", ...stops ? ["#Lost by stops"] : [], "#Saved", "#Ended", "#Failed runs", "#Mean wait", ...stops ? ["#Stops", "#Sooner by"] : []],
      of.toSorted(least).map(x => [name(x), hours(x.gpu_hours), share(x.gpu_hours, all.gpu_hours), hours(x.failed_gpu_hours), hours(x.held_in_vain_gpu_hours), hours(x.idle_gpu_hours), ...stops ? [hours(x.stops_lost_gpu_hours)] : [], hours(x.saved_gpu_hours),
        x.runs.toLocaleString("en"), x.failed.toLocaleString("en"), x.runs ? long(x.waited_hours * 3600 / x.runs) : "–", ...stops ? [x.stops.toLocaleString("en"), long(x.stops_saved_wait_hours * 3600)] : []]),
      [["", 1], ["GPU hours", stops ? 7 : 6], ["Runs", stops ? 5 : 3]]);
  }
  const read = () => ask().catch(e => {
    if (closed) return;
    if (e.status === 501) note.replaceChildren("This agent keeps no history. To keep one, add ", h("code", {}, "history { database = \"/var/lib/nomad-pal/history.db\" }"), " to its configuration.");
    else note.replaceChildren(failed(e));
  });
  read();
  return {title: "Usage", element: [h("h1", {}, "Usage"), form, note, body], close: () => { closed = true; days.close(); }};
}
