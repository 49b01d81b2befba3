// Which job had which GPU when: a Gantt chart, and the page Timeline.
import {clock, colourOf, dated, empty, failed, full, get, h, jobLink, mark, nameOf, placeOf, plural, query, s, table, when, zone} from "./dom.js";
import {cluster, gpus as count, listen, nodeOf, nodes} from "./cluster.js";
import {none} from "./gpus.js";

const day = 86400e3, left = 92, head = 38, most = 256; // GPUs of one chart

const brief = job => job.replace(/^default\//, "");
const span = b => `${b.row}: ${b.text}, ${b.from ? "from " + full(b.from) : "since before the agent became active"} to ${b.to ? full(b.to) : "now"}`;

// parsed returns the job with the name namespace/id, or false if the token may not see the job.
function parsed(name) {
  const cut = name.indexOf("/");
  return cut > 0 && !name.startsWith("(") && {namespace: name.slice(0, cut), job: name.slice(cut + 1)};
}

// during returns the uses as bars, one row for each GPU. The placer has no event for a GPU that Nomad chose, for
// example for a job without a gate, or for a replica that Nomad replaced. The bar of such a GPU begins when Nomad
// created the allocation. An open use of a GPU that the job does not hold never was one: Nomad chose another GPU.
export function during(gpus, uses, row = placeOf) {
  const bars = [], byGPU = new Map();
  for (const u of uses) for (const id of u.gpus) byGPU.set(id, [...byGPU.get(id) ?? [], u]);
  for (const g of gpus) {
    const holder = g.job && brief(g.job);
    const mine = (byGPU.get(g.id) ?? []).map(u => ({from: u.from, to: u.to, job: u.namespace && u, text: brief(u.namespace ? `${u.namespace}/${u.job}` : u.job)})).filter(u => u.to || u.text === holder);
    if (holder && mine.every(u => u.to)) mine.push({from: g.held_since, text: holder, job: parsed(g.job)});
    bars.push(...mine.map(u => ({...u, row: row(g)})));
    if (!mine.length) bars.push({row: row(g), none: true});
  }
  return bars;
}

// axis draws round times in the reader's zone, and the date at the start of the chart and of each day.
function axis(svg, x, from, to, width, height) {
  const span = to - from, room = width / 80, nowAt = x(to);
  const minutes = [1, 2, 5, 10, 15, 30, 60, 120, 180].find(n => span / (n * 60e3) <= room) ?? 360, step = minutes * 60e3;
  const shift = zone.get() ? 0 : new Date(from).getTimezoneOffset() * 60e3;
  const line = (t, kind, y1 = head - 6) => svg.append(s("line", {x1: x(t), x2: x(t), y1, y2: height, class: kind}));
  const text = (at, y, what, kind, anchor = "middle") => svg.append(s("text", {x: at, y, "text-anchor": anchor, class: kind}, what));
  let shown = dated(from);
  const first = Math.ceil((from - shift) / step) * step + shift;
  text(0, 12, shown, "date", "start");
  for (let t = first; t <= to; t += step) {
    const date = dated(t), begins = date !== shown;
    shown = date;
    line(t, begins ? "day" : "sep", begins ? 0 : undefined);
    if (begins && x(t) > 84 && x(t) < nowAt - 80) text(x(t) + 5, 12, date, "date", "start");
    if (x(t) < nowAt - 46) text(x(t), 28, clock(t), "", x(t) < 18 ? "start" : "middle");
  }
}

// blocks returns the bars with their row numbers. Bars of one job at the same times in adjacent rows become one.
function blocks(kept, names) {
  const at = new Map(names.map((n, i) => [n, i])), out = [], open = new Map();
  for (const b of [...kept].sort((a, b) => at.get(a.row) - at.get(b.row))) {
    const row = at.get(b.row), key = `${b.text}|${b.from ?? ""}|${b.to ?? ""}`, last = open.get(key);
    if (last && last.row + last.rows === row) { last.rows++; continue; }
    const block = {...b, row, rows: 1, first: b.row};
    open.set(key, block);
    out.push(block);
  }
  return out;
}

// gantt draws bars {row, from, to, text} over the last day, one line for each row, and a table of the bars below.
// A bar without from began before the first event that the agent keeps; a bar without to has not ended. label(row)
// is the text beside a row; a click on a bar calls open(job).
export function gantt(bars, caption, {label = row => row, open} = {}) {
  const now = Date.now(), at = t => new Date(t).getTime(), kept = bars.filter(b => !b.none && !(b.to && at(b.to) < now - day));
  if (!kept.length) return empty("The agent knows of no job that had a GPU here in the last day.");
  const from = Math.max(now - day, Math.min(now - 600e3, ...kept.map(b => b.from ? at(b.from) : now)));
  const names = [...new Set(bars.map(b => b.row))], high = Math.max(7, Math.min(22, Math.floor(640 / names.length)));
  const host = h("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption});
  const jobOf = b => b.job ? nameOf(b.job) : b.text, jobs = new Map(kept.map(b => [jobOf(b), b]));
  const all = blocks(kept, names), height = head + names.length * high + 4;
  // Only the bars scroll, not the names of the rows. A narrow screen begins with the latest bars.
  const beside = s("svg", {width: left, height, "aria-hidden": "true"});
  let width = 0, texts = [];
  function draw() {
    const svg = s("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${caption}: the table below says the same`});
    const x = t => (t - from) / (now - from) * (width - 4);
    beside.replaceChildren();
    let stripe = 0;
    names.forEach((name, i) => {
      const text = label(name, i), y = head + i * high;
      if (!text) return;
      let rows = 1;
      while (i + rows < names.length && !label(names[i + rows], i + rows)) rows++;
      for (const part of [beside, svg]) part.append(s("line", {x1: 0, x2: Math.max(left, width), y1: y - .5, y2: y - .5, class: "sep"}));
      if (stripe++ % 2) for (const part of [beside, svg]) part.append(s("rect", {x: 0, y, width: Math.max(left, width), height: rows * high, class: "stripe"}));
      beside.append(s("text", {x: left - 8, y: y + Math.max(11, rows * high / 2 + 4), "text-anchor": "end"}, text.length > 13 ? text.slice(0, 4) + "…" + text.slice(-8) : text));
    });
    axis(svg, x, from, now, width, height);
    texts = [];
    for (const b of all) {
      const begins = x(Math.max(from, b.from ? at(b.from) : from)), w = Math.max(5, x(b.to ? at(b.to) : now) - begins), x1 = Math.min(begins, x(now) - w);
      const y = head + b.row * high + 1, tall = b.rows * high - 2;
      const bar = s("rect", {x: x1, y, width: w, height: tall, rx: Math.min(3, w / 3), fill: colourOf(jobOf(b)), class: b.job && open ? "opens" : ""});
      bar.append(s("title", {}, span({...b, row: b.rows > 1 ? `${b.rows} GPUs from ${b.first} on` : b.first})));
      if (b.job && open) bar.onclick = () => open(b.job);
      svg.append(bar);
      const room = Math.floor((w - 10) / 6.8);
      if (room >= Math.min(5, b.text.length) && tall >= 16) {
        const t = s("text", {x: x1 + 6, y: y + tall / 2 + 4, class: "bar-text"}, b.text.length > room ? b.text.slice(0, room - 1) + "…" : b.text);
        t.style.fill = "#fff";
        texts.push({t, x1, last: x1 + w - 6 - 6.8 * Math.min(b.text.length, room)});
        svg.append(t);
      }
    }
    svg.append(s("line", {x1: x(now), x2: x(now), y1: head - 6, y2: height, class: "now"}), s("text", {x: width - 1, y: 28, "text-anchor": "end", class: "now"}, "now"));
    host.replaceChildren(svg);
    host.scrollLeft = width;
    keepSeen();
  }
  // keepSeen keeps each bar's name within the visible part of the bar, and hides a name that has no room.
  function keepSeen() {
    for (const {t, x1, last} of texts) {
      const begin = Math.max(x1 + 6, Math.min(host.scrollLeft + 6, last));
      t.setAttribute("x", begin);
      t.style.visibility = begin < host.scrollLeft ? "hidden" : "";
    }
  }
  host.onscroll = keepSeen;
  new ResizeObserver(([e]) => {
    const w = Math.max(430, Math.floor(e.contentRect.width));
    if (w !== width && e.contentRect.width) { width = w; draw(); }
  }).observe(host);
  const job = b => b.job ? jobLink(b.job) : b.text;
  const key = [...jobs].sort(([a], [b]) => a < b ? -1 : 1).slice(0, 24).map(([name, b]) => h("li", {}, mark(name), job(b)));
  return h("div", {}, h("p", {className: "soft range"}, `From ${when(from)} to now, ${when(now)}.`), h("div", {className: "lanes gantt"}, beside, host),
    jobs.size > 1 ? h("ul", {className: "keys jobs"}, key, jobs.size > key.length ? h("li", {}, `and ${plural(jobs.size - key.length, "more job")}`) : "") : "", h("details", {}, h("summary", {}, `As a table: ${plural(kept.length, "bar")}`), table(caption, ["What", "Job", "From", "To"],
    kept.slice(0, 500).map(b => [b.row, job(b), b.from ? when(b.from) : "before the agent became active", b.to ? when(b.to) : "now"]))));
}

export const toJob = navigate => j => navigate(`#/job/${encodeURIComponent(j.namespace)}/${encodeURIComponent(j.job)}`);

// timelinePage shows the GPUs of all racks of a small cluster, else of one rack.
export function timelinePage(params, navigate) {
  const host = h("div", {}, empty("Reading the cluster …")), choice = h("div", {className: "row"});
  const key = r => `${r.datacenter}/${r.name}`;
  let closed = false, timer, drawn = -1; // the number of GPUs
  async function draw() {
    clearTimeout(timer);
    timer = setTimeout(draw, 60e3);
    if (!cluster.known) return;
    drawn = count(nodes());
    if (!drawn) { host.replaceChildren(none()); return; }
    const wanted = params.get("rack") ?? (drawn > most ? key(cluster.racks[0]) : "");
    const racks = wanted ? cluster.racks.filter(r => key(r) === wanted) : cluster.racks;
    choice.replaceChildren(cluster.racks.length < 2 ? "" : h("label", {}, "Rack ", h("select", {onchange: e => navigate("#/timeline?" + query({rack: e.target.value}))},
      drawn <= most ? h("option", {value: "", selected: !wanted}, "all") : "", cluster.racks.map(r => h("option", {value: key(r), selected: key(r) === wanted}, r.name)))));
    if (!racks.length) { host.replaceChildren(empty("There is no such rack now.")); return; }
    const ask = new URLSearchParams(racks.flatMap(r => r.nodes).map(n => ["node", n.name])).toString();
    try {
      const [gpus, uses] = await Promise.all([get("/v1/gpus?" + ask), get("/v1/uses?" + ask)]);
      if (closed) return;
      const node = g => nodeOf(g)?.name ?? g.node, shown = gpus.slice(0, most);
      const row = g => `${node(g)} ${placeOf(g)}`, bars = during(shown, uses, row);
      const firsts = new Map(shown.filter(g => g.position === 0).map(g => [row(g), node(g)]));
      host.replaceChildren(h("section", {className: "card"}, gantt(bars, "Who had which GPU", {label: row => firsts.get(row) ?? "", open: toJob(navigate)})),
        gpus.length > shown.length ? empty(`The first ${shown.length} of ${plural(gpus.length, "GPU")}; a node's page shows its own.`) : "",
        empty("One line for each GPU; the lines of a node are together. A job has the same colour on all pages. Uses that ended before the agent became active are missing, and so are those older than its last 5,000 events."));
    } catch (e) { if (!closed) host.replaceChildren(failed(e)); }
  }
  const stop = listen(what => { if (what === "cells" && drawn !== count(nodes())) draw(); if (what === "jobs") { clearTimeout(timer); timer = setTimeout(draw, 5000); } });
  draw();
  return {title: "Timeline", element: [h("h1", {}, "Timeline"), h("p", {className: "soft"}, "Who had which GPU in the last day."), choice, host], close: () => { closed = true; stop(); clearTimeout(timer); }};
}
