// Actions on jobs and GPUs. Each is confirmed in a dialog and carries the reader's token, with which the agent asks
// Nomad. The dialog also shows the command that does the same.
import {$, ask, command, failed, h} from "./dom.js";

const quoted = text => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

// told shows the result of an action above the page.
export function told(text) { $("told").textContent = text; $("told").hidden = !text; }

// action returns a button that opens the dialog. says is what will happen. reason is "required" or "optional" if the
// action takes one. line(why) is the command, and done(answer) what the page then says; after calls read.
function action({what, of, says, path, reason, line, done}, read) {
  function open() {
    const why = reason && h("input", {size: 36, maxLength: 200, required: reason === "required"}), same = h("p", {}), error = h("div", {}), go = h("button", {className: "go"}, what);
    const show = () => same.replaceChildren("As a command: ", command(line(why && why.value.trim() ? `-reason ${quoted(why.value.trim())} ` : "")));
    if (why) why.oninput = show;
    show();
    const form = h("form", {onsubmit: async e => {
      e.preventDefault();
      go.disabled = true;
      try {
        const answer = await (await ask(path, {method: "PUT", body: JSON.stringify({why: why ? why.value.trim() : "", by: "a reader of the page"})})).json();
        dialog.close();
        told(done(answer));
        read();
      } catch (e) { error.replaceChildren(failed(e)); }
      go.disabled = false;
    }}, h("h2", {}, `${what}: ${of}`), h("p", {}, says), why ? h("label", {}, reason === "required" ? "Reason " : "Reason (may be empty) ", why) : "", same, error, h("p", {className: "buttons"}, go, " ", h("button", {type: "button", onclick: () => dialog.close()}, "Back")));
    const dialog = h("dialog", {ariaLabel: `${what}: ${of}`, onclose: () => dialog.remove()}, form);
    document.body.append(dialog);
    dialog.showModal();
  }
  return h("button", {type: "button", title: `${what}: ${of}`, onclick: open}, what);
}

const runs = ["starting", "running", "stopping", "resubmitted", "lost"], never = ["native", "template", "ended"];

// jobActions are the actions for a job with this explanation.
export function jobActions({namespace, job, state, hold}, read) {
  const name = namespace === "default" ? job : `${namespace}/${job}`, at = what => `/v1/job/${encodeURIComponent(job)}/${what}?${new URLSearchParams({namespace})}`;
  const args = (namespace === "default" ? "" : `-namespace ${quoted(namespace)} `) + quoted(job);
  const make = (what, path, says, line, done, reason) => action({what, of: name, says, path: at(path), reason, line: why => `nomad-pal ${line} ${why}${args}`, done}, read);
  return h("div", {className: "row actions"}, never.includes(state) ? "" : [
    hold ? make("Lift hold", "unhold", "The job can start again when it is its turn.", "hold -lift", () => `Lifted the hold on ${name}.`)
      : make("Hold", "hold", "The job does not start until the hold is lifted. If it runs, it keeps running.", "hold", is => `Held ${name}${is.starting ? ", but too late to stop the start that has begun" : ""}.`, "optional"),
    runs.includes(state) ? make("Requeue", "requeue", "Stops the job and puts it into the queue again. Work since its last checkpoint is lost.", "requeue", () => `Requeued ${name}.`, "optional") : ""],
  state === "ended" ? "" : make("Cancel", "cancel", "Stops the job, and all runs of a parameterized or periodic job. It loses its place in the queue.", "cancel", stopped => `Cancelled ${stopped.join(", ")}.`));
}

// gpuActions are the actions for a GPU.
export function gpuActions({id, quarantine}, read) {
  const whole = id.split("::")[0], make = (what, path, says, line, done, reason) => action({what, of: whole, says, path: `/v1/gpu/${encodeURIComponent(whole)}/${path}`, reason, line: why => `nomad-pal quarantine ${line}${why}${whole}`, done: () => done}, read);
  return h("div", {className: "row actions"}, quarantine ? make("Lift quarantine", "lift", "Jobs can get the GPU again.", "-lift ", `Lifted the quarantine of ${whole}.`)
    : make("Quarantine", "quarantine", "No job gets the GPU until the quarantine is lifted. A job that has it keeps running.", "", `In quarantine: ${whole}.`, "required"));
}
