// The list of jobs, a page at a time: the agent filters and sorts.
import {badge, command, empty, expected, failed, get, h, jobLink, link, marked, owner, plural, put, query, table, time, typing} from "./dom.js";
import {listen} from "./cluster.js";

const columns = [["position", "#", true], ["job", "Job"], ["user", "User"], ["state", "State"], ["gpus", "GPUs", true], ["class", "Class"], ["submitted", "Submitted"], ["start", "Expected start"], ["", "Reason"]];
const limit = 50;
export const states = {waiting: "in the queue", starting: "not all members are placed", running: "all members are placed: they run, are about to run, or are complete", unschedulable: "does not fit this cluster, even if it were empty", rejected: "nomad-pal cannot place it as it is written", failed: "nomad-pal gave it up", native: "managed by Nomad alone"};

// notStarted are the states of jobs that the placer does not start, or does not start again.
export const notStarted = "unschedulable,rejected,failed";

// size returns a job's number of GPUs. For a waiting elastic gang, it returns the range from its smallest to its
// full size.
export const size = ({gpus, elastic: e}) => e && !e.members && e.least < e.most ? `${gpus / e.most * e.least}–${gpus}` : gpus;

// runs lists how many elements of an array are in each state.
export const runs = r => [...Object.entries(r).filter(([, n]) => n).map(([k, n]) => `${n.toLocaleString()} ${k}`), `of ${Object.values(r).reduce((a, n) => a + n, 0).toLocaleString()}`].join(", ");

export function jobsPage(params, navigate) {
  const q = {sort: params.get("sort") || "position", order: params.get("order") || "", search: params.get("search") || "", state: params.get("state") || "", class: params.get("class") || "", offset: Number(params.get("offset")) || 0};
  const list = h("div", {className: "plain"}, empty("Reading the jobs …")), sum = h("p", {className: "soft", role: "status"});
  // change reads other jobs. The address follows, so that it can be sent; typing makes no step to go back to.
  function change(more, step = "pushState") {
    Object.assign(q, {offset: 0}, more);
    history[step](null, "", "#/jobs?" + query({...q, offset: q.offset || ""}));
    read();
  }
  const choice = (name, label, options) => h("label", {}, label + " ", h("select", {onchange: e => change({[name]: e.target.value})}, options.map(([v, t]) => h("option", {value: v, selected: q[name] === v}, t))));
  const search = h("input", {type: "search", value: q.search, size: 22}), find = () => change({search: search.value.trim()}, "replaceState");
  search.oninput = typing(find);
  const form = h("form", {className: "row", onsubmit: e => { e.preventDefault(); find(); }},
    h("label", {}, "Name ", search),
    choice("state", "State", [["", "all"], [notStarted, "stuck or failed"], ...Object.keys(states).concat("committing", "stopping", "completing", "resubmitted", "lost", "template").map(s => [s, s])]),
    choice("class", "Class", [["", "all"], ...["A", "B", "C", "D"].map(c => [c, c])]),
    h("label", {className: "narrow"}, "Sorted by ", h("select", {onchange: e => { const [sort, order] = e.target.value.split(" "); change({sort, order}); }}, columns.flatMap(([key, text]) => key ? ["", "desc"].map(order =>
      h("option", {value: `${key} ${order}`, selected: q.sort === key && q.order === order}, (key === "position" ? "Position" : text) + (order ? ", last first" : ""))) : []))));

  const head = ([key, text, number]) => {
    if (!key) return h("th", {scope: "col", role: "columnheader", "data-label": text}, text);
    const on = q.sort === key, down = on && q.order !== "desc";
    return h("th", {scope: "col", role: "columnheader", "data-label": text, ariaSort: on ? (down ? "ascending" : "descending") : "none", ...(number && {className: "n"})}, h("button", {type: "button", title: "Sort by " + key, onclick: () => change({sort: key, order: down ? "desc" : ""})}, text, on ? (down ? " ↑" : " ↓") : ""));
  };
  const job = j => j.runs ? [jobLink(j), " ", h("small", {}, runs(j.runs), " – ", link("#/jobs?" + query({search: `${j.namespace}/${j.job}/`}), "its runs"))] : marked(j);
  const row = (j, users) => [j.position || "", job(j), ...users ? [owner(j.user)] : [], badge(j.state, states[j.state]), size(j), j.class || "", time(j.submitted), expected(j), j.reason?.text ?? ""];

  let last = 0, timer;
  async function read() {
    last = Date.now();
    const wanted = query({...q, limit}), current = () => wanted === query({...q, limit});
    try {
      const p = await get("/v1/queue/page?" + wanted);
      if (current()) show(p);
    } catch (e) { if (current()) list.replaceChildren(failed(e)); }
  }
  function show(p) {
    const {template = 0, ...states} = p.states ?? {}; // a template has no GPUs; its children have
    const by = Object.entries(states).sort().map(([s, n]) => `${n.toLocaleString()} ${s}`).join(", ");
    sum.textContent = p.total ? `${plural(p.total - template, "job")} with GPUs${by && ": " + by}.` + (template ? ` ${plural(template, "template")}.` : "") + ((q.search || q.state || q.class) && p.matching < p.total ? ` ${p.matching.toLocaleString()} match.` : "") : "";
    if (!p.total) { list.replaceChildren(empty("This token sees no job with GPUs. Submit one: ", command("nomad-pal run -detach JOB.nomad.hcl"), ". nomad-pal places only jobs with the gate; ", h("code", {}, "nomad-pal run"), " adds it. The button Set token shows which rights a token needs.")); return; }
    if (!p.matching) { list.replaceChildren(empty("No job matches. "), h("button", {onclick: () => navigate("#/jobs")}, "Show all")); return; }
    const users = p.jobs.some(j => j.user);
    put(list, table("Jobs", columns.filter(([key]) => users || key !== "user").map(head), p.jobs.map(j => row(j, users))), pager(p));
  }
  const pager = p => p.matching <= limit && !q.offset ? "" : h("nav", {className: "row", ariaLabel: "Pages of jobs"},
    h("button", {disabled: q.offset === 0, title: "Previous page", onclick: () => change({offset: Math.max(0, q.offset - limit)})}, "Previous"),
    h("span", {}, `${(q.offset + 1).toLocaleString()} to ${Math.min(q.offset + limit, p.matching).toLocaleString()} of ${p.matching.toLocaleString()}`),
    h("button", {disabled: q.offset + limit >= p.matching, title: "Next page", onclick: () => change({offset: q.offset + limit})}, "Next"));

  // later reads at most every 5 s, because a long queue changes all the time.
  const later = () => { clearTimeout(timer); timer = setTimeout(read, Math.max(0, last + 5000 - Date.now())); };
  const stop = listen(what => { if (what === "jobs") later(); });
  read();
  return {title: "Jobs", element: [h("h1", {}, "Jobs"), form, sum, list], close: () => { stop(); clearTimeout(timer); }};
}
