// Step charts of the last day, drawn by uPlot (uplot.js), and the samples that they show.
import {clock, get, h, query, when, zone} from "./dom.js";
/* global uPlot */

// samples are those of the last day, one a minute: the agent is asked for new ones only.
let kept = [];
const day = 86400e3;
export async function samples() {
  const after = kept.at(-1)?.at;
  kept = kept.concat(await get("/v1/history?" + query({after})));
  kept = kept.filter(x => Date.parse(x.at) > Date.now() - day);
  return kept;
}
export const forgetSamples = () => { kept = []; };

// gap: the agent was not at work when samples are further apart.
const gap = 150;

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// columns are a chart's data: times, and a value or none for each series.
function columns(all, series, how) {
  const out = [[], ...series.map(() => [])];
  let last;
  for (const x of all) {
    const t = Date.parse(x.at) / 1000;
    if (last && t - last > how.gap) { out[0].push(last + how.next); for (const c of out.slice(1)) c.push(null); }
    out[0].push(last = t);
    series.forEach((one, i) => out[i + 1].push(one.of(x)));
  }
  return out;
}

// said says a chart in words.
function said(all, series) {
  return `Since ${when(all[0].at)}: ` + series.map(one => {
    const v = all.map(one.of), low = Math.min(...v), high = Math.max(...v), say = n => n.toLocaleString("en");
    return `${one.name} ${low === high ? "always " + say(low) : `${say(low)} to ${say(high)}, now ${say(v.at(-1))}`}`;
  }).join("; ") + ".";
}

// chart draws series over time. A series has a name, of(sample), and a look: "area", "line" or
// "dash". The keys above say what is under the pointer, else the last. how says how far samples are
// apart at most (gap), how long one counts if the next is further away (next), and how a time is said.
const minutes = {gap, next: 60, say: clock};
export function chart(title, series, top = () => 0, how = minutes) {
  const plot = h("div", {className: "plot", role: "img", ariaLabel: title}), values = series.map(() => h("b", {}));
  const at = h("li", {}), keys = h("ul", {className: "keys"}, series.map((one, i) =>
    h("li", {className: {area: "k1", dash: "k2", line: "k3"}[one.look]}, h("i", {}), one.name, values[i])), at);
  const element = h("div", {className: "chart"}, keys, plot);
  let u, all = [], data;

  function tell(i) {
    const k = i ?? data?.[0].length - 1;
    values.forEach((b, n) => { b.textContent = data?.[n + 1]?.[k]?.toLocaleString("en") ?? "–"; });
    at.textContent = i === null || i === undefined ? "" : how.say(data[0][k] * 1000);
  }
  function make() {
    u?.destroy();
    const soft = style("--soft"), line = style("--line"), font = "12px " + style("--token-typography-font-stack-text");
    const look = {
      area: {stroke: style("--line1"), fill: style("--line1") + "2e", width: 2},
      line: {stroke: style("--line2"), width: 2}, dash: {stroke: soft, width: 1.5, dash: [6, 4]},
    };
    const axis = {stroke: soft, font, grid: {stroke: line, width: 1}, ticks: {show: false}};
    u = new uPlot({
      width: plot.clientWidth || 300, height: plot.clientHeight || 170, legend: {show: false},
      padding: [8, 12, 0, 0], ...(how === minutes && zone.get() && {tzDate: t => uPlot.tzDate(new Date(t * 1000), zone.get())}),
      cursor: {drag: {x: false, y: false}, y: false, points: {show: false}, ...(how === minutes && {sync: {key: "day"}})},
      scales: {x: {time: true, range: (_, from, to) => [from, Math.max(to, from + 600)]},
        y: {range: (_, low, high) => [0, Math.max(1, high * 1.08, top())]}},
      axes: [{...axis, grid: {show: false}, size: 26, space: 70, values: (_, ts) => ts.map(t => how.say(t * 1000))},
        {...axis, size: 52, space: 34, incrs: [1, 2, 5].flatMap(n => [0, 1, 2, 3, 4, 5].map(p => n * 10 ** p)).sort((a, b) => a - b),
          values: (_, vs) => vs.map(v => v.toLocaleString("en"))}],
      series: [{}, ...series.map(one => ({...look[one.look], paths: uPlot.paths.stepped({align: 1}), points: {show: false}}))],
      hooks: {setCursor: [v => tell(v.cursor.idx)]},
    }, data, plot);
  }
  const fit = new ResizeObserver(() => { if (u && plot.clientWidth) u.setSize({width: plot.clientWidth, height: plot.clientHeight}); else if (data && plot.clientWidth) make(); });
  fit.observe(plot);
  const dark = matchMedia("(prefers-color-scheme: dark)"), again = () => data && make();
  dark.addEventListener("change", again);
  return {
    element,
    set(now) {
      all = now;
      if (!all.length) return;
      data = columns(all, series, how);
      // A step needs a second point.
      if (data[0].length === 1) { data[0].push(data[0][0] + how.next); for (const c of data.slice(1)) c.push(c[0]); }
      plot.setAttribute("aria-label", `${title}. ${said(all, series)}`);
      if (u) u.setData(data); else if (plot.clientWidth) make();
      tell();
    },
    close() { fit.disconnect(); dark.removeEventListener("change", again); u?.destroy(); },
  };
}

export const utilisation = () => chart("GPUs", [{name: "allocated", look: "area", of: x => x.allocated}, {name: "in all", look: "dash", of: x => x.gpus}]);
export const queued = () => chart("Queue", [{name: "GPUs requested by jobs that wait", look: "area", of: x => x.requested}, {name: "jobs that wait", look: "line", of: x => x.waiting}], () => 4);
// since says from when the agent knows.
export const since = all => all.length ? `Since ${when(all[0].at)}: the agent at work keeps the last day in memory, one sample a minute.` : "";

// gained is what placement saved against packing by the samples, as predicted.
export function gained(all) {
  let hours = 0, asked = false;
  all.forEach((x, i) => {
    if (!x.slowdown_chosen) return;
    asked = true;
    const next = all[i + 1] ? Date.parse(all[i + 1].at) : Date.parse(x.at) + 60e3;
    const span = Math.min(gap * 1000, next - Date.parse(x.at)) / 3600e3;
    hours += x.slowdown_gpus * (x.slowdown_packed / x.slowdown_chosen - 1) * span;
  });
  return asked ? hours : null;
}
