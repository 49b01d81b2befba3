// The last day: figures over time, and who had which GPU when.
import {empty, events, eventTable, failed, get, h, plural, s, table, when, zone} from "./dom.js";

const day = 86400e3, W = 900;
const hour = t => new Date(t).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", ...(zone.get() && {timeZone: zone.get()})});

// drawing can be scrolled where it is too narrow to be read.
const drawing = (label, svg) => h("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: label}, svg);

// axis draws round times of the reader's day under a drawing of a height.
function axis(svg, from, to, left, height) {
  const x = t => left + (t - from) / (to - from) * (W - left - 10), minutes = [1, 2, 5, 10, 15, 30, 60, 120, 180].find(n => (to - from) / (n * 60e3) <= 9) ?? 360, step = minutes * 60e3;
  const shift = zone.get() ? 0 : new Date(from).getTimezoneOffset() * 60e3;
  for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) svg.append(s("line", {x1: x(t), x2: x(t), y1: 0, y2: height, stroke: "var(--line)"}), s("text", {x: x(t), y: height + 14, "text-anchor": x(t) > W - 40 ? "end" : "middle"}, hour(t)));
  return x;
}

// lines draws one or more series over time, each with its own stroke, and says them in words.
function lines(title, samples, series) {
  const H = 150, from = new Date(samples[0].at).getTime(), to = Math.max(new Date(samples.at(-1).at).getTime(), from + 60e3);
  const top = Math.max(1, ...samples.flatMap(x => series.map(l => l.of(x)))), last = samples.at(-1);
  const text = `Since ${when(samples[0].at)}: ` + series.map(l => {
    const v = samples.map(l.of), low = Math.min(...v), high = Math.max(...v);
    return `${l.name}${series.length > 1 ? l.dash ? " (dashed)" : " (solid)" : ""} ${low === high ? "always " + low.toLocaleString() : `${low.toLocaleString()} to ${high.toLocaleString()}, now ${l.of(last).toLocaleString()}`}`;
  }).join("; ") + ".";
  const svg = s("svg", {viewBox: `0 0 ${W} ${H + 20}`, role: "img", "aria-label": `${title}. ${text}`}), x = axis(svg, from, to, 60, H), y = v => H - 4 - v / top * (H - 16);
  for (const v of [0, top]) svg.append(s("text", {x: 54, y: y(v) + 4, "text-anchor": "end"}, v.toLocaleString()));
  for (const l of series) svg.append(s("polyline", {points: samples.map(p => `${x(new Date(p.at)).toFixed(1)},${y(l.of(p)).toFixed(1)}`).join(" "), fill: "none", stroke: "var(--ink)", "stroke-width": 1.6, "stroke-dasharray": l.dash ?? ""}));
  return [h("h2", {}, title), drawing(title, svg), h("p", {className: "soft"}, text)];
}

export function historyPage() {
  const host = h("div", {}, empty("Reading the history …")), latest = h("div", {});
  let closed = false, timer;
  async function draw() {
    clearTimeout(timer);
    timer = setTimeout(draw, 60e3);
    try {
      const all = await get("/v1/history");
      if (closed) return;
      if (all.length < 2) host.replaceChildren(empty("The agent notes figures once a minute while it places, and keeps a day of them in memory. Come back in two minutes."));
      else host.replaceChildren(...[
        ...lines("GPUs", all, [{name: "allocated", of: x => x.allocated}, {name: "in all", of: x => x.gpus, dash: "6 4"}]),
        ...lines("Jobs that wait", all, [{name: "jobs that wait", of: x => x.waiting}]),
        ...lines("GPUs that these jobs request", all, [{name: "GPUs requested", of: x => x.requested}]),
        ...lines("Decisions", all, [{name: "gangs placed in a minute", of: x => x.placed}]),
      ]);
    } catch (e) { if (!closed) host.replaceChildren(failed(e)); }
    try {
      const es = await events({});
      if (!closed) latest.replaceChildren(es.length ? eventTable(es, "What the placer did, the latest first") : empty("The placer has done nothing yet that this token may know, or this agent does not place."));
    } catch (e) { if (!closed) latest.replaceChildren(failed(e)); }
  }
  draw();
  return {title: "History", element: [h("h1", {}, "The last day"), host, h("h2", {}, "What the placer did"), latest], close: () => { closed = true; clearTimeout(timer); }};
}

// gantt draws bars {row, from, to, text} over the last day, one line for each row, and has
// them as a table, too. Without from it began before the agent did; without to it goes on.
export function gantt(bars, caption) {
  const now = Date.now(), at = t => new Date(t).getTime(), kept = bars.filter(b => !b.none && !(b.to && at(b.to) < now - day));
  if (!kept.length) return empty("No job had it in the last day, as far as the agent remembers.");
  const from = Math.max(now - day, Math.min(now - 600e3, ...kept.map(b => b.from ? at(b.from) : now))), names = [...new Set(bars.map(b => b.row))], jobs = [...new Set(kept.map(b => b.text))];
  const svg = s("svg", {viewBox: `0 0 ${W} ${names.length * 22 + 20}`, role: "img", "aria-label": `${caption}: the table below says the same`}), x = axis(svg, from, now, 80, names.length * 22);
  names.forEach((name, i) => svg.append(s("text", {x: 74, y: i * 22 + 15, "text-anchor": "end"}, name)));
  for (const b of kept) {
    const x1 = x(Math.max(from, b.from ? at(b.from) : from)), x2 = x(b.to ? at(b.to) : now), y = names.indexOf(b.row) * 22 + 3, other = jobs.indexOf(b.text) % 2;
    const bar = s("rect", {x: x1, y, width: Math.max(2, x2 - x1), height: 17, rx: 2, fill: other ? "var(--free)" : "var(--allocated)"});
    bar.append(s("title", {}, span(b)));
    svg.append(bar);
    if (x2 - x1 > 40) { const t = s("text", {x: x1 + 4, y: y + 13}, b.text.slice(0, Math.floor((x2 - x1 - 8) / 6.5))); t.style.fill = other ? "#000" : "#fff"; svg.append(t); }
  }
  return h("div", {}, drawing(caption, svg), h("details", {}, h("summary", {}, `As a table: ${plural(kept.length, "bar")}`), table(caption, ["What", "Job", "From", "To"], kept.slice(0, 500).map(b => [b.row, b.text, b.from ? when(b.from) : "before the agent began to place", b.to ? when(b.to) : "now"]))));
}
const span = b => `${b.row}: ${b.text}, ${b.from ? "from " + when(b.from) : "since before the agent began to place"} to ${b.to ? when(b.to) : "now"}`;
