// The map shows every GPU as a cell on a canvas. The document contains only the canvas, the text about
// the cell under the pointer, and the text that a screen reader reads at the cell with the focus.
import {h} from "./dom.js";
import {classes, classOf, cluster, count, degraded, free, held, listen, quarantined, unavailable, unhealthy} from "./cluster.js";

const sizes = [46, 40, 34, 30, 26, 22, 18, 14, 11, 8, 6, 5, 4, 3], perRow = 8, readable = 14, slice = 8;
export const view = {k: 0, use: true}; // what colours show: the use, or the variability classes for application class k

export function words(cell) {
  const cs = classes.map((c, k) => `${c}${classOf(cell, k) || "–"}`).join(" ");
  return `${[unhealthy(cell) && "unhealthy", quarantined(cell) && "quarantined", unavailable(cell) && "unavailable", degraded(cell) && "degraded", held(cell) && "allocated", free(cell) && "free"].filter(Boolean).join(", ")}; classes ${cs}`;
}

const font = "12px system-ui,sans-serif";

// clusterMap draws the racks. The cells in lit stand out. A click, or Enter, on a cell calls
// open(rack, node, index).
export function clusterMap({racks, lit = new Set(), open, height = 900, label}) {
  const canvas = h("canvas", {tabIndex: 0, role: "application", ariaLabel: label}), tip = h("div", {className: "tip", hidden: true});
  canvas.setAttribute("aria-roledescription", "map of GPUs");
  const live = h("p", {className: "hidden", ariaLive: "polite"});
  const host = h("div", {className: "map"}, canvas, tip, live, h("p", {className: "soft keyboard"}, "Arrow keys move from GPU to GPU, Page Up and Page Down from rack to rack, Enter opens."));
  let tiles = [], size = 3, width = 0, at = null, colours = {}, drawing = 0;
  const ctx = canvas.getContext("2d", {alpha: false});

  // stacksOf divides each rack's nodes into the given number of columns, and gives each node its first row.
  function stacksOf(columns) {
    return racks.flatMap(rack => {
      const each = Math.ceil(rack.nodes.length / columns), out = [];
      for (let from = 0; from < rack.nodes.length; from += each) {
        let rows = 0;
        const nodes = rack.nodes.slice(from, from + each).map(node => { const n = {node, row: rows}; rows += Math.ceil(node.gpus / perRow); return n; });
        out.push({rack, nodes, rows, first: nodes[0].node.first, name: from ? "" : rack.name});
      }
      return out;
    });
  }
  // The names of nodes get as much room as the widest one needs, up to 120 pixels. Measuring more than 500 names
  // takes too long, and a map of so large a cluster hardly ever shows them.
  const nodes = racks.flatMap(r => r.nodes);
  ctx.font = font;
  const nameRoom = nodes.length > 500 ? 120 : Math.min(120, 12 + Math.ceil(Math.max(0, ...nodes.map(n => ctx.measureText(n.name).width))));
  // The racks of a small cluster may have several columns, to fill the width.
  const columns = racks.length > 8 ? [1] : [1, 2, 3, 4], folded = columns.map(stacksOf);

  function layout() {
    const names = racks.map(r => r.name);
    let prefix = names.length > 1 ? names.reduce((a, b) => { let i = 0; while (i < a.length && a[i] === b[i]) i++; return a.slice(0, i); }) : "";
    prefix = prefix.replace(/[^-_./ ]*$/, "");
    let total = 0;
    for (size of sizes) {
      const nameWidth = size >= readable ? nameRoom : 0, w = nameWidth + perRow * size + (size >= readable ? 18 : 8), head = size >= readable ? 30 : racks.length > 1 ? 15 : 0;
      if (w > width + 18 && size > sizes.at(-1)) continue;
      const stacks = folded.findLast((_, i) => i === 0 || racks.length * columns[i] * w <= width + 18);
      let x = 0, y = 0, tallest = 0;
      tiles = stacks.map(({rack, nodes, rows, first, name}) => {
        if (x > 0 && x + w > width) { x = 0; y += tallest; tallest = 0; }
        const tile = {rack, nodes, rows, first, x, y, w, head, nameWidth, name: name.slice(prefix.length)};
        x += w; tallest = Math.max(tallest, head + rows * size + 8);
        return tile;
      });
      total = y + tallest;
      if (total <= height) break;
    }
    const dpr = Math.min(devicePixelRatio || 1, 16000 / Math.max(total, width, 1), 2);
    canvas.width = Math.max(1, Math.floor(width * dpr)); canvas.height = Math.max(1, Math.floor(total * dpr));
    canvas.style.width = width + "px"; canvas.style.height = total + "px";
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    const style = getComputedStyle(document.documentElement);
    for (const c of ["c1", "c2", "c3", "c4", "c5", "none", "none-ink", "free", "free-ink", "free-line", "allocated", "allocated-ink", "bad", "bad-ink", "mark", "panel", "bg", "ink", "soft"]) colours[c] = style.getPropertyValue("--" + c).trim();
  }

  function drawCell(x, y, cell, number) {
    const k = classOf(cell, view.k), bad = unhealthy(cell), shut = quarantined(cell) || unavailable(cell), w = size - (size > 4 ? 1 : 0);
    const fill = bad ? "bad" : view.use ? (held(cell) ? "allocated" : shut ? "none" : "free") : k ? "c" + Math.min(k, 5) : "none";
    const ink = bad ? colours["bad-ink"] : colours[fill + "-ink"] ?? (/c1|c2/.test(fill) ? "#fff" : "#000");
    ctx.globalAlpha = lit.size && !lit.has(number) ? .22 : 1;
    ctx.fillStyle = colours[fill];
    if (size < readable) ctx.fillRect(x, y, w, w);
    else { ctx.beginPath(); ctx.roundRect(x, y, w, w, 3); ctx.fill(); }
    if (size >= readable && fill === "free") { ctx.beginPath(); ctx.roundRect(x + .5, y + .5, w - 1, w - 1, 3); ctx.strokeStyle = colours["free-line"]; ctx.lineWidth = 1; ctx.stroke(); }
    if (size >= 6 && (bad || shut || degraded(cell))) {
      const thin = size >= readable ? 2 : 1;
      ctx.beginPath();
      if (bad) { ctx.moveTo(x + 2, y + 2); ctx.lineTo(x + w - 2, y + w - 2); ctx.moveTo(x + w - 2, y + 2); ctx.lineTo(x + 2, y + w - 2); }
      if (quarantined(cell)) ctx.rect(x + 1, y + 1, w - 2, w - 2);
      else if (unavailable(cell)) { ctx.moveTo(x, y + w); ctx.lineTo(x + w, y); }
      else if (degraded(cell)) { ctx.moveTo(x, y + 1); ctx.lineTo(x + w, y + 1); }
      // A wider line in the background colour below the mark makes it visible on every class, with any colour vision.
      if (!bad) { ctx.strokeStyle = colours.bg; ctx.lineWidth = thin + 2; ctx.stroke(); }
      ctx.strokeStyle = bad ? ink : colours.mark; ctx.lineWidth = thin; ctx.stroke();
    }
    if (size >= 6 && held(cell) && !view.use) { ctx.fillStyle = ink; if (size >= 11) ctx.fillRect(x + 2, y + w - 3, w - 4, 2); else ctx.fillRect(x + 1, y + w - 2, w - 2, 1); }
    if (size >= readable && !bad && !view.use) { ctx.fillStyle = ink; ctx.font = `${Math.floor(size * .6)}px system-ui,sans-serif`; ctx.textAlign = "center"; ctx.fillText(k || "–", x + w / 2, y + w * .68); }
    if (lit.has(number)) { ctx.strokeStyle = colours.ink; ctx.lineWidth = size > 8 ? 2 : 1; ctx.strokeRect(x + .5, y + .5, w - 1, w - 1); }
    ctx.globalAlpha = 1;
  }

  const place = (t, row, node, i) => [t.x + t.nameWidth + i % perRow * size, t.y + t.head + (row + Math.floor(i / perRow)) * size];

  function drawTile(t) {
    ctx.fillStyle = colours.bg; ctx.fillRect(t.x, t.y, t.w, t.head + t.rows * size + 8);
    ctx.textAlign = "left";
    if (t.head) {
      const bad = count(t.rack.first, t.rack.gpus, unhealthy) > 0; // because cells may be too small to show it
      ctx.fillStyle = bad ? colours.mark : colours.soft; ctx.textAlign = "left"; ctx.font = (size >= readable ? "600 12px" : "9px") + " system-ui,sans-serif";
      ctx.fillText(fit(t.name, t.w - 10) + (bad && t.first === t.rack.first && racks.length > 1 ? "!" : ""), t.x, t.y + 11);
    }
    if (t.nameWidth) { // nvidia-smi's numbers of the GPUs above the cells, as far as they are the same on all nodes
      ctx.fillStyle = colours.soft; ctx.font = font; ctx.textAlign = "center";
      const most = Math.max(...t.nodes.map(n => n.node.gpus));
      for (let i = 0; i < Math.min(perRow, most); i++) if (t.nodes.every(({node}) => i >= node.gpus || node.indexes?.[i] === i)) ctx.fillText(most > perRow ? i + "…" : i, t.x + t.nameWidth + (i + .5) * size, t.y + t.head - 5);
      ctx.textAlign = "left"; ctx.fillText("GPU", t.x, t.y + t.head - 5);
    }
    for (const {node, row} of t.nodes) {
      if (t.nameWidth) { ctx.fillStyle = colours.ink; ctx.textAlign = "left"; ctx.font = font; ctx.fillText(fit(node.name, t.nameWidth - 8), t.x, t.y + t.head + row * size + size / 2 + 4); }
      for (let i = 0; i < node.gpus; i++) { const [x, y] = place(t, row, node, i); drawCell(x, y, cluster.cells[node.first + i], node.first + i); }
    }
  }

  // fit shortens a name in its middle, where names differ least.
  function fit(name, w) {
    if (ctx.measureText(name).width <= w) return name;
    for (let n = Math.min(name.length, 40) - 1; n > 2; n--) {
      const text = name.slice(0, Math.floor(n / 3)) + "…" + name.slice(-Math.ceil(2 * n / 3));
      if (ctx.measureText(text).width <= w) return text;
    }
    return name.slice(-3);
  }

  // draw draws in slices of a few ms, so that the page stays responsive.
  function draw() {
    const mine = ++drawing;
    let next = -1;
    function some() {
      if (mine !== drawing) return;
      if (next < 0) { ctx.fillStyle = colours.bg; ctx.fillRect(0, 0, canvas.width, canvas.height); next = 0; }
      for (const end = performance.now() + slice; next < tiles.length && performance.now() < end; next++) drawTile(tiles[next]);
      if (next < tiles.length) requestAnimationFrame(some);
      else { focusRing(); host.dataset.drawn = String(tiles.length); performance.mark("map drawn"); }
    }
    if (tiles.length > 20) requestAnimationFrame(some); else some();
  }

  function focusRing() {
    if (!at || document.activeElement !== canvas) return;
    const [x, y] = place(at.t, at.n.row, at.n.node, at.i);
    ctx.strokeStyle = colours.mark; ctx.lineWidth = 2; ctx.strokeRect(x - 1, y - 1, size + 1, size + 1);
  }

  const text = p => `${p.n.node.name}${p.n.node.indexes ? `, GPU ${p.n.node.indexes[p.i]}` : ""}, rack ${p.t.rack.name}\n${words(cluster.cells[p.n.node.first + p.i])}`;
  function find(x, y) {
    const t = tiles.find(t => x >= t.x && x < t.x + t.w && y >= t.y && y < t.y + t.head + t.rows * size);
    if (!t) return null;
    const row = Math.floor((y - t.y - t.head) / size), n = t.nodes.findLast(n => n.row <= row), i = n ? (row - n.row) * perRow + Math.floor((x - t.x - t.nameWidth) / size) : -1;
    if (!n || row < 0 || i < 0 || x >= t.x + t.nameWidth + perRow * size || i >= n.node.gpus) return {t};
    return {t, n, i};
  }

  canvas.onpointermove = e => {
    const p = find(e.offsetX, e.offsetY);
    tip.hidden = !p?.n;
    if (!p?.n) return;
    tip.textContent = text(p);
    tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px"; tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
  };
  canvas.onpointerleave = () => { tip.hidden = true; };
  canvas.onclick = e => { const p = find(e.offsetX, e.offsetY); if (p) open(p.t.rack, size >= 8 ? p.n?.node : undefined, p.i); };
  canvas.onfocus = () => { if (tiles[0]?.nodes[0]) go(at ?? {t: tiles[0], n: tiles[0].nodes[0], i: 0}); };
  canvas.onblur = () => { if (at) drawTile(at.t); };
  function go(p) {
    if (at) drawTile(at.t);
    at = p; focusRing();
    live.textContent = text(p);
  }
  canvas.onkeydown = e => {
    if (!at) return;
    const {t, n, i} = at, nodes = t.nodes, j = nodes.indexOf(n), k = tiles.indexOf(t);
    const node = (t, n, i) => n && go({t, n, i: Math.min(i, n.node.gpus - 1)});
    const next = tiles.find((x, m) => m > k && x.rack !== t.rack), before = tiles.findLast((x, m) => m < k && x.rack !== t.rack);
    const prior = before && tiles.find(x => x.rack === before.rack), beside = by => tiles[k + by]?.rack === t.rack ? tiles[k + by] : null;
    // step goes to the node below or above, or to the rack's next or previous column.
    const step = (by, i) => nodes[j + by] ? node(t, nodes[j + by], i) : beside(by) && node(beside(by), by > 0 ? beside(by).nodes[0] : beside(by).nodes.at(-1), i);
    const keys = {
      ArrowRight: () => i + 1 < n.node.gpus ? node(t, n, i + 1) : step(1, 0), ArrowLeft: () => i > 0 ? node(t, n, i - 1) : step(-1, perRow),
      ArrowDown: () => step(1, i), ArrowUp: () => step(-1, i),
      PageDown: () => next && node(next, next.nodes[0], 0), PageUp: () => prior && node(prior, prior.nodes[0], 0),
      Home: () => node(tiles[0], tiles[0].nodes[0], 0), End: () => node(tiles.at(-1), tiles.at(-1).nodes.at(-1), 0), Enter: () => open(t.rack, n.node, i),
    };
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  };

  const all = () => { layout(); draw(); };
  // The layout of many racks runs in its own task, after the page's. A map of few racks is drawn at once, so that
  // nothing flickers.
  let later;
  const watch = new ResizeObserver(([e]) => {
    const w = Math.floor(e.contentRect.width);
    if (!w || w === width) return;
    width = w;
    clearTimeout(later);
    if (racks.length > 20) later = setTimeout(all); else all();
  });
  watch.observe(host);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", all);
  const stop = listen((what, changed) => {
    if (what !== "cells" || !changed || !width) return;
    const hit = new Set(changed.map(c => { let a = 0, b = tiles.length - 1; while (a < b) { const m = a + b + 1 >> 1; if (tiles[m].first <= c) a = m; else b = m - 1; } return a; }));
    for (const i of hit) if (tiles[i]) drawTile(tiles[i]);
    focusRing();
  });
  return {element: host, redraw: () => width && all(), light: cells => { lit = cells; if (width) draw(); }, close: () => { clearTimeout(later); watch.disconnect(); stop(); dark.removeEventListener("change", all); drawing++; }};
}

const item = (c, digit, text) => h("li", {}, h("span", {className: "chip " + c, ariaHidden: "true"}, digit || "\u00a0"), " ", text);
// classKeys explains the colours of the variability classes.
export const classKeys = () => [item("c1", 1, "fastest"), item("c2", 2, ""), item("c3", 3, ""), item("c4", 4, ""), item("c5", "5…", "slowest")];

// legend explains the colours, and lets the reader choose what they show.
export function legend(changed) {
  const choose = h("select", {id: "shown", onchange: e => { view.use = e.target.value === "use"; if (!view.use) view.k = Number(e.target.value); list(); changed(); }},
    classes.map((c, k) => h("option", {value: k, selected: !view.use && view.k === k}, `variability class for application class ${c}`)), h("option", {value: "use", selected: view.use}, "use: free or allocated"));
  const items = h("ul", {className: "legend"});
  function list() {
    items.replaceChildren(...view.use ? [item("free", "", "free"), item("allocated", "", "allocated to a job")] :
      [...classKeys(), item("c0", "–", "not measured"), item("c0 under", "", "allocated to a job")],
      item("bad", "×", "unhealthy"), item("c0 frame", "", "quarantined"), item("c0 slash", "", "unavailable"), item("c0 top", "", "degraded"), cluster.racks.length > 1 ? h("li", {}, h("b", {ariaHidden: "true"}, "!"), " a rack with unhealthy GPUs") : "");
  }
  list();
  return h("div", {}, h("div", {className: "row"}, h("label", {}, "Colours show ", choose)), items);
}
