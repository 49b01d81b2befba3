"use strict";
const $ = id => document.getElementById(id);
const color = c => c ? `var(--c${Math.min(c, 5)})` : "var(--none)";
const make = (tag, props = {}, ...kids) => { const e = document.createElement(tag); Object.assign(e, props); e.append(...kids); return e; };
let gpus = [], jobs = [], tenants = [];

async function get(path) {
  const token = $("token").value;
  const r = await fetch(path, {headers: token ? {"X-Nomad-Token": token} : {}});
  if (!r.ok) throw new Error((await r.text()).trim() || r.statusText);
  return r.json();
}

async function refresh() {
  try {
    let agent;
    [gpus, jobs, tenants, agent] = await Promise.all([get("/v1/gpus"), get("/v1/queue"), get("/v1/tenants"), get("/v1/agent")]);
    idle(agent);
    gpus = gpus || []; jobs = jobs || []; tenants = tenants || [];
    $("state").textContent = "as of " + new Date().toLocaleTimeString();
    $("state").className = "soft";
    draw();
  } catch (e) {
    $("state").textContent = e.message;
    $("state").className = "error";
  }
}

// idle says since when no placer has been at work.
function idle(a) {
  $("idle").hidden = a.working || !!a.unknown;
  $("idle").textContent = (a.since ? `No placer has been at work since ${new Date(a.since).toLocaleString([], {dateStyle: "medium", timeStyle: "long"})}` : "No placer is at work, and none has been yet") +
    ": nothing starts until one is." + (a.trouble ? ` The agent ${a.agent}: ${a.trouble}.` : "");
}

function describe(g, k) {
  const score = g.pm_scores && g.pm_scores[k];
  return [g.id, g.device, score ? `PM score ${score.toFixed(3)}, class ${g.classes[k]} for ${k}` : `not measured for ${k}`,
    g.healthy ? "" : "unhealthy: " + (g.unhealthy || ""), g.degraded ? "degraded: " + g.degraded : "", g.quarantine ? "quarantined: " + (g.quarantine.reason || "") : "", g.job ? "runs " + g.job : "free"].filter(Boolean).join("\n");
}

function draw() {
  shares();
  const k = $("class").value, nodes = new Map();
  for (const g of gpus) { if (!nodes.has(g.node)) nodes.set(g.node, []); nodes.get(g.node).push(g); }
  $("map").replaceChildren(...[...nodes].map(([name, list]) => make("div", {className: "node"},
    make("label", {title: name, textContent: name}),
    ...list.map(g => {
      const e = make("span", {title: describe(g, k), className: "gpu" + (g.job ? " busy" : "") + (g.healthy ? "" : " sick") + (g.quarantine ? " kept" : "") + (g.degraded ? " degraded" : "")});
      e.style.background = color(g.classes && g.classes[k]);
      return e;
    }))));
  const count = f => gpus.filter(f).length;
  $("figures").replaceChildren(...[
    [gpus.length, "GPUs"], [count(g => g.job), "busy"], [count(g => g.available), "free"], [count(g => !g.healthy), "unhealthy"], [count(g => g.degraded), "degraded"],
    [count(g => g.pm_scores && g.pm_scores[k] >= 1.5), "outliers for " + k],
    [jobs.filter(j => j.position).length, "jobs waiting"], [jobs.filter(j => j.phase === "running").length, "running"],
  ].map(([n, what]) => make("div", {}, make("b", {textContent: n}), make("span", {textContent: what}))));
  $("legend").replaceChildren(...[1, 2, 3, 4, 5, 0].map(c => {
    const i = make("i", {className: "gpu"}); i.style.background = color(c);
    return make("span", {}, i, c ? `class ${c}${c === 1 ? " (fastest)" : ""}: ${count(g => g.classes && g.classes[k] === c)}` : "not measured");
  }), make("span", {}, make("i", {className: "gpu busy"}), "busy"), make("span", {}, make("i", {className: "gpu sick"}), "unhealthy"), make("span", {}, make("i", {className: "gpu degraded"}), "degraded"));
  dots(k);
  $("jobs").replaceChildren(...jobs.map(j => make("tr", {className: "job", onclick: () => explain(j)},
    ...[j.position || "", j.namespace === "default" ? j.job : j.namespace + "/" + j.job, j.phase, j.gpus, j.class || "", new Date(j.submitted).toLocaleString(), j.reason || ""]
      .map(t => make("td", {textContent: t})))));
}

// dots draws every GPU of each model on a line by its PM score.
function dots(k) {
  const models = new Map();
  for (const g of gpus) if (g.pm_scores && g.pm_scores[k]) { if (!models.has(g.device)) models.set(g.device, []); models.get(g.device).push(g); }
  const W = 900, low = 0.9, high = 1.5, x = s => 10 + (Math.min(Math.max(s, low), high) - low) / (high - low) * (W - 60);
  $("dots").replaceChildren(...[...models].map(([name, list]) => {
    const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg");
    svg.setAttribute("viewBox", `0 0 ${W} 74`); svg.setAttribute("width", "100%"); svg.setAttribute("role", "img"); svg.setAttribute("aria-label", name);
    const add = (tag, attrs, text) => { const e = document.createElementNS(ns, tag); for (const a in attrs) e.setAttribute(a, attrs[a]); if (text) e.textContent = text; svg.append(e); return e; };
    add("text", {x: 10, y: 12}, `${name}: PM score of ${list.length} GPUs`);
    for (let s = low; s <= high + 1e-9; s += 0.1) { add("line", {x1: x(s), x2: x(s), y1: 18, y2: 56, stroke: "var(--line)"}); add("text", {x: x(s) - 8, y: 70}, s >= high - 1e-9 ? "≥" + high.toFixed(1) : s.toFixed(1)); }
    list.forEach((g, i) => { const c = add("circle", {cx: x(g.pm_scores[k]), cy: 24 + (i * 7) % 29, r: 3.4, fill: color(g.classes[k]), stroke: "rgba(0,0,0,.35)"});
      const t = document.createElementNS(ns, "title"); t.textContent = describe(g, k); c.append(t); });
    return svg;
  }));
}

// shares lists what tenants hold and have used, if there is something to compare.
function shares() {
  $("shares").hidden = tenants.length < 2 && !tenants.some(t => t.quota || "limit" in t);
  $("tenants").replaceChildren(...tenants.map(t => make("tr", {}, ...[t.tenant, t.gpus, t.quota || "none", t.limit ?? "", t.gpu_hours.toFixed(1), t.times.toFixed(2)]
    .map(text => make("td", {textContent: text})))));
}

async function explain(j) {
  const title = make("h2", {textContent: "Why " + j.job});
  try {
    const e = await get(`/v1/job/${encodeURIComponent(j.job)}/explain?namespace=${encodeURIComponent(j.namespace)}`);
    $("why").replaceChildren(title, lv(e.decision), make("pre", {textContent: JSON.stringify(e, null, 2)}));
  } catch (err) { $("why").replaceChildren(title, make("p", {className: "error", textContent: err.message})); }
  $("why").scrollIntoView({behavior: "smooth"});
}

// lv shows the LV matrix in the order in which it was tried.
function lv(d) {
  if (!d || !d.walk || !d.walk.length) return make("p", {className: "soft", textContent: d && d.reason || ""});
  const rows = d.walk.map(w => make("tr", {}, ...[w.tier, w.bin.toFixed(3), w.product.toFixed(3), w.free, w.taken ? "chosen" : "does not hold the gang"].map(t => make("td", {textContent: t}))));
  return make("table", {}, make("thead", {}, make("tr", {}, ...["Locality", "Bin up to", "Penalty × bin", "Free GPUs", "Result"].map(t => make("th", {textContent: t})))), make("tbody", {}, ...rows));
}

$("class").onchange = draw;
$("token").value = sessionStorage.getItem("token") || "";
$("token").onchange = () => { sessionStorage.setItem("token", $("token").value); refresh(); };
refresh();
setInterval(refresh, 5000);
