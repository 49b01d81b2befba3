// The overview: the state of the cluster at a glance.
import {badge, command, empty, events, expected, failed, failures, gathered, get, gpuLink, h, jobLink, link, marked, nameOf, named, nodeLink, number, plural, put, query, time, whatOf} from "./dom.js";
import {allocated, classOf, classes, cluster, count, gpus, listen, nodeOf, nodes, quarantined, unhealthy} from "./cluster.js";
import {allocation, byDay, daysOf, ofDays, queued, samples, since} from "./charts.js";
import {clusterMap} from "./map.js";
import {none, said} from "./gpus.js";
import {notStarted, runs as counted, size} from "./jobs.js";

const few = 6, asked = 8 * few; // few: rows of a list; asked: GPUs to request
const unknown = "not known without an agent";

// tile shows a figure, its name, and a detail; kind is its colour.
const tile = (to, kind, figure, what, ...more) => h("a", {className: "tile " + kind, href: to},
  h("span", {className: "what"}, what), h("b", {}, figure), h("span", {className: "more"}, more));

const card = (title, more, body, width = "") =>
  h("section", {className: "card " + width}, h("h2", {}, title, more), body);
const good = (...text) => h("p", {className: "nothing"}, h("span", {}, text));
const todo = (...text) => h("p", {className: "nothing todo"}, h("span", {}, text));
const list = items => h("ul", {className: "list"}, items);
const item = (main, at, ...why) => h("li", {}, h("span", {className: "main"}, main),
  h("span", {className: "at"}, at), h("span", {className: "why"}, why));

// tiles are the three figures that an operator looks at first. Without an active placer, a count of 0 jobs is not
// reliable and is not shown.
function tiles(page) {
  const all = nodes(), n = gpus(all), on = count(all, allocated), not = notStarted.split(",");
  const parts = Object.entries({"unhealthy": count(all, unhealthy), "quarantined": count(all, quarantined), "away": all.filter(n => n.away).length, ...Object.fromEntries(not.map(s => [s, page?.states?.[s] ?? 0]))}).filter(([, c]) => c);
  const units = {unhealthy: "GPU", quarantined: "GPU", away: "node"}, trouble = parts.reduce((sum, [, c]) => sum + c, 0);
  const waiting = page?.states?.waiting ?? 0, oldest = page?.oldest;
  return [
    n ? tile("#/gpus", "info", [number(on), h("small", {}, ` of ${number(n)}`)], "GPUs allocated", on ? `${Math.round(100 * on / n)}\u2009%` : "no GPU is in use") : "",
    page ? tile("#/jobs?state=waiting", waiting ? "warn" : "", cluster.idle && !waiting ? "–" : number(waiting), "Jobs waiting", waiting ? [plural(page.waiting ?? 0, "GPU"), oldest ? [" · the longest: ", oldest.job, ", submitted ", time(oldest.submitted)] : ""] : cluster.idle ? unknown : "the queue is empty") : "",
    n || page ? tile("#/failures", trouble ? "crit" : "", number(trouble), "In trouble", trouble ? parts.map(([what, c]) => `${units[what] ? plural(c, units[what]) : plural(c, "job")} ${what}`).join(" · ") : "all GPUs and nodes are healthy, no job is stuck") : "",
  ];
}

const classed = j => j.class ? `class ${j.class}, ` : "";
const runs = page => page.jobs.length
  ? list(page.jobs.map(j => item(marked(j), plural(j.gpus, "GPU"), j.user ? j.user + ", " : "", classed(j), "submitted ", time(j.submitted), j.reason?.text ? ": " + j.reason.text : "")))
  : cluster.idle ? todo("Who runs is ", unknown, ".") : todo("No job runs. Submit one: ", command("nomad-pal run -detach JOB.nomad.hcl"));
const waits = page => page.jobs.length
  ? list(page.jobs.map(j => item([j.position ? j.position + ". " : "", jobLink(j)], size(j) === 1 ? "1 GPU" : `${size(j)} GPUs`, j.runs ? `${counted(j.runs)}: ` : j.user ? j.user + ": " : "", j.reason?.text ?? "", j.start_to ? [" – expected ", expected(j)] : "")))
  : cluster.idle ? todo("Who waits is ", unknown, ".") : good("Nobody waits.");

// worst returns the application class for which a GPU's PM score is highest, and this score.
const worst = g => classes.map(c => [c, g.pm_scores?.[c] ?? 0]).sort((a, b) => b[1] - a[1])[0];
const state = g => !g.healthy ? "unhealthy" : g.quarantine ? "quarantined" : "degraded";
// ails has a row for each node and reason. A row about an outlier names only jobs of the application class for which
// the GPU is slow, and jobs whose class the page does not know.
function ails(ill, slow, running) {
  const rows = new Map();
  for (const one of [...ill.map(g => [g, state(g), said(g)]), ...slow.filter(g => !ill.some(i => i.id === g.id)).map(g => [g, "outlier", worst(g)[0]])]) {
    const key = JSON.stringify([one[0].node_id, ...one.slice(1)]);
    rows.set(key, [...rows.get(key) ?? [], one]);
  }
  const of = new Map(running.map(j => [`${j.namespace}/${j.job}`, j.class]));
  const row = same => {
    const gpus = same.map(([g]) => g), [g, state, why] = same[0], one = gpus.length === 1, outlier = state === "outlier";
    const on = [...new Set(gpus.map(g => g.job).filter(job => job && (!outlier || (of.get(job) || why) === why)))];
    return item([nodeLink(nodeOf(g)?.name ?? g.node), " ", one ? gpuLink(g.id) : plural(gpus.length, "GPU")], badge(state),
      outlier ? `${one ? "" : "up to "}${Math.max(...gpus.map(g => worst(g)[1])).toFixed(2)} times as slow as the median for class ${why}: ${one ? "it slows its" : "they slow their"} whole gang` : why,
      on.length ? [" – ", named(on[0]), on.length > 1 ? ` and ${plural(on.length - 1, "more job")} are` : " is", one ? " on it" : " on them"] : "");
  };
  const all = [...rows.values()], left = all.slice(few).flat().length, cut = Math.max(ill.length, slow.length) === asked;
  const more = left ? `and ${cut ? "at least " : ""}${plural(left, "more GPU")}` : cut ? "and more" : "";
  if (all.length) return h("div", {}, list(all.slice(0, few).map(row)), more && empty(more));
  if (nodes().length && !count(nodes(), c => classes.some((_, k) => classOf(c, k))))
    return todo("No GPU has been measured, so none is known to be slow. See ", h("code", {}, "jobspecs/measure.nomad.hcl"), ".");
  return good("No GPU is unhealthy, quarantined, degraded or an outlier.");
}
function fails(not, allocs, es) {
  // A job that will not start has one line, with the reason. Failures of one job with the same cause and reason share
  // a line, which shows the last of them and their number.
  const told = new Set(not.jobs.map(nameOf)), last = new Map();
  for (const f of allocs) {
    const key = JSON.stringify([nameOf(f), f.cause, f.reason]);
    if (!told.has(nameOf(f))) last.set(key, {f: last.get(key)?.f ?? f, n: (last.get(key)?.n ?? 0) + 1});
  }
  const all = [
    ...not.jobs.map(j => item(jobLink(j), badge(j.state), j.reason?.text ?? "")),
    ...[...last.values()].slice(0, few).map(({f, n}) => item(jobLink(f), time(f.at), badge(f.cause), " ", n > 1 ? `${n} times, the last: ` : "", f.reason, " – ", nodeLink(f.node))),
    ...gathered(es.filter(e => !e.job || !told.has(nameOf(e)))).map(e => item(e.job ? jobLink(e) : [e.node ? nodeLink(e.node) : "", " ", e.gpus?.length > 1 ? plural(e.gpus.length, "GPU") : (e.gpus ?? []).map(gpuLink)], time(e.at), badge(e.kind), " ", whatOf(e), e.job && e.node ? [" – ", nodeLink(e.node)] : "")),
  ];
  return all.length ? list(all.slice(0, few)) : good("The agent knows of no failure.");
}

// reader calls read at once, every 10 minutes, and after changes of the cluster or queue, at most every 5 s. If read
// returns false, because it has failed, reader calls it again a minute later.
function reader(read) {
  let timer, retry, last = 0, reading = false, again = false;
  async function now() {
    if (reading) { again = true; return; }
    reading = true; last = Date.now();
    clearTimeout(retry);
    if (!await read()) retry = setTimeout(now, 60e3);
    reading = false;
    if (again) { again = false; later(); }
  }
  const later = () => { clearTimeout(timer); timer = setTimeout(now, Math.max(0, last + 5000 - Date.now())); };
  const stop = listen(what => { if (what === "jobs" || what === "cells" || what === "idle") later(); });
  const rarely = setInterval(later, 600e3);
  now();
  return () => { stop(); clearTimeout(timer); clearTimeout(retry); clearInterval(rarely); };
}

export function overview() {
  const top = h("div", {className: "tiles"}), known = h("p", {className: "soft"});
  const place = h("div", {}, empty("Reading the cluster …")), mapCard = h("section", {className: "card"}, place);
  const use = allocation(), queue = queued(), month = byDay(30), monthSpot = h("div", {}, month.element);
  const spots = Object.fromEntries(["ail", "run", "wait", "fail"].map(k => [k, h("div", {}, empty("Reading …"))]));
  const beside = h("div", {className: "column w4"}, card("Slow and unhealthy GPUs", link("#/failures", "All"), spots.ail),
    card("What failed", link("#/failures", "All"), spots.fail));
  const column = h("div", {className: "column w8"}, mapCard, h("div", {className: "pair"}, card("Who runs", link("#/jobs?state=running", "All"), spots.run),
    card("Who waits, and why", link("#/jobs?state=waiting", "All"), spots.wait)));
  let map, closed = false, page = null;

  const drawTiles = () => put(top, tiles(page));
  function drawMap() {
    if (!cluster.known) return;
    drawTiles();
    const n = gpus(nodes());
    if (!n) { map?.close(); map = null; place.replaceChildren(h("h2", {}, "GPUs"), none()); return; }
    if (map) return;
    map = clusterMap(() => cluster.racks);
    place.replaceChildren(h("h2", {}, "GPUs", h("small", {}, `${plural(n, "GPU")} in ${plural(cluster.racks.length, "rack")}`)), map.element);
  }
  const stopMap = listen(what => { if (what === "cells") drawMap(); });

  const show = (spot, part, draw) => spots[spot].replaceChildren(
    part.some(p => p.status === "rejected") ? failed(part.find(p => p.status === "rejected").reason) : draw(...part.map(p => p.value)));
  const jobs = q => get("/v1/queue/page?" + query({...q, limit: few}));
  async function readSamples() {
    try {
      const all = await samples();
      if (closed) return;
      use.set(all); queue.set(all);
      known.textContent = all.length ? since(all) : "The agent has no sample yet: the charts begin within a minute after it becomes active.";
    } catch (e) {
      if (!closed) known.replaceChildren(failed(e));
    }
  }
  async function read() {
    const parts = await Promise.allSettled([
      readSamples(), jobs({state: "running", sort: "gpus", order: "desc"}), jobs({state: "waiting"}), get("/v1/queue/page?" + query({state: "waiting", sort: "submitted", limit: 1})), jobs({state: notStarted, sort: "submitted", order: "desc"}),
      get("/v1/gpus?" + query({trouble: true, limit: asked})), get("/v1/gpus?" + query({outliers: true, limit: asked})), failures(), events({kind: "lost,failed,rejected,quarantined,unhealthy", last: 8 * few})]);
    if (closed) return true;
    const [, running, waiting, oldest, not, ill, slow, allocs, es] = parts;
    if (running.value) page = {states: running.value.states, waiting: waiting.value?.gpus, oldest: oldest.value?.jobs[0]};
    show("run", [running], runs); show("wait", [waiting], waits); show("ail", [ill, slow], (i, s) => ails(i, s, running.value?.jobs ?? []));
    show("fail", [not, allocs, es], fails);
    drawTiles();
    return parts.every(p => p.status !== "rejected" || p.reason.status === 403); // a token's rights seldom change
  }
  // The usage of days changes slowly, so it is read every 10 minutes.
  async function readMonth() {
    try {
      const days = await get("/v1/usage?" + query({by: "day", since: new Date(Date.now() - 29 * 86400e3).toISOString().slice(0, 10) + "T00:00:00Z"}));
      if (closed) return;
      monthSpot.replaceChildren(days.length ? month.element : empty("The history has no GPU hours yet."));
      month.set(ofDays(days));
    } catch (e) {
      if (closed) return;
      monthSpot.replaceChildren(e.status === 501 ? todo("This agent keeps no history. To keep one, add ", h("code", {}, "history { database = \"/var/lib/nomad-pal/history.db\" }"), " to its configuration.") : failed(e));
    }
  }
  drawMap();
  const stop = reader(read), minute = setInterval(readSamples, 60e3), again = setInterval(readMonth, 600e3);
  readMonth();
  return {title: "Overview", close: () => { closed = true; stop(); clearInterval(minute); clearInterval(again); stopMap(); map?.close(); for (const c of [use, queue, month]) c.close(); }, element: [
    h("h1", {className: "hidden"}, "Overview"), top,
    h("div", {className: "grid"},
      card("Allocation", link("#/history", "Last day"), use.element, "w4 half"), card("Queue", link("#/jobs?state=waiting", "Who waits"), queue.element, "w4 half"),
      card("Last 30 days", [daysOf(), link("#/usage?span=30d", "Usage")], monthSpot, "w4"),
      column, beside),
    known]};
}
