// Step charts of the last day, drawn by uPlot (uplot.js), and the samples that they show.
import {clock, get, h, query, when, zone} from "./dom.js";
/* global uPlot */

// samples returns the samples of the last day, one a minute. It asks the agent only for new ones.
let kept = [];
const day = 86400e3;
export async function samples() {
  const after = kept.at(-1)?.at;
  kept = kept.concat(await get("/v1/history?" + query({after})));
  kept = kept.filter(x => Date.parse(x.at) > Date.now() - day);
  return kept;
}
export const forgetSamples = () => { kept = []; };

// inTurn runs functions one after the other, each in its own task. Drawing three charts in one task would block the
// page.
let turn = Promise.resolve();
const inTurn = f => { turn = turn.then(() => new Promise(done => setTimeout(() => { f(); done(); }))); };

// gap is in seconds: if two samples are further apart, the agent was not active between them.
const gap = 150;

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// columns returns a chart's data: the times, and for each series its values (null in a gap).
function columns(all, series, how) {
  const out = [[], ...series.map(() => [])];
  let last;
  for (const x of all) {
    const t = Date.parse(x.at) / 1000;
    if (last && t - last > how.gap) { out[0].push(last + how.next); for (const c of out.slice(1)) c.push(null); }
    out[0].push(last = t);
    series.forEach((one, i) => out[i + 1].push(one.of(x) ?? null));
  }
  return out;
}

// said describes a chart in words, for screen readers. A sample may lack a value.
function said(all, series) {
  return `Since ${when(all[0].at)}: ` + series.map(one => {
    const values = all.map(x => one.of(x) ?? null), known = values.filter(v => v !== null), say = v => v === null ? "unknown" : v.toLocaleString("en");
    if (!known.length) return `${one.name} unknown`;
    const low = Math.min(...known), high = Math.max(...known), now = values.at(-1);
    return `${one.name} ${low === high && low === now ? "always " + say(low) : `${say(low)} to ${say(high)}, now ${say(now)}`}`;
  }).join("; ") + ".";
}

// chart draws series over time. A series has a name, of(sample), and a look: "area", "main", "line" or
// "dash". The keys above show the values under the pointer, else the last values. Without ratios, the
// vertical axis has whole numbers, from 0 to at least top.
// how has these fields. In seconds: gap, the longest time between two samples; next, how long a sample
// counts before a gap; span, the minimum length of the time axis; incrs, the steps between its times.
// In pixels: half, half of the width of a time; space, the room for a time. say formats a time, and
// last labels the last value.
const side = 44; // pixels left and right of the plot
const minutes = {gap, next: 60, span: 600, say: clock, last: "", half: 18};
const dayLong = day / 1000;
const days = {gap: 1.5 * dayLong, next: dayLong, span: 0, last: "today", half: 34, space: 90, incrs: [1, 2, 3, 7, 14, 28].map(n => n * dayLong), say: t => new Date(t).toISOString().slice(0, 10)};
const steps = [1, 2, 5].flatMap(n => [0, 1, 2, 3, 4, 5].map(p => n * 10 ** p)).sort((a, b) => a - b);
export function chart(title, series, {top = 0, ratios, how = minutes} = {}) {
  const plot = h("div", {className: "plot", role: "img", ariaLabel: title}, "Reading …"), values = series.map(() => h("b", {}));
  const at = h("li", {}), keys = h("ul", {className: "keys", hidden: true}, series.map((one, i) =>
    h("li", {className: {area: "k1", main: "k1", dash: "k2", line: "k3"}[one.look]}, h("i", {}), one.name, values[i])), at);
  const element = h("div", {className: "chart"}, keys, plot);
  let u, all = [], data, closed = false;

  const brief = v => v?.toLocaleString("en", {maximumFractionDigits: ratios ? 2 : Math.abs(v) < 10 ? 2 : 0}) ?? "–";
  function tell(i) {
    const k = Math.min(i ?? Infinity, data?.[0].length - 2); // the last point only ends the last step
    values.forEach((b, n) => { b.textContent = brief(data?.[n + 1]?.[k]); });
    const stale = how === minutes && data && Date.now() / 1000 - data[0].at(-1) > how.gap; // the last sample is old
    at.textContent = (i ?? null) !== null ? how.say(data[0][k] * 1000) : stale ? "at " + how.say(data[0].at(-1) * 1000) : how.last;
  }
  // label is the text below the axis at a time. It is empty below the 0 of the vertical axis, and in the future.
  const label = (u, t) => t * 1000 > Date.now() || (t - u.scales.x.min) / (u.scales.x.max - u.scales.x.min) * (plot.clientWidth - 2 * side) < how.half ? "" : how.say(t * 1000);
  function make() {
    u?.destroy();
    plot.replaceChildren();
    const soft = style("--soft"), line = style("--line"), font = "12px " + style("--token-typography-font-stack-text");
    const look = {
      area: {stroke: style("--line1"), fill: style("--line1") + "2e", width: 2}, main: {stroke: style("--line1"), width: 2},
      line: {stroke: style("--line2"), width: 2}, dash: {stroke: soft, width: 1.5, dash: [6, 4]},
    };
    const axis = {stroke: soft, font, grid: {stroke: line, width: 1}, ticks: {show: false}}, zoned = how === minutes ? zone.get() : "UTC";
    u = new uPlot({
      width: plot.clientWidth || 300, height: plot.clientHeight || 170, legend: {show: false},
      padding: [8, side, 0, 0],
      ...(zoned && {tzDate: t => uPlot.tzDate(new Date(t * 1000), zoned)}),
      cursor: {drag: {x: false, y: false}, y: false, points: {show: false}, ...(how === minutes && {sync: {key: "day"}})},
      scales: {x: {time: true, range: (_, from, to) => how === minutes ? [from, Math.max(to, from + how.span, Date.now() / 1000)] : [Math.min(from, to - how.span), to]},
        y: {range: (_, low, high) => ratios ? [Math.min(1, low ?? 1) - .05, Math.max(1, high ?? 1) + .05] : [0, Math.max(1, high * 1.08, top)]}},
      axes: [{...axis, grid: {show: false}, size: 22, gap: 4, space: how.space ?? 70, ...(how.incrs && {incrs: how.incrs}), values: (u, ts) => ts.map(t => label(u, t))},
        {...axis, size: side, space: 34, values: (_, vs) => vs.map(v => v.toLocaleString("en")), incrs: ratios ? [.05, .1, .2, .5, ...steps] : steps}],
      series: [{}, ...series.map(one => ({...look[one.look], paths: uPlot.paths.stepped({align: 1}), points: {show: false}}))],
      hooks: {setCursor: [v => tell(v.cursor.idx)]},
    }, data, plot);
  }
  const fit = new ResizeObserver(() => { if (u && plot.clientWidth) u.setSize({width: plot.clientWidth, height: plot.clientHeight}); else if (data && plot.clientWidth && !closed) make(); });
  fit.observe(plot);
  const dark = matchMedia("(prefers-color-scheme: dark)"), again = () => data && make();
  dark.addEventListener("change", again);
  return {
    element,
    set(now) {
      all = now;
      keys.hidden = !all.length;
      if (!all.length) { if (!u) plot.textContent = "There is no data yet."; return; }
      data = columns(all, series, how);
      data[0].push(data[0].at(-1) + how.next); for (const c of data.slice(1)) c.push(c.at(-1)); // the last step's end
      plot.setAttribute("aria-label", `${title}. ${said(all, series)}`);
      if (u) u.setData(data); else inTurn(() => { if (!u && !closed && plot.clientWidth) make(); });
      tell();
    },
    close() { closed = true; fit.disconnect(); dark.removeEventListener("change", again); u?.destroy(); },
  };
}

export const allocation = () => chart("GPUs", [{name: "allocated", look: "area", of: x => x.allocated}, {name: "total", look: "dash", of: x => x.gpus}]);
export const queued = () => chart("Queue", [{name: "GPUs requested", look: "area", of: x => x.requested}], {top: 4});
// byDay charts the usage of each day. Its time axis has at least the given number of days.
export const byDay = least => chart("GPU hours of each day", [
  {name: "GPU hours used", look: "area", of: x => x.gpu_hours},
  {name: "wasted", look: "line", of: x => x.failed_gpu_hours + x.held_in_vain_gpu_hours + x.idle_gpu_hours}], {how: {...days, span: least * dayLong}});
// daysOf notes that days are in UTC, if the reader's days are not.
export const daysOf = () => zone.get() === "UTC" || !new Date().getTimezoneOffset() ? "" : h("small", {}, "UTC days");
export const ofDays = usage => usage.map(x => ({...x, at: x.of[0] + "T00:00:00Z"}));
// since is the note about when the agent's samples begin.
export const since = all => all.length ? `Since ${when(all[0].at)}: the active agent keeps the last day in memory, one sample a minute.` : "";
