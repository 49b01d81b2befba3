// What all parts of the page use: elements, times, requests.

export const $ = id => document.getElementById(id);

// h makes an element. Texts become text nodes: names from Nomad are never markup.
export function h(tag, props = {}, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) if (k in e) e[k] = v; else e.setAttribute(k, v);
  e.append(...kids.flat(Infinity).filter(k => k !== undefined && k !== null && k !== false && k !== "").map(k => k instanceof Node ? k : String(k)));
  return e;
}

// s makes an element of a drawing.
export function s(tag, attrs = {}, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// table has a caption for those who do not see it; a column whose name begins with # has
// numbers.
export function table(caption, heads, rows) {
  const number = heads.map(x => typeof x === "string" ? x.startsWith("#") : x.className === "n");
  const cell = (tag, x, i) => tag === "th" && x instanceof Element && x.tagName === "TH" ? x : h(tag, {...(number[i] && {className: "n"}), ...(tag === "th" && {scope: "col"})}, x);
  return h("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption}, h("table", {}, h("caption", {className: "hidden"}, caption),
    h("thead", {}, h("tr", {}, heads.map((x, i) => cell("th", typeof x === "string" && number[i] ? x.slice(1) : x, i)))),
    h("tbody", {}, rows.map(r => h("tr", {}, r.map((x, i) => cell("td", x, i)))))));
}

export const empty = (...text) => h("p", {className: "soft"}, text);
export const link = (to, text) => h("a", {href: to}, text ?? to);
export const jobLink = j => link(`#/job/${encodeURIComponent(j.namespace)}/${encodeURIComponent(j.job)}`, j.namespace === "default" ? j.job : `${j.namespace}/${j.job}`);
export const nodeLink = name => link(`#/node/${encodeURIComponent(name)}`, name);
export const gpuLink = (id, text) => link(`#/gpu/${encodeURIComponent(id)}`, text ?? short(id));
// named links a job by namespace/id; one that may not be known of has no page.
export function named(name) {
  const cut = name.indexOf("/");
  return cut < 0 || name.startsWith("(") ? name : jobLink({namespace: name.slice(0, cut), job: name.slice(cut + 1)});
}
export const short = id => id.length > 20 ? id.slice(0, 16) + "…" : id;
export const plural = (n, one) => `${n.toLocaleString()} ${one}${n === 1 ? "" : "s"}`;

// Times, in the zone that the reader chose.
export const zones = {"": "local", UTC: "UTC"};
export const zone = {get: () => localStorage.getItem("zone") || "", set: z => localStorage.setItem("zone", z)};
export function when(t, withDate = true) {
  if (!t) return "";
  return new Date(t).toLocaleString([], {...(withDate && {year: "numeric", month: "short", day: "numeric"}), hour: "2-digit", minute: "2-digit", timeZoneName: "short", ...(zone.get() && {timeZone: zone.get()})});
}
const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]], relative = new Intl.RelativeTimeFormat("en", {numeric: "always"});
export function fromNow(t) {
  const d = (new Date(t) - Date.now()) / 1000, [unit, n] = units.find(u => Math.abs(d) >= u[1]) ?? units[3];
  return relative.format(Math.round(d / n), unit);
}
export const time = t => t ? h("time", {dateTime: t, title: when(t)}, fromNow(t)) : "";
export function expected(j) {
  if (!j.start_to) return "";
  const from = new Date(j.start_from) < Date.now() + 60e3 ? "now" : fromNow(j.start_from);
  return h("span", {title: `between ${when(j.start_from)} and ${when(j.start_to)}`}, from, " to ", fromNow(j.start_to).replace(/^in /, ""), h("br"), h("span", {className: "soft"}, "by ", when(j.start_to)));
}

// Requests, with the token that the reader gave.
export const token = {get: () => sessionStorage.getItem("token") || "", set: t => sessionStorage.setItem("token", t)};
export class Refused extends Error { constructor(status, text) { super(text); this.status = status; } }
export async function ask(path, options = {}) {
  const r = await fetch(path, {...options, headers: token.get() ? {"X-Nomad-Token": token.get()} : {}});
  if (!r.ok) throw new Refused(r.status, (await r.text()).trim() || r.statusText);
  return r;
}
export const get = async path => (await ask(path)).json();
export const query = q => new URLSearchParams(Object.entries(q).filter(([, v]) => v !== "" && v !== undefined && v !== false)).toString();

// failed shows why something could not be read, and what to do.
export function failed(e) {
  const more = e.status === 403 ? [" ", h("button", {onclick: () => document.dispatchEvent(new CustomEvent("token", {detail: e.message}))}, "Give another token")] : [];
  return h("p", {className: "alert", role: "alert"}, e.message, more);
}

// events are lines of JSON: the last of what the placer did.
export async function events(q) {
  const text = await (await ask("/v1/events?" + query(q))).text();
  return text.split("\n").filter(Boolean).map(line => JSON.parse(line)).reverse();
}
export const eventTable = (list, caption) => table(caption, ["When", "What", "Job", "Node", "GPUs", "In words"], list.slice(0, 100).map(e =>
  [time(e.at), e.kind, e.job ? jobLink(e) : "", e.node ? nodeLink(e.node) : "", (e.gpus ?? []).slice(0, 4).flatMap(g => [gpuLink(g), " "]).concat((e.gpus ?? []).length > 4 ? `and ${e.gpus.length - 4} more` : ""), e.text]));
