// The state of the cluster, from the agent's stream: see docs/design/page.md.
import {goToActive, token} from "./dom.js";
import {follow} from "./stream.js";

export const classes = ["A", "B", "C", "D"];
export const classOf = (cell, k) => cell >> 3 * k & 7;
const out = cell => cell >> 14; // why the GPU is out of service; 0 if it is not
// held: a job has the GPU. allocated leaves out GPUs that are out of service, so that sums count each GPU once.
export const held = cell => !!(cell & 1 << 12), allocated = cell => held(cell) && !out(cell), degraded = cell => !!(cell & 1 << 13) && out(cell) < 2;
export const unavailable = cell => out(cell) === 1, quarantined = cell => out(cell) === 2, unhealthy = cell => out(cell) === 3, free = cell => !out(cell) && !held(cell);

// Racks contain nodes; a node's cells have the numbers first … first+gpus-1. idle: no placer is active. known: the
// state has arrived. hidden: the token may not read nodes, so there are no racks.
export const cluster = {idle: false, version: 0, jobs: 0, known: false, hidden: false, racks: [], cells: new Uint16Array(0), byNode: new Map()};

const listeners = new Set();
// listen calls f(what, data) at each event, until the returned function is called. For "cells", data is the
// numbers of the changed cells, or null for all.
export function listen(f) { listeners.add(f); return () => listeners.delete(f); }
const tell = (what, data) => { for (const f of [...listeners]) f(what, data); };
export function setIdle(idle) {
  if (idle === cluster.idle) return;
  cluster.idle = idle;
  tell("idle");
}

function take(m) {
  if (m.racks) {
    let first = 0;
    cluster.byNode = new Map();
    for (const rack of m.racks) {
      rack.first = first;
      for (const node of rack.nodes) { node.first = first; node.rack = rack; first += node.gpus; cluster.byNode.set(node.name, node); }
      rack.gpus = first - rack.first;
    }
    cluster.racks = m.racks; cluster.cells = m.cells;
  } else if (m.cells) {
    for (let i = 0; i < m.cells.length; i += 2) cluster.cells[m.cells[i]] = m.cells[i + 1];
  }
  if (!m.from) cluster.hidden = !m.racks;
  const jobs = m.jobs !== cluster.jobs;
  Object.assign(cluster, {version: m.version, jobs: m.jobs, known: true});
  if (!m.from || m.cells) tell("cells", m.racks || !m.cells ? null : m.cells.filter((_, i) => i % 2 === 0));
  if (jobs) tell("jobs");
}

// nodeOf returns a GPU's node on the map. If two nodes have the same name, the map adds a part of the id to the
// name of the second.
export const nodeOf = g => cluster.byNode.get(`${g.node} (${(g.node_id ?? "").slice(0, 8)})`) ?? cluster.byNode.get(g.node);
export const cellOf = g => { const n = nodeOf(g); return n ? n.first + g.position : -1; };
export const count = (from, n, f) => { let c = 0; for (let i = from; i < from + n; i++) if (f(cluster.cells[i])) c++; return c; };

function hear(m) {
  if (m.standby) return goToActive();
  if (m.trouble) {
    tell("trouble", m.trouble);
    if (m.status === 403) tell("denied", m.trouble);
    return;
  }
  if (m.state) take(m.state);
  tell("alive");
}

// worker starts or joins the worker that all tabs share: a browser opens only six connections to the agent for all
// tabs together.
function worker() {
  if (!self.SharedWorker) return null;
  try {
    const url = new URL("stream.js", import.meta.url).href, trusted = self.trustedTypes?.createPolicy("worker", {createScriptURL: () => url});
    const w = new SharedWorker(trusted ? trusted.createScriptURL("") : url, {type: "module", name: "nomad-pal"});
    w.onerror = () => { alone = true; leave(); join(); };
    w.port.onmessage = ({data}) => hear(data);
    return w;
  } catch { return null; }
}

let one, alone = false, leave = () => {};
function join() {
  leave();
  one ??= worker();
  if (one && !alone) {
    one.port.postMessage({join: token.get()});
    leave = () => one.port.postMessage({});
    return;
  }
  const abort = new AbortController();
  leave = () => abort.abort();
  follow(token.get(), hear, abort.signal);
}

// restart reads everything again, because a new token may see other data.
export function restart() { Object.assign(cluster, {version: 0, jobs: 0, known: false, hidden: false, racks: [], cells: new Uint16Array(0), byNode: new Map()}); join(); }

// run follows the stream while the tab is visible.
export function run() {
  const follows = () => document.hidden ? leave() : join();
  document.addEventListener("visibilitychange", follows);
  addEventListener("pagehide", () => leave());
  addEventListener("pageshow", e => { if (e.persisted) follows(); });
  follows();
}
