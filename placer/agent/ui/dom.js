// Functions that all parts of the page use: elements, times, requests.

export const $ = id => document.getElementById(id);

// h makes an HTML element. Text becomes text nodes, so names from Nomad are never markup.
export function h(tag, props = {}, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) if (k in e) e[k] = v; else e.setAttribute(k, v);
  e.append(...kids.flat(Infinity).filter(k => k !== undefined && k !== null && k !== false && k !== "").map(k => k instanceof Node ? k : String(k)));
  return e;
}

// s makes an SVG element.
export function s(tag, attrs = {}, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// command shows a command with a button that copies it. Over plain HTTP, browsers offer pages no clipboard: the button
// then selects the command.
export function command(text) {
  const code = h("code", {}, text), copy = h("button", {type: "button", className: "copy", ariaLabel: "Copy command: " + text, title: "Copy command", onclick: async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; } catch { getSelection().selectAllChildren(code); copy.textContent = "Selected"; }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  }}, "Copy");
  return h("span", {className: "command"}, code, " ", copy);
}
// commands shows a sentence of the agent, with the commands in it.
export const commands = text => text.split(/((?:(?<=: )|(?<=\())nomad(?:-pal)? [^()]+?(?=\.?$|\. [A-Z]|\)))/).map((part, i) => i % 2 ? command(part) : part);

// typing returns a function that calls act once it was not called again for a moment.
export function typing(act) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(act, 250); };
}

// put replaces what an element contains. The focus stays on the element with the same address or title.
export function put(host, ...kids) {
  const at = document.activeElement, key = e => e.getAttribute("href") || e.title, was = host.contains(at) && key(at);
  host.replaceChildren(...kids.flat(Infinity).filter(Boolean));
  if (was) [...host.querySelectorAll("a, button")].find(e => key(e) === was)?.focus({preventScroll: true});
}

// table makes a table; its caption is only for screen readers. A column whose head begins with # holds numbers.
// groups makes a row above the heads: each entry is a text and the number of columns that it spans.
export function table(caption, heads, rows, groups = []) {
  const number = heads.map(x => typeof x === "string" ? x.startsWith("#") : x.className === "n");
  const name = heads.map((x, i) => typeof x !== "string" ? x.dataset.label : number[i] ? x.slice(1) : x), label = [...name];
  for (const [i, [text]] of groups.entries()) {
    const at = groups.slice(0, i).reduce((sum, [, n]) => sum + n, 0); // on a card, a group's first label names the group
    if (text) label[at] = `${text} ${label[at].toLowerCase()}`;
  }
  const first = Math.max(0, number.indexOf(false));
  const head = (x, i) => typeof x === "string" ? h("th", {scope: "col", role: "columnheader", ...(number[i] && {className: "n"})}, name[i]) : x;
  const cell = (x, i) => { const td = h("td", {role: "cell", "data-label": label[i]}, x); td.className = [number[i] && "n", i === first && "first", td.textContent.length > 40 && "long"].filter(Boolean).join(" "); return td; };
  return h("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption}, h("table", {className: "cards", role: "table"}, h("caption", {className: "hidden"}, caption),
    h("thead", {role: "rowgroup"}, groups.length ? h("tr", {role: "row", className: "groups"}, groups.map(([text, n]) => text ? h("th", {scope: "colgroup", role: "columnheader", colSpan: n, ariaColSpan: n}, text) : h("td", {role: "cell", colSpan: n}))) : "", h("tr", {role: "row"}, heads.map(head))), h("tbody", {role: "rowgroup"}, rows.map(r => h("tr", {role: "row"}, r.map(cell))))));
}

// badge shows a state by a mark, a colour and a word.
const marks = {good: "●", info: "◐", warn: "▲", crit: "✕", rest: "○"};
const kinds = {
  good: ["running", "free", "healthy", "started", "complete"],
  info: ["starting", "committing", "allocated", "placed", "moved", "resized", "resubmitted"],
  warn: ["infrastructure", "unknown", "waiting", "completing", "stopping", "stopped", "lost", "degraded", "quarantined",
    "outlier", "requeued"],
  crit: ["unschedulable", "rejected", "failed", "unhealthy", "allocation", "user"],
};
const called = {allocation: "allocation failed", lost: "lost members", user: "the job itself"};
export function badge(state, title) {
  const kind = Object.keys(kinds).find(k => kinds[k].includes(state)) ?? "rest";
  return h("span", {className: "badge " + kind, ...(title && {title})},
    h("i", {ariaHidden: "true"}, marks[kind]), called[state] ?? state);
}

export const empty = (...text) => h("p", {className: "soft"}, text);
// A long name breaks anywhere, so that it makes no table or card wider than the screen.
export const link = (to, text) => h("a", {href: to, ...(String(text ?? to).length > 40 && {className: "long"})}, text ?? to);
export const jobLink = j => link(`#/job/${encodeURIComponent(j.namespace)}/${encodeURIComponent(j.job)}`, j.namespace === "default" ? j.job : `${j.namespace}/${j.job}`);
export const rackPath = r => `#/rack/${encodeURIComponent(r.datacenter)}/${encodeURIComponent(r.name)}`;
export const nodeLink = name => link(`#/node/${encodeURIComponent(name)}`, name);
// gpuLink shows a GPU's number on its node if it is known, else its id.
const places = new Map(), asked = new Set();
// placeOf names a GPU within its node: by nvidia-smi's number or, if unknown, by its PCI address or id. No two GPUs,
// parts or MIG instances of a node have the same name.
export function placeOf(g) {
  const [id, part] = g.id.split("::"), place = g.index ?? g.bus_id ?? short(id);
  return `GPU ${place}${id.startsWith("MIG-") ? " " + short(id) : ""}${part ? `, part ${part}` : ""}`;
}
export const gpuLink = id => h("a", {href: `#/gpu/${encodeURIComponent(id)}`, className: "id", title: id}, places.get(id) ?? short(id));
// learnGPUs asks the agent for the numbers of the GPUs in a list of {node, gpus}, for gpuLink.
export async function learnGPUs(list) {
  const nodes = [...new Set(list.filter(x => x.node && !asked.has(x.node) && x.gpus?.some(id => !places.has(id))).map(x => x.node))].slice(0, 64);
  for (const n of nodes) asked.add(n);
  if (nodes.length) await get("/v1/gpus?" + new URLSearchParams(nodes.map(n => ["node", n]))).catch(() => {}); // without an answer, ids are shown
}
// named links to a job by namespace/id. A job that the token may not see has no name, and gets no link.
export function named(name) {
  const cut = name.indexOf("/");
  return cut < 0 || name.startsWith("(") ? name : jobLink({namespace: name.slice(0, cut), job: name.slice(cut + 1)});
}
export const short = id => id.length > 20 ? id.replace(/^(.{16}).*?(::\d+)?$/, "$1…$2") : id; // a part of a GPU keeps its number
export const number = new Intl.NumberFormat("en").format; // much faster than toLocaleString
export const plural = (n, one) => `${number(n)} ${one}${n === 1 ? "" : "s"}`;

// Times are in the zone that the reader chose in the header, in the format of the commands.
export const zone = {get: () => localStorage.getItem("zone") || "", set: z => localStorage.setItem("zone", z)};
const zoneShort = z => new Intl.DateTimeFormat("en-GB", {timeZoneName: "short", ...z}).formatToParts(new Date()).find(p => p.type === "timeZoneName").value;
export const zones = {"": zoneShort() === "UTC" ? "UTC (local)" : `${zoneShort()} (local)`, UTC: "UTC"};
export const zoneName = () => zone.get() || Intl.DateTimeFormat().resolvedOptions().timeZone;
const inZone = () => zone.get() && {timeZone: zone.get()};
const date = {year: "numeric", month: "2-digit", day: "2-digit"};
const minute = {hour: "2-digit", minute: "2-digit", hourCycle: "h23"};
const format = (t, how) => new Date(t).toLocaleString("sv-SE", {...how, ...inZone()}); // as 2026-11-28 06:15
// clock is the time of day, dated the date. when is the time, with the date unless it is today. full has
// date, time, seconds and zone.
export const clock = t => format(t, minute);
export const dated = t => format(t, date);
export function when(t) {
  if (!t) return "";
  return dated(t) === dated(new Date()) ? clock(t) : format(t, {...date, ...minute});
}
export const full = t => t ? `${format(t, {...date, ...minute, second: "2-digit"})} ${zoneShort(inZone())}` : "";
// about formats a duration as the commands do: in the largest unit in which it is at least 2.
function about(s) {
  const [unit, n] = [["d", 86400], ["h", 3600], ["m", 60]].find(u => s >= 2 * u[1]) ?? ["s", 1];
  return Math.round(s / n) + unit;
}
function fromNow(t) {
  const s = (new Date(t) - Date.now()) / 1000;
  return s > 0 ? "in " + about(s) : about(-s) + " ago";
}
// moving makes an element whose text depends on the present time; keepUp writes all these texts again.
const texts = new WeakMap();
function moving(tag, props, text) {
  const e = h(tag, props, text());
  texts.set(e, text);
  return e;
}
export function keepUp() {
  for (const e of document.querySelectorAll("time, .word")) if (texts.has(e)) e.textContent = texts.get(e)();
}
export const time = t => t ? moving("time", {dateTime: t, title: full(t)}, () => fromNow(t)) : "";
// range shows the earliest and the latest expected time as one range.
export function range(from, to) {
  const until = t => Math.max(0, (new Date(t) - Date.now()) / 1000);
  return moving("span", {className: "word", title: `between ${full(from)} and ${full(to)}`}, () => {
    const far = about(until(to)), near = until(from) ? about(until(from)) : "0";
    return until(to) ? "in " + (near === far ? far : near + "–" + far) : "now";
  });
}
export const expected = j => j.start_to ? range(j.start_from, j.start_to) : "";

// Requests carry the reader's token. get asks with stale: it accepts a snapshot that is a second old, because the
// stream tells the page of each later change. An empty list may arrive as null.
export const token = {get: () => sessionStorage.getItem("token") || "", set: t => sessionStorage.setItem("token", t)};
// goToActive loads the page again, because this agent stands by and redirects the page to the active agent.
export const goToActive = () => location.reload();
class Refused extends Error { constructor(status, text) { super(text); this.status = status; } }
export async function ask(path, options = {}) {
  const headers = {...(options.body && {"Content-Type": "application/json"}), ...(token.get() && {"X-Nomad-Token": token.get()})};
  const r = await fetch(path, {...options, redirect: "manual", headers})
    .catch(e => { throw new Refused(0, `The agent did not answer (${e.message}).`); });
  if (r.type === "opaqueredirect") { goToActive(); throw new Refused(0, "Another agent is active."); }
  if (!r.ok) throw new Refused(r.status, (await r.text()).trim() || r.statusText);
  return r;
}
export async function get(path) {
  const answer = await (await ask(path + (path.includes("?") ? "&" : "?") + "stale=true")).json() ?? [];
  if (path.startsWith("/v1/gpus?")) for (const g of answer) places.set(g.id, placeOf(g));
  return answer;
}
export const query = q => new URLSearchParams(Object.entries(q).filter(([, v]) => v !== "" && v !== undefined && v !== false)).toString();

// failed shows why a request failed, and what to do.
export function failed(e) {
  const more = e.status === 403 ? [" ", h("button", {onclick: () => document.dispatchEvent(new CustomEvent("token", {detail: e.message}))}, "Give another token")] : [];
  return h("p", {className: "alert", role: "alert"}, e.message, more);
}

// colourOf returns a job's colour. It depends only on the job's name, so it is the same on all pages. White text on
// it is readable in the light and the dark scheme.
export function colourOf(job) {
  let n = 17;
  for (const c of job) n = Math.imul(n ^ c.codePointAt(0), 16777619);
  n = ((n ^ n >>> 15) >>> 0) % 24;
  return `oklch(${[".53 .15", ".45 .12", ".51 .05"][n % 3]} ${20 + 45 * Math.floor(n / 3)})`; // eight hues, each bright, dark and pale
}
// mark shows a job's colour beside its name.
export function mark(job) {
  const i = h("i", {className: "job-mark", ariaHidden: "true"});
  i.style.background = colourOf(job);
  return i;
}
export const nameOf = j => `${j.namespace}/${j.job}`;
export const marked = j => h("span", {className: "job"}, mark(nameOf(j)), jobLink(j));
// owner shows the user that a job names.
export const owner = user => user || h("span", {className: "soft", title: "The job has no user (pal_user)"}, "(none)");

// events returns the last events of the placer, the latest first. The agent sends them as lines of JSON.
export async function events(q) {
  const text = await (await ask("/v1/events?" + query(q))).text();
  return text.split("\n").filter(Boolean).map(line => JSON.parse(line)).reverse();
}
// failures returns the allocations that failed, the latest first.
export const failures = async () => (await get("/v1/failures")).reverse();
export const failureTable = list => table("Allocations that failed, the latest first", ["Time", "Cause", "Job", "Node", "GPUs", "Reason"], list.slice(0, 100).map(f =>
  [time(f.at), badge(f.cause), jobLink(f), nodeLink(f.node), firstGPUs(f.gpus), f.reason]));
export const firstGPUs = (gpus = []) => gpus.length > 4 ? plural(gpus.length, "GPU") : gpus.flatMap((g, i) => [i ? ", " : "", gpuLink(g)]);
// whatOf returns the text of an event without the parts that other columns show (node, state).
export const whatOf = e => e.node && e.gpus?.length ? e.text.replace(`on node ${e.node} `, "").replace(/^is unhealthy: /, "") : e.text;
// gathered merges consecutive events with the same text about GPUs of the same node.
export function gathered(list) {
  const out = [];
  for (const e of list) {
    const last = out.at(-1);
    if (last?.gpus?.length && e.gpus?.length && !e.job && ["kind", "job", "node", "text"].every(k => last[k] === e[k])) last.gpus = [...e.gpus, ...last.gpus];
    else out.push({...e});
  }
  return out;
}
export const eventTable = (list, caption) => table(caption, ["Time", "Kind", "Job", "Node", "GPUs", "Text"], gathered(list).slice(0, 100).map(e =>
  [time(e.at), badge(e.kind), e.job ? jobLink(e) : "", e.node ? nodeLink(e.node) : "", firstGPUs(e.gpus), whatOf(e)]));
