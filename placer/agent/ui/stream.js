// The agent's stream. It runs in the page, or in the worker that all tabs share: see
// docs/design/page.md.

const pauses = (ms, signal) => new Promise(done => { const t = setTimeout(done, ms); signal.addEventListener("abort", () => { clearTimeout(t); done(); }, {once: true}); });

// follow reads the stream with a token until signal aborts, and calls on({state}), on({trouble, status}),
// on({alive}), or on({standby}) if another agent is active.
export async function follow(secret, on, signal) {
  let version = 0;
  for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 15000)) {
    try {
      const r = await fetch(`/v1/stream?version=${version}`, {signal, redirect: "manual", headers: secret ? {"X-Nomad-Token": secret} : {}});
      if (r.type === "opaqueredirect") { on({standby: true}); await pauses(15000, signal); continue; } // the page goes to the active agent
      if (!r.ok) throw Object.assign(new Error((await r.text()).trim() || r.statusText), {status: r.status});
      const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const {value, done} = await reader.read();
        if (done) break;
        pause = 500;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const [, event, data] = /^event: (\w+)\ndata: (.*)$/s.exec(part) ?? [];
          if (event === "trouble") { on({trouble: JSON.parse(data).trouble}); continue; }
          if (event !== "state") { on({alive: true}); continue; }
          const state = JSON.parse(data);
          if (state.from && state.from !== version) { version = 0; throw new Error("a change is missing"); }
          version = state.version;
          if (state.racks) state.cells = Uint16Array.from(state.cells ?? []);
          on({state});
        }
      }
      pause = 50; // a stream ends after a minute, so that the agent checks the token again
    } catch (e) {
      if (signal.aborted) return;
      on({trouble: e.status ? e.message : "The agent does not answer. Trying again …", status: e.status});
    }
    await pauses(pause, signal);
  }
}

// added returns the whole state after message m. It changes the cells of full in place.
function added(full, m) {
  if (m.racks || !m.from || !full) return {...m, from: undefined, cells: m.racks && m.cells.slice()};
  if (m.cells) for (let i = 0; i < m.cells.length; i += 2) full.cells[m.cells[i]] = m.cells[i + 1];
  return {...full, version: m.version, jobs: m.jobs};
}

// shared keeps one stream for each token while a tab uses it. A tab that joins later first gets the whole
// state.
function shared() {
  const streams = new Map();
  const join = (secret, port) => {
    let s = streams.get(secret);
    if (!s) {
      streams.set(secret, s = {ports: new Set(), abort: new AbortController()});
      follow(secret, m => {
        if (m.state) s.full = added(s.full, m.state);
        s.trouble = m.trouble ? m : undefined;
        for (const p of s.ports) p.postMessage(m);
      }, s.abort.signal);
    }
    s.ports.add(port);
    if (s.full) port.postMessage({state: s.full});
    if (s.trouble) port.postMessage(s.trouble);
    return () => { s.ports.delete(port); if (!s.ports.size) { s.abort.abort(); streams.delete(secret); } };
  };
  return port => {
    let leave = () => {};
    port.onmessage = ({data}) => { leave(); leave = "join" in data ? join(data.join, port) : () => {}; };
  };
}

if ("onconnect" in self) {
  const connect = shared();
  self.onconnect = e => connect(e.ports[0]);
}
