// The state of the cluster, as the agent streams it: see docs/design/page.md.
import {ask} from "./dom.js";

export const classes = ["A", "B", "C", "D"];
export const classOf = (cell, k) => cell >> 3 * k & 7;
export const allocated = cell => !!(cell & 1 << 12), degraded = cell => !!(cell & 1 << 13);
const out = cell => cell >> 14; // of service
export const unavailable = cell => out(cell) === 1, quarantined = cell => out(cell) === 2, unhealthy = cell => out(cell) === 3, free = cell => !out(cell) && !allocated(cell);

// racks have nodes, nodes the numbers of their cells: first … first+gpus-1.
export const cluster = {version: 0, jobs: 0, known: false, hidden: false, racks: [], cells: new Uint16Array(0), byNode: new Map()};

const listeners = new Set();
// listen calls f with the numbers of the cells that changed, null for all, until the
// returned function is called.
export function listen(f) { listeners.add(f); return () => listeners.delete(f); }
const tell = (what, data) => { for (const f of [...listeners]) f(what, data); };

function take(m) {
  if (m.racks) {
    const bytes = atob(m.cells), cells = new Uint16Array(bytes.length / 2);
    for (let i = 0; i < cells.length; i++) cells[i] = bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8;
    let first = 0;
    cluster.byNode = new Map();
    for (const rack of m.racks) {
      rack.first = first;
      for (const node of rack.nodes) { node.first = first; node.rack = rack; first += node.gpus; cluster.byNode.set(node.name, node); }
      rack.gpus = first - rack.first;
    }
    cluster.racks = m.racks; cluster.cells = cells;
  } else if (m.cells) {
    for (let i = 0; i < m.cells.length; i += 2) cluster.cells[m.cells[i]] = m.cells[i + 1];
  }
  if (!m.from) cluster.hidden = !m.racks;
  const jobs = m.jobs !== cluster.jobs;
  Object.assign(cluster, {version: m.version, jobs: m.jobs, known: true});
  if (!m.from || m.cells) tell("cells", m.racks || !m.cells ? null : m.cells.filter((_, i) => i % 2 === 0));
  if (jobs) tell("jobs");
}

// nodeOf is a GPU's node on the map: where two nodes have one name, the second is told by
// its id.
export const nodeOf = g => cluster.byNode.get(`${g.node} (${(g.node_id ?? "").slice(0, 8)})`) ?? cluster.byNode.get(g.node);
export const cellOf = g => { const n = nodeOf(g); return n ? n.first + g.index : -1; };
export const count = (from, n, f) => { let c = 0; for (let i = from; i < from + n; i++) if (f(cluster.cells[i])) c++; return c; };

let abort = new AbortController();
// restart reads everything again: another token may see other things.
export function restart() { Object.assign(cluster, {version: 0, jobs: 0, known: false, hidden: false, racks: [], cells: new Uint16Array(0), byNode: new Map()}); abort.abort(); }

export async function run() {
  for (let pause = 500; ; pause = Math.min(2 * pause, 15000)) {
    abort = new AbortController();
    try {
      const r = await ask(`/v1/stream?version=${cluster.version}`, {signal: abort.signal});
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
          if (event === "state") {
            const m = JSON.parse(data);
            if (m.from && m.from !== cluster.version) { cluster.version = 0; throw new Error("a change is missing"); }
            take(m);
          }
          tell("alive");
        }
      }
      pause = 50; // it ends each minute, so that the token is judged again
    } catch (e) {
      if (abort.signal.aborted) { pause = 25; continue; }
      tell("trouble", e.status ? e.message : "The agent does not answer. Trying again …", e);
      if (e.status === 403) tell("denied", e.message);
    }
    await new Promise(done => { const t = setTimeout(done, pause); abort.signal.addEventListener("abort", () => { clearTimeout(t); done(); }); });
  }
}
