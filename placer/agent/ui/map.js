// The map shows racks and their nodes, with a cell for each GPU; racks of a large cluster are bars.
import {h, number, plural, put, rackPath} from "./dom.js";
import {classes, classOf, cluster, count, degraded, gpus, held, listen, nodes, quarantined, unavailable, unhealthy} from "./cluster.js";

const most = 512; // with more GPUs, a rack is a bar
export const view = {by: null}; // what colours show: the speed for the application class of this number, or "why" a GPU is not usable

const reasons = {unhealthy: ["bad", "×"], quarantined: ["shut", "Q"], unavailable: ["away", "–"], degraded: ["weak", "!"]};
const reasonOf = (cell, node) => unhealthy(cell) ? "unhealthy" : quarantined(cell) ? "quarantined" : unavailable(cell) || node.away ? "unavailable" : degraded(cell) ? "degraded" : "";
const speeds = [0, 1, 2, 3, 4, 5, 6, 7].map(k => [`c${Math.min(k, 5)}`, k || "?"]), fine = ["fine", ""];

// look returns the class of a cell's colours, and the mark that says the same without colour.
function look(cell, node) {
  const why = reasonOf(cell, node);
  if (view.by === "why") return reasons[why] ?? fine;
  return why && why !== "degraded" ? reasons[why] : speeds[classOf(cell, view.by)];
}

function words(cell, node, i) {
  const measured = classes.map((c, k) => `${c} ${classOf(cell, k) || "not measured"}`).join(", ");
  return `GPU ${node.indexes?.[i] ?? i + 1}: ${[reasonOf(cell, node), held(cell) ? "allocated to a job" : ""].filter(Boolean).join(", ") || "free"}; variability classes: ${measured}`;
}
const sum = (all, n) => [plural(n, "GPU"), ...Object.entries({"allocated": held, unhealthy, quarantined, unavailable, degraded}).map(([what, f]) => [count(all, f), what]).filter(([k]) => k).map(([k, what]) => `${number(k)} ${what}`)].join(", ");

const cellOf = (cell, node, i, lit) => {
  const [colour, mark] = look(cell, node);
  return h("i", {className: ["cell", colour, held(cell) && "under", lit && !lit.get(node.name)?.has(i) && "dim"].filter(Boolean).join(" "), title: words(cell, node, i)}, mark);
};
const nodeOf = (node, lit) => h("a", {className: "node", href: `#/node/${encodeURIComponent(node.name)}`, ariaLabel: `${node.name}: ${node.away ? node.away + ", " : ""}${sum([node], node.cells.length)}`},
  h("span", {className: "at", title: node.name}, node.name, node.away ? h("small", {title: node.away}, " away") : ""), h("span", {className: "cells"}, node.cells.map((c, i) => cellOf(c, node, i, lit))));
const rackOf = (rack, lit) => h("section", {className: "rack"}, h("p", {}, h("a", {href: rackPath(rack)}, rack.name)), h("div", {className: "nodes"}, rack.nodes.map(n => nodeOf(n, lit))));

function barOf(rack) {
  const parts = new Map(), n = gpus(rack.nodes), said = sum(rack.nodes, n), away = rack.nodes.filter(n => n.away).length;
  for (const node of rack.nodes) for (const cell of node.cells) { const [colour] = look(cell, node); parts.set(colour, (parts.get(colour) ?? 0) + 1); }
  const bar = h("span", {className: "bar"}, [...parts].sort(([a], [b]) => a < b ? -1 : 1).map(([colour, n]) => { const part = h("i", {className: colour}); part.style.flexGrow = n; return part; }));
  const out = count(rack.nodes, c => unhealthy(c) || quarantined(c) || unavailable(c)), more = away ? `, ${plural(away, "node")} away` : "";
  return h("a", {className: "rack", href: rackPath(rack), title: said + more, ariaLabel: `Rack ${rack.name}: ${said}${more}`}, h("span", {className: "at"}, rack.name, out ? h("small", {className: "soft"}, ` ${number(out)} not usable`) : ""), bar);
}

const item = (colour, mark, text) => h("li", {}, h("span", {className: "chip " + colour, ariaHidden: "true"}, mark || "\u00a0"), " ", text);
// classKeys explains the colours of the variability classes.
export const classKeys = () => [item("c1", 1, "fastest"), item("c2", 2, ""), item("c3", 3, ""), item("c4", 4, ""), item("c5", "5…", "slowest"), item("c0", "?", "not measured")];

// clusterMap shows the racks that racks() returns, with a switch for its colours. lit() returns the GPUs that stand out, as
// places by the name of their node.
export function clusterMap(racks, lit = () => null) {
  view.by ??= count(nodes(), c => classOf(c, 0)) ? 0 : "why";
  const body = h("div", {}), keys = h("ul", {className: "legend"});
  const choice = [...classes.map((c, k) => [k, c, `speed for application class ${c}`]), ["why", "Why not usable", "why not usable"]].map(([by, text, title]) => [by, h("button", {type: "button", title: "Colour by " + title, onclick: () => { view.by = by; draw(); }}, text)]);
  function draw() {
    const all = racks(), single = gpus(all.flatMap(r => r.nodes)) <= most || all.length === 1;
    for (const [by, button] of choice) button.ariaPressed = String(view.by === by);
    const bad = Object.entries(reasons).filter(([what]) => view.by === "why" || what !== "degraded").map(([what, [colour, mark]]) => item(colour, mark, what));
    put(keys, view.by === "why" ? item("fine", "", "usable") : classKeys(), bad, single ? item("fine under", "", "allocated to a job") : "");
    body.className = "map" + (single && all.length <= 2 ? " wide" : "");
    put(body, all.map(r => single ? rackOf(r, lit()) : barOf(r)));
    performance.mark("map drawn");
  }
  const stop = listen(what => { if (what === "cells" && cluster.known) draw(); });
  draw();
  return {element: h("div", {}, h("div", {className: "row switch", role: "group", ariaLabel: "Colours of the map"}, h("span", {}, "Colour by speed for class"), choice.slice(0, -1).map(([, b]) => b), h("span", {}, "or"), choice.at(-1)[1]), keys, body), draw, close: stop};
}
