// The overview: the state of the cluster at a glance.
import {badge, empty, events, expected, failed, failures, gathered, get, gpuLink, h, jobLink, link, marked, nameOf, named, nodeLink, plural, query, time, whatOf} from "./dom.js";
import {allocated, classOf, classes, cluster, count, degraded, listen, nodeOf, quarantined, unavailable, unhealthy} from "./cluster.js";
import {allocation, byDay, daysOf, gained, ofDays, queued, samples, since} from "./charts.js";
import {clusterMap, legend} from "./map.js";
import {none, said} from "./gpus.js";
import {notStarted, runs as counted, size} from "./jobs.js";
import {rackPath} from "./job.js";

const few = 6, asked = 8 * few, many = 2000; // few: rows of a list; asked: GPUs to request; many: with more GPUs than this, the map takes the whole width
const unknown = "not known without a placer";
const percent = x => Math.round(100 * x) + "\u2009%";
const number = n => n.toLocaleString("en");

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

function tiles(page, all) {
  const n = cluster.cells.length, on = count(0, n, allocated), states = page?.states ?? {};
  const ill = {unhealthy: count(0, n, unhealthy), quarantined: count(0, n, quarantined),
    unavailable: count(0, n, unavailable), degraded: count(0, n, degraded)};
  const sum = Object.values(ill).reduce((a, b) => a + b), last = all.at(-1);
  const not = notStarted.split(",").map(s => [s, states[s] ?? 0]).filter(([, c]) => c);
  const out = last?.outliers ?? {}, slow = Math.max(0, ...Object.values(out)), hours = gained(all);
  const parts = of => of.filter(([, c]) => c).map(([what, c]) => `${number(c)} ${what}`).join(" · ");
  // Without an active placer, a count of 0 is not reliable and is not shown.
  const jobs = (state, kind, what, n, more, none) => tile("#/jobs?state=" + state, cluster.idle && !n ? "" : kind, cluster.idle && !n ? "–" : number(n ?? 0), what, more || (cluster.idle ? unknown : none));
  const better = last?.slowdown_chosen ? 1 - last.slowdown_chosen / last.slowdown_packed : null;
  return [
    n ? tile("#/gpus", "info", percent(on / n), "Allocated", `${number(on)} of ${number(n)} GPUs`) : "",
    page ? jobs("running", "good", "Running jobs", states.running, page.running ? `on ${plural(page.running, "GPU")}` : "", parts(["starting", "stopping", "completing", "native"].map(s => [s, states[s]])) || (on ? "other jobs hold GPUs" : "no GPU is in use")) : "",
    page ? jobs("waiting", states.waiting ? "warn" : "", "Waiting jobs", states.waiting, page.waiting ? `${plural(page.waiting, "GPU")}${page.first ? "; next: " + page.first.job : ""}` : "", "the queue is empty") : "",
    page ? jobs(notStarted, not.length ? "crit" : "", "Stuck or failed", not.reduce((a, [, c]) => a + c, 0), parts(not), "no job is stuck") : "",
    n ? tile("#/failures", ill.unhealthy ? "crit" : sum ? "warn" : "", number(sum), "GPUs in trouble", parts(Object.entries(ill)) || "all are healthy") : "",
    n && last ? tile("#/failures", slow ? "warn" : "", number(slow), "Outliers", slow ? "GPUs: " + parts(Object.entries(out).map(([c, x]) => ["for class " + c, x])) : "no GPU is far slower") : "",
    n && last ? tile("#/history", better > 0.001 ? "good" : "", better === null ? "–" : percent(better), "Faster than packing",
      better === null ? "no running gang to compare" : `predicted; ${hours >= 0.05 ? number(Number(hours.toPrecision(2))) + " GPU hours saved" : `slowdown ${last.slowdown_chosen.toFixed(2)}, packed ${last.slowdown_packed.toFixed(2)}`}`) : "",
  ];
}

const classed = j => j.class ? `class ${j.class}, ` : "";
const runs = page => page.jobs.length
  ? list(page.jobs.map(j => item(marked(j), plural(j.gpus, "GPU"), j.user ? j.user + ", " : "", classed(j), "submitted ", time(j.submitted), j.reason?.text ? ": " + j.reason.text : "")))
  : cluster.idle ? todo("Who runs is ", unknown, ".") : todo("No job runs. Submit one: ", h("code", {}, "nomad-pal run -detach JOB.nomad.hcl"));
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
  if (cluster.cells.length && cluster.cells.every(c => classes.every((_, k) => !classOf(c, k))))
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

export function overview(navigate) {
  const top = h("div", {className: "tiles"}), known = h("p", {className: "soft"});
  const place = h("div", {}, empty("Reading the cluster …")), mapCard = h("section", {className: "card"}, place);
  const use = allocation(), queue = queued(), month = byDay(30), monthSpot = h("div", {}, month.element);
  const spots = Object.fromEntries(["ail", "run", "wait", "fail"].map(k => [k, h("div", {}, empty("Reading …"))]));
  // The lists of unhealthy GPUs and failures are beside a small map, and below a large one.
  const beside = h("div", {className: "column w4"}, card("Slow and unhealthy GPUs", link("#/failures", "All"), spots.ail),
    card("What failed", link("#/failures", "All"), spots.fail));
  const column = h("div", {className: "column w8"}, mapCard, h("div", {className: "pair"}, card("Who runs", link("#/jobs?state=running", "All"), spots.run),
    card("Who waits, and why", link("#/jobs?state=waiting", "All"), spots.wait)));
  let map, closed = false, all = [], page = null, drawn = 0;

  const drawTiles = () => top.replaceChildren(...tiles(page, all).filter(Boolean));
  function drawMap() {
    if (!cluster.known) return;
    if (page) drawTiles();
    const n = cluster.cells.length;
    map?.close(); map = null; drawn = n;
    column.className = "column " + (n > many ? "w12" : "w8");
    beside.className = n > many ? "pair w12" : "column w4";
    if (!n) { place.replaceChildren(h("h2", {}, "GPUs"), none()); return; }
    map = clusterMap({racks: cluster.racks, height: n > many ? 900 : 420, label: `${plural(n, "GPU")} in ${plural(cluster.racks.length, "rack")}`,
      open: (rack, node) => navigate(node ? "#/node/" + encodeURIComponent(node.name) : rackPath(rack))});
    place.replaceChildren(h("h2", {}, "GPUs", h("small", {}, `${plural(n, "GPU")} in ${plural(cluster.racks.length, "rack")}`)), legend(() => map.redraw()), map.element);
  }
  const stopMap = listen((what, changed) => { if (what === "cells" && (!changed || cluster.cells.length !== drawn)) drawMap(); });

  const show = (spot, part, draw) => spots[spot].replaceChildren(
    part.some(p => p.status === "rejected") ? failed(part.find(p => p.status === "rejected").reason) : draw(...part.map(p => p.value)));
  const jobs = q => get("/v1/queue/page?" + query({...q, limit: few}));
  async function readSamples() {
    try {
      all = await samples();
      if (closed) return;
      use.set(all); queue.set(all);
      known.textContent = all.length ? since(all) : "The agent has no sample yet: the charts begin within a minute after it becomes active.";
    } catch (e) {
      if (!closed) known.replaceChildren(failed(e));
    }
  }
  async function read() {
    const parts = await Promise.allSettled([
      readSamples(), jobs({state: "running", sort: "gpus", order: "desc"}), jobs({state: "waiting"}), jobs({state: notStarted, sort: "submitted", order: "desc"}),
      get("/v1/gpus?" + query({trouble: true, limit: asked})), get("/v1/gpus?" + query({outliers: true, limit: asked})), failures(), events({kind: "lost,failed,rejected,quarantined,unhealthy", last: 8 * few})]);
    if (closed) return true;
    const [, running, waiting, not, ill, slow, allocs, es] = parts;
    if (running.value) page = {...running.value, running: running.value.gpus, waiting: waiting.value?.gpus, first: waiting.value?.jobs[0]};
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
  const stop = reader(read), minute = setInterval(() => readSamples().then(drawTiles), 60e3), again = setInterval(readMonth, 600e3);
  readMonth();
  return {title: "Overview", close: () => { closed = true; stop(); clearInterval(minute); clearInterval(again); stopMap(); map?.close(); for (const c of [use, queue, month]) c.close(); }, element: [
    h("h1", {className: "hidden"}, "Overview"), top,
    h("div", {className: "grid"},
      card("Allocation", link("#/history", "Last day"), use.element, "w4 half"), card("Queue", link("#/jobs?state=waiting", "Who waits"), queue.element, "w4 half"),
      card("Last 30 days", [daysOf(), link("#/usage?span=30d", "Usage")], monthSpot, "w4"),
      column, beside),
    known]};
}
