// The frame around the pages: routes, the token, what state the agent is in.
import {$, get, h, token, when, zone, zones} from "./dom.js";
import {cluster, listen, restart, run} from "./cluster.js";
import {failuresPage, gpuPage, nodePage, overview, rackPage, tenantsPage} from "./gpus.js";
import {jobPage, rackPath} from "./job.js";
import {jobsPage} from "./jobs.js";
import {historyPage} from "./history.js";

const navigate = to => { location.hash = to; };
const routes = {
  "": () => overview(navigate), jobs: (_, params) => jobsPage(params, navigate), failures: failuresPage, history: historyPage, tenants: tenantsPage,
  job: ([namespace, id]) => jobPage(namespace, id, navigate), rack: ([datacenter, name]) => rackPage(datacenter, name, navigate), node: ([name]) => nodePage(name), gpu: ([id]) => gpuPage(id),
};

let shown;
function route(byUser) {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?"), [name, ...parts] = path.split("/");
  let names;
  try { names = parts.map(decodeURIComponent); } catch { names = []; }
  shown?.close();
  const make = Object.hasOwn(routes, name) && (parts.length === {job: 2, rack: 2, node: 1, gpu: 1}[name] || !["job", "rack", "node", "gpu"].includes(name)) && names.length === parts.length ? routes[name] : null;
  shown = make ? make(names, new URLSearchParams(search)) : {title: "Not found", element: [h("h1", {}, "There is no such page"), h("p", {}, h("a", {href: "#/"}, "All GPUs"))], close: () => {}};
  document.title = shown.title + " – nomad-pal";
  $("content").replaceChildren(...[shown.element].flat().filter(Boolean));
  const at = {"": "#/", rack: "#/", node: "#/", gpu: "#/", job: "#/jobs"}[name] ?? "#/" + name;
  for (const a of document.querySelectorAll("header nav a")) if (a.getAttribute("href") === at) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  if (byUser && !$("content").contains(document.activeElement)) { $("content").focus({preventScroll: true}); scrollTo(0, 0); }
}

// Times: local or UTC; the page is redrawn.
$("zone").replaceChildren(...Object.entries(zones).map(([v, t]) => h("option", {value: v, selected: zone.get() === v}, t)));
$("zone").onchange = e => { zone.set(e.target.value); route(); };

// The token dialog opens by itself when Nomad refuses, once.
const dialog = $("token");
let asked = false;
function askToken(why) {
  if (dialog.open) return;
  $("token-why").hidden = !why;
  $("token-why").textContent = why ?? "";
  $("secret").value = token.get();
  dialog.showModal();
}
dialog.onclose = () => {
  if (!["save", "forget"].includes(dialog.returnValue)) return;
  token.set(dialog.returnValue === "save" ? $("secret").value.trim() : "");
  dialog.returnValue = ""; $("secret").value = ""; asked = false;
  restart(); route();
};
$("login").onclick = () => askToken();
document.addEventListener("token", e => askToken(e.detail));

// Find takes the name of a rack or node, the id of a GPU, or a part of a job's name.
const matches = q => { const out = []; for (const r of cluster.racks) { if (r.name.includes(q)) out.push(r.name); for (const n of r.nodes) if (n.name.includes(q)) out.push(n.name); if (out.length > 12) break; } return out.slice(0, 12); };
$("query").oninput = e => { const q = e.target.value.trim(); $("found").replaceChildren(...q.length < 2 ? [] : matches(q).map(m => h("option", {value: m}))); };
$("find").onsubmit = e => {
  e.preventDefault();
  const q = $("query").value.trim(), rack = cluster.racks.find(r => r.name === q);
  if (!q) return;
  if (cluster.byNode.has(q)) navigate("#/node/" + encodeURIComponent(q));
  else if (rack) navigate(rackPath(rack));
  else if (/^(GPU|MIG)-/.test(q)) navigate("#/gpu/" + encodeURIComponent(q));
  else navigate("#/jobs?search=" + encodeURIComponent(q));
};

// Since when no placer has been at work.
async function idle() {
  try {
    const a = await get("/v1/agent");
    $("idle").hidden = a.working || !!a.unknown;
    $("idle").textContent = (a.since ? `No placer has been at work since ${when(a.since)}` : "No placer is at work, and none has been yet") + ": nothing starts until one is." + (a.trouble ? ` The agent ${a.agent}: ${a.trouble}.` : "");
  } catch { /* the stream says that the agent does not answer */ }
}

let stale = true, said = 0;
listen((what, data) => {
  const state = $("state");
  if (what === "trouble") { state.textContent = data; state.className = "alert"; stale = true; return; }
  if (what === "denied") { if (!asked) { asked = true; askToken(data); } return; }
  if (stale || Date.now() - said > 60e3) { state.textContent = "Up to date: " + when(new Date(), false); state.className = "soft"; stale = false; said = Date.now(); }
});

addEventListener("hashchange", () => route(true));
run();
route();
idle();
setInterval(idle, 15e3);
