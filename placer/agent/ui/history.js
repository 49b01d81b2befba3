// The last day: figures over time, and what the placer did.
import {empty, events, eventTable, failed, h} from "./dom.js";
import {chart, queued, samples, since, utilisation} from "./charts.js";

const slowdown = () => chart("Predicted slowdown", [
  {name: "as placed", look: "area", of: x => x.slowdown_chosen ?? null},
  {name: "as packing would place them", look: "line", of: x => x.slowdown_packed ?? null}]);
const placed = () => chart("Decisions", [{name: "gangs placed in a minute", look: "area", of: x => x.placed}], () => 4);
const troubles = () => chart("GPUs in trouble", [
  {name: "unhealthy", look: "area", of: x => x.unhealthy ?? 0},
  {name: "quarantined", look: "line", of: x => x.quarantined ?? 0},
  {name: "degraded", look: "dash", of: x => x.degraded ?? 0}], () => 4);

export function historyPage() {
  const note = h("p", {className: "soft"}, "Reading the history …"), latest = h("div", {});
  const charts = {Utilisation: utilisation(), Queue: queued(), "GPUs in trouble": troubles(),
    "Predicted slowdown of what runs": slowdown(), Decisions: placed()};
  let closed = false, timer;
  async function draw() {
    clearTimeout(timer);
    timer = setTimeout(draw, 60e3);
    try {
      const all = await samples();
      if (closed) return;
      note.textContent = all.length ? since(all) : "The agent has no sample yet: the charts begin within a minute of its placing.";
      for (const c of Object.values(charts)) c.set(all);
    } catch (e) { if (!closed) note.replaceChildren(failed(e)); }
    try {
      const es = await events({last: 100});
      if (!closed) latest.replaceChildren(es.length ? eventTable(es, "What the placer did, the latest first") : empty("The placer has done nothing yet that this token may know, or this agent does not place."));
    } catch (e) { if (!closed) latest.replaceChildren(failed(e)); }
  }
  draw();
  return {title: "History", close: () => { closed = true; clearTimeout(timer); for (const c of Object.values(charts)) c.close(); }, element: [
    h("h1", {}, "The last day"), note,
    h("div", {className: "grid"}, Object.entries(charts).map(([name, c], i) => h("section", {className: "card " + (i === 4 ? "w12" : "w6")}, h("h2", {}, name), c.element))),
    h("h2", {}, "What the placer did"), h("div", {className: "plain"}, latest)]};
}
