// The frame around the pages: routes, the token dialog, the search, and the state of the agent.
import {$, clock, full, get, h, keepUp, rackPath, token, when, zone, zones} from "./dom.js";
import {cluster, listen, restart, run, setIdle} from "./cluster.js";
import {failuresPage, gpuPage, gpusPage, nodePage, rackPage, tenantsPage} from "./gpus.js";
import {jobPage} from "./job.js";
import {jobsPage} from "./jobs.js";
import {historyPage, usagePage} from "./history.js";
import {overview} from "./overview.js";
import {timelinePage} from "./gantt.js";
import {told} from "./actions.js";

const navigate = to => { location.hash = to; };
const routes = {
  "": overview, gpus: gpusPage,
  timeline: (_, params) => timelinePage(params, navigate), jobs: (_, params) => jobsPage(params, navigate), failures: failuresPage, history: historyPage, usage: (_, params) => usagePage(params, navigate), tenants: tenantsPage,
  job: ([namespace, id]) => jobPage(namespace, id, navigate), rack: ([datacenter, name]) => rackPage(datacenter, name), node: ([name]) => nodePage(name, navigate), gpu: ([id]) => gpuPage(id, navigate),
};

// On a narrow screen, a menu button shows the links to pages, the search and the settings.
function openMenu(open) {
  $("bar").classList.toggle("open", open);
  $("menu").setAttribute("aria-expanded", String(open));
}
$("menu").onclick = () => openMenu($("menu").getAttribute("aria-expanded") !== "true");
document.addEventListener("keydown", e => {
  if (e.key !== "Escape" || $("menu").getAttribute("aria-expanded") !== "true") return;
  openMenu(false);
  $("menu").focus();
});

let shown;
function route(byUser) {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?"), [name, ...parts] = path.split("/");
  let names;
  try { names = parts.map(decodeURIComponent); } catch { names = []; }
  shown?.close();
  told("");
  const make = Object.hasOwn(routes, name) && (parts.length === {job: 2, rack: 2, node: 1, gpu: 1}[name] || !["job", "rack", "node", "gpu"].includes(name)) && names.length === parts.length ? routes[name] : null;
  shown = make ? make(names, new URLSearchParams(search)) : {title: "Not found", element: [h("h1", {}, "There is no such page"), h("p", {}, h("a", {href: "#/"}, "Overview"))], close: () => {}};
  document.title = shown.title + " – nomad-pal";
  $("content").replaceChildren(...[shown.element].flat().filter(Boolean));
  openMenu(false);
  const of = {"": "", rack: "gpus", node: "gpus", gpu: "gpus", job: "jobs"}, at = "#/" + (of[name] ?? name);
  for (const a of document.querySelectorAll("header nav a")) if (a.getAttribute("href") === at) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  if (byUser && !$("content").contains(document.activeElement)) { $("content").focus({preventScroll: true}); scrollTo(0, 0); }
}

// The reader chooses local time or UTC. The page is then drawn again.
$("zone").replaceChildren(...Object.entries(zones).map(([v, t]) => h("option", {value: v, selected: zone.get() === v}, t)));
$("zone").onchange = e => { zone.set(e.target.value); route(); };

// If Nomad refuses the token, the dialog opens by itself, but only once.
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

// The search finds a rack or node by its name, a GPU by its id, and a job by a part of its name.
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

// idle shows a warning if no agent is active, with the time since then.
async function idle() {
  try {
    const a = await get("/v1/agent");
    setIdle(!a.working && !a.unknown);
    $("idle").hidden = !cluster.idle;
    $("idle").textContent = (a.since ? `No agent has been active since ${when(a.since)}` : "No agent has been active yet") + ": until an agent is active, no job with a gate starts." + (a.trouble ? ` The agent ${a.agent}: ${a.trouble}.` : "");
  } catch { /* the stream already reports an agent that does not answer */ }
}

// A page whose request failed while the agent did not answer is drawn again once the agent answers.
let stale = true, said = 0, troubled = false;
listen((what, data) => {
  const state = $("state");
  if (what === "idle") said = 0;
  if (what === "trouble") {
    $("trouble").textContent = data; $("trouble").hidden = false;
    state.textContent = "Not up to date"; state.className = "alert"; stale = troubled = true;
    return;
  }
  if (what === "denied") { if (!asked) { asked = true; askToken(data); } return; }
  if (stale || Date.now() - said > 60e3) {
    const now = new Date();
    state.textContent = (cluster.idle ? "No agent, " : "Live ") + clock(now); state.title = "Up to date at " + full(now);
    state.className = cluster.idle ? "idle" : ""; $("trouble").hidden = true; stale = false; said = Date.now();
  }
  if (troubled) { troubled = false; if ($("content").querySelector(".alert")) route(); }
});

addEventListener("hashchange", () => route(true));
run();
route();
idle();
setInterval(idle, 15e3);
setInterval(keepUp, 15e3);
