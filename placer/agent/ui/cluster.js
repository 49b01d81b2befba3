// The state of the cluster, from the agent's stream: see docs/design/page.md.
import {goToActive, token} from "./dom.js";

export const classes = ["A", "B", "C", "D"];
export const classOf = (cell, k) => cell >> 3 * k & 7;
const out = cell => cell >> 14; // why the GPU is out of service; 0 if it is not
// held: a job has the GPU. allocated leaves out GPUs that are out of service, so that sums count each GPU once.
export const held = cell => !!(cell & 1 << 12), allocated = cell => held(cell) && !out(cell), degraded = cell => !!(cell & 1 << 13) && out(cell) < 2;
export const unavailable = cell => out(cell) === 1, quarantined = cell => out(cell) === 2, unhealthy = cell => out(cell) === 3, free = cell => !out(cell) && !held(cell);

// Racks contain nodes, and a node has a cell for each GPU. idle: no placer is active. known: the state has arrived.
// hidden: the token may not read nodes, so there are no racks. lists differs whenever the agent's lists do.
const nothing = {lists: "", known: false, hidden: false, racks: [], byNode: new Map()};
export const cluster = {idle: false, ...nothing};

const listeners = new Set();
// listen calls f(what, data) at each event, until the returned function is called. For "cells", data is the changed
// racks.
export function listen(f) { listeners.add(f); return () => listeners.delete(f); }
const tell = (what, data) => { for (const f of [...listeners]) f(what, data); };
export function setIdle(idle) {
  if (idle === cluster.idle) return;
  cluster.idle = idle;
  tell("idle");
}

// nodeOf returns a GPU's node on the map. If two nodes have the same name, the map adds a part of the id to the
// name of the second.
export const nodeOf = g => cluster.byNode.get(`${g.node} (${(g.node_id ?? "").slice(0, 8)})`) ?? cluster.byNode.get(g.node);
export const nodes = () => [...cluster.byNode.values()];
export const gpus = nodes => nodes.reduce((n, node) => n + node.cells.length, 0);
export function count(nodes, f) {
  let n = 0;
  for (const node of nodes) for (const cell of node.cells) if (f(cell)) n++;
  return n;
}

// After a new connection, the agent sends all racks again; those with the same text have not changed.
let texts = [], changed = [];
function hearRack(text) {
  const rack = JSON.parse(text);
  if (texts[rack.at] === text) return;
  texts[rack.at] = text;
  changed.push(rack);
}
function hearState({racks, lists}) {
  const anew = !cluster.known || cluster.racks.length !== (racks ?? 0) || changed.length > 0;
  const listed = lists !== cluster.lists;
  for (const rack of changed) cluster.racks[rack.at] = rack;
  cluster.racks.length = texts.length = racks ?? 0;
  if (anew) {
    cluster.byNode = new Map(cluster.racks.flatMap(rack => rack.nodes.map(node => [node.name, Object.assign(node, {rack})])));
  }
  const data = changed;
  changed = [];
  Object.assign(cluster, {lists, known: true, hidden: racks === undefined});
  if (anew) tell("cells", data);
  if (listed) tell("jobs");
}

const pauses = (ms, signal) => new Promise(done => { const t = setTimeout(done, ms); signal.addEventListener("abort", () => { clearTimeout(t); done(); }, {once: true}); });

// follow reads the stream until signal aborts.
async function follow(signal) {
  for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 15000)) {
    try {
      changed = [];
      const r = await fetch("/v1/stream", {signal, redirect: "manual", headers: token.get() ? {"X-Nomad-Token": token.get()} : {}});
      if (r.type === "opaqueredirect") { goToActive(); return; }
      if (!r.ok) throw Object.assign(new Error((await r.text()).trim() || r.statusText), {status: r.status});
      const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const {value, done} = await reader.read();
        if (done) break;
        pause = 500;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const [, event, data] = /^event: (\w+)\ndata: (.*)$/s.exec(part) ?? [];
          if (event === "trouble") { tell("trouble", JSON.parse(data).trouble); continue; }
          if (event === "rack") { hearRack(data); continue; }
          if (event === "state") hearState(JSON.parse(data));
          tell("alive");
        }
      }
      pause = 50; // a stream ends after a minute, so that the agent checks the token again
    } catch (e) {
      if (signal.aborted) return;
      tell("trouble", e.status ? e.message : "The agent does not answer. Trying again …");
      if (e.status === 403) tell("denied", e.message);
    }
    await pauses(pause, signal);
  }
}

let leave = () => {};
function join() {
  leave();
  const abort = new AbortController();
  leave = () => abort.abort();
  follow(abort.signal);
}

// restart reads everything again, because a new token may see other data.
export function restart() { texts = []; Object.assign(cluster, nothing, {racks: [], byNode: new Map()}); join(); }

// run follows the stream while the tab is visible.
export function run() {
  const follows = () => document.hidden ? leave() : join();
  document.addEventListener("visibilitychange", follows);
  addEventListener("pagehide", () => leave());
  addEventListener("pageshow", e => { if (e.persisted) follows(); });
  follows();
}
