// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpRun = help("run [options] <jobspec>", `
Adds the gate to a job, registers it as nomad job run does, and watches until nomad-pal
has placed it. If the agent stops answering meanwhile, the command waits up to five
minutes for an agent that answers. Jobs without GPUs are registered as they are. Running
the same file again does not touch running members. There is no -ui: nomad job status
-ui <job> opens Nomad's page of the job.

Running jobs that Nomad owns get no gate, and Nomad updates them at once. These are
released jobs, and services without pal_on_failure = "gang" and pal_locality.

If NOMAD_PAL_USER is set, a new job with GPUs gets this user name as its meta pal_user,
unless the job sets pal_user itself.

Exit codes: 0 the job runs, or with -detach it was registered; 1 an error, such as a job
that Nomad refuses; 2 the job will not start as it is: nomad-pal cannot place it, so it
was not registered, or it is rejected, unschedulable or failed; 3 it waits because no
agent answers or none is active; 130 you interrupted the command, and the job stays
registered.

Run Options:

  -detach                  Do not wait for nomad-pal. If the job can never start as it is written,
                           warn.
  -check-index=<index>     Register only if the job has this modify index; 0: only if the
                           job is new. nomad-pal plan shows the index.
  -output                  Print the job as it would be sent, with its gate or pins, as JSON, and
                           register nothing.
`, examples(
	"Run a job, and watch until it runs:", "nomad-pal run train.nomad.hcl",
	"Submit the job, and do not wait for its start:", "nomad-pal run -detach -var gpus=8 train.nomad.hcl",
), jobOptions, outputOptions, generalOptions)

func runRun(b *base, args []string) int {
	fs := b.flags("run")
	f, opts := b.jobFlags(fs), &api.RegisterOptions{}
	detach := fs.Bool("detach", false, "")
	output := fs.Bool("output", false, "")
	checkIndex := fs.String("check-index", "", "")
	rest, ok := b.parse(fs, args, 1)
	if !ok {
		return 1
	}
	if *checkIndex != "" {
		index, err := strconv.ParseUint(*checkIndex, 10, 64)
		if err != nil {
			return b.fail(fmt.Errorf("parsing check-index value %q: %w", *checkIndex, err))
		}
		opts.EnforceIndex, opts.ModifyIndex = true, index
	}
	job, submission, err := b.readJob(rest[0], f)
	if err != nil {
		return b.fail(err)
	}
	opts.Submission = submission
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	if err := sayUser(b, client, job); err != nil {
		return b.fail(err)
	}
	gated, err := gateForRun(job)
	if err != nil {
		b.fail(err)
		return 2
	}
	job, runs := asUpdate(b, client, gated)
	if *output {
		return b.printJSON(map[string]*api.Job{"Job": job})
	}
	for _, w := range warnings(gated) {
		b.io.complain("Warning: " + w)
	}
	resp, err := register(b, client, job, opts)
	if err != nil && b.ctx.Err() != nil {
		b.io.complain("Interrupted. The job may be registered: see " + palapi.ExplainCommand(*job.Namespace, *job.ID))
		return exitInterrupted
	}
	if err != nil {
		return notRegistered(b, client, job, err)
	}
	if *detach || !rewrite.AsksGPUs(job) || cluster.Template(job) {
		return detached(b, job, runs, resp)
	}
	return watch(b, job, resp)
}

// asUpdate returns the job as run registers it, and whether members of the job run. A running job
// that Nomad owns does not wait, so it needs no gate. If it is a service of replicas, it gets the
// pins that the placer would give it. With a gate, Nomad would replace no member until the placer
// has taken the gate off.
func asUpdate(b *base, client *nomad.Client, gated *api.Job) (job *api.Job, runs bool) {
	k := cluster.KeyOf(gated)
	if !rewrite.Gated(gated) || cluster.Template(gated) {
		return gated, false
	}
	now, err := client.Job(b.ctx, k)
	if err != nil || now == nil || cluster.Ended(now) { // a token may submit jobs that it cannot read
		return gated, false
	}
	all, err := client.JobAllocs(b.ctx, k)
	if err != nil {
		return gated, false
	}
	members := slices.DeleteFunc(all, func(a *cluster.Alloc) bool {
		g := now.LookupTaskGroup(a.Group)
		return !a.Member() || g == nil || rewrite.GPUsPerMember(g) == 0
	})
	_, pinned := rewrite.Pinned(now)
	hints, err := rewrite.ParseHints(gated)
	switch {
	case len(members) == 0:
		return gated, false
	case err != nil || pinned && rewrite.Gated(now): // the placer is stopping the job
		return gated, true
	case *gated.Type == api.JobTypeService && hints.Independent(gated):
		job, err = rewrite.Pin(gated, gang.PreferHere(gated, members), rewrite.Racks{})
		if err != nil {
			return gated, true
		}
		return job, true
	case !pinned && !rewrite.Gated(now):
		return rewrite.Open(gated), true
	}
	return gated, true
}

// detached prints the result of a registration. It warns if no agent answers, if the job is held,
// or if the job can never start as it is written.
func detached(b *base, job *api.Job, runs bool, resp *api.JobRegisterResponse) int {
	code := registered(b, job, resp)
	if !rewrite.Gated(job) || cluster.Template(job) {
		return code
	}
	a, err := b.ask()
	idle := err == nil && a.activity.Idle()
	switch { // the job is registered, so a warning does not change the exit code
	case lacksAgent(err):
		b.io.complain("Warning: " + oneLine(err.Error()) + "; the job waits until an agent is active.")
	case idle:
		b.io.complain("Warning: " + oneLine(idleSentence(a.activity, time.Now())))
	}
	if runs && (idle || err != nil) {
		b.io.complain("Warning: members of the job run, and Nomad replaces none of them until an agent is active.")
	}
	if err != nil {
		return code
	}
	if e, err := a.Plan(job); err == nil && ((planned{Explanation: e}).never() || e.Reason.Kind == reason.Held) {
		b.io.complain("Warning: " + oneLine(e.Headline(time.Now())))
	}
	return code
}

// watch prints what happens to a registered job, as an agent reports it. If no agent answers, watch
// prints this fact, and the result of the registration.
func watch(b *base, job *api.Job, resp *api.JobRegisterResponse) int {
	k := cluster.KeyOf(job)
	a, err := b.ask()
	if b.ctx.Err() != nil {
		return interruptedAfterRun(b, k)
	}
	if lacksAgent(err) {
		code := registered(b, job, resp)
		b.io.complain("Note: cannot find out where the job is placed or what the job waits for: " + err.Error())
		if rewrite.Gated(job) {
			code = cmp.Or(code, exitNoPlacer)
		}
		return code
	}
	if err != nil {
		return b.fail(err)
	}
	return watchJob(b, a, k)
}

// notRegistered prints why Nomad refused the job.
func notRegistered(b *base, client *nomad.Client, job *api.Job, err error) int {
	none := b.noNamespace(client, *job.Namespace)
	if none != nil {
		err = none
	} else if why, ok := nomad.Invalid(err); ok {
		err = errors.New("Nomad refuses the job: " + why)
	}
	return b.fail(fmt.Errorf("registering job %q: %w", *job.ID, nomad.Denied(err, nomad.SubmitJob)))
}

// register registers a job at Nomad.
func register(b *base, client *nomad.Client, job *api.Job, opts *api.RegisterOptions) (*api.JobRegisterResponse, error) {
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(b.ctx)
	resp, _, err := client.API().Jobs().RegisterOpts(job, opts, w)
	return resp, err
}

// gateForRun adds the gate to a job with GPUs. gateForRun returns an error if no placer could serve
// the job.
func gateForRun(job *api.Job) (*api.Job, error) {
	if err := request.Addressable(*job.ID); err != nil {
		return nil, err
	}
	gated := job
	if rewrite.AsksGPUs(job) {
		if _, err := rewrite.ParseHints(job); err != nil {
			return nil, err
		}
		gated = request.Gate(job)
	}
	if !rewrite.Gated(gated) {
		return gated, nil
	}
	if err := request.Takes(gated); err != nil {
		return nil, fmt.Errorf("job %q: %w", *job.ID, err)
	}
	p := job.ParameterizedJob
	if p != nil && p.Payload == "required" {
		return nil, fmt.Errorf("job %q requires a payload, which Nomad would discard if nomad-pal changed a run of the job: use nomad job run instead, and constrain the job's GPUs to a variability class yourself", *job.ID)
	}
	return gated, nil
}

// registration is the JSON object that `nomad-pal run -json` prints if it does not watch the job.
type registration struct {
	Job       string `json:"job"`       // the job's id
	Namespace string `json:"namespace"` // the job's namespace
	// Gated reports whether the job was submitted with the gate, so that the placer chooses its
	// GPUs.
	Gated bool `json:"gated"`
	// Evaluation is the id of Nomad's evaluation of the job.
	Evaluation string `json:"evaluation"`
}

// registered prints the result of a registration.
func registered(b *base, job *api.Job, resp *api.JobRegisterResponse) int {
	return b.show(registration{*job.ID, *job.Namespace, rewrite.Gated(job), resp.EvalID}, func() {
		waits := map[bool]string{true: ", waiting for nomad-pal"}[rewrite.Gated(job) && !cluster.Template(job)]
		b.io.printf("Job %q registered%s: see %s\n", *job.ID, waits, palapi.ExplainCommand(*job.Namespace, *job.ID))
		if cluster.Template(job) {
			b.io.printf("To start a run: %s\n", palapi.StartRun(job))
		}
		if resp.Warnings != "" {
			b.io.printf("Nomad warns: %s\n", strings.Join(strings.Fields(resp.Warnings), " "))
		}
	})
}

// interruptedAfterRun tells that the job is registered, and returns the exit code.
func interruptedAfterRun(b *base, k cluster.JobKey) int {
	b.io.complain("Interrupted. The job stays registered: see " + palapi.ExplainCommand(k.Namespace, k.ID))
	return exitInterrupted
}

// watchJob follows the job until all members run, or the job ends or cannot start, and prints the
// job's explanation.
func watchJob(b *base, a *answers, k cluster.JobKey) int {
	e, idle, err := b.awaitStart(a, k)
	switch {
	case b.ctx.Err() != nil:
		code := interruptedAfterRun(b, k)
		if idle {
			code = exitNoPlacer
		}
		return code
	case err != nil:
		return b.fail(err)
	}
	code := b.show(e, func() { printExplanation(b, e) })
	return cmp.Or(code, map[bool]int{true: 2}[refusedToStart(e)])
}

// refusedToStart reports whether the job cannot start unless somebody changes or resubmits it.
func refusedToStart(e *palapi.Explanation) bool {
	return e.State == palapi.Rejected || e.State == palapi.Failed || e.State == palapi.Unschedulable
}

// isUp reports whether all members run, and Nomad has begun to deploy the job's current version.
// Members of a service's old version keep running until Nomad has evaluated an update, and during
// the update.
func isUp(e *palapi.Explanation) bool {
	return e.State == palapi.Running && (e.Deployment == nil || !e.Deployment.Superseded) &&
		!slices.ContainsFunc(e.Allocations, func(a palapi.Allocation) bool { return a.Status == api.AllocClientStatusPending })
}

// evaluated reports whether Nomad has processed all evaluations of a job. An unprocessed update
// does not change the running members.
func (b *base) evaluated(a *answers, k cluster.JobKey) bool {
	es, err := a.nomad.Evaluations(b.ctx, k)
	return err != nil || !slices.ContainsFunc(es, func(e *api.Evaluation) bool { return e.Status == api.EvalStatusPending })
}

// ended reports whether Nomad, too, says that a job has ended. A busy agent can still tell of the
// ended job that a new registration has just replaced.
func (b *base) ended(a *answers, k cluster.JobKey) bool {
	job, err := a.nomad.Job(b.ctx, k)
	return err != nil || job == nil || cluster.Ended(job)
}

// agentPatience is how long run waits for an agent that has stopped answering.
const agentPatience = 5 * time.Minute

// standing returns the job's current explanation. While no agent answers, standing waits: the agent
// may be restarting, or another agent may be about to become active.
func standing(b *base, a *answers, k cluster.JobKey) (e *palapi.Explanation, err error) {
	told := false
	for since := time.Now(); ; {
		if err = a.hear(askTimeout); err == nil {
			e, err = a.Explain(k)
		}
		away := lacksAgent(err) || err != nil && slices.Contains([]int{0, http.StatusBadGateway}, nomad.StatusOf(err))
		switch {
		case !away && told:
			b.io.complain("The agent answers again.")
			return e, err
		case !away || b.ctx.Err() != nil:
			return e, err
		case time.Since(since) > agentPatience:
			return nil, fmt.Errorf("no agent has answered for %v, and the job stays registered: %w", agentPatience, err)
		case !told:
			b.io.complain(fmt.Sprintf("The agent does not answer (%s). The job stays registered. For %s, this command waits for an agent to answer.", oneLine(err.Error()), palapi.ShortDuration(agentPatience)))
			told = true
		}
		pause(b.ctx, time.Second)
		if next, err := b.ask(); err == nil { // another agent may be active now
			*a = *next
		}
	}
}

// awaitStart follows the job until all members run, the job ends, or the job cannot start without a
// change. awaitStart prints each change of the job's state. idle reports whether no placer is
// active.
func (b *base) awaitStart(a *answers, k cluster.JobKey) (e *palapi.Explanation, idle bool, err error) {
	var last, said string
	var asked, sure bool
	for {
		began := time.Now()
		if e, err = standing(b, a, k); err != nil {
			return nil, said != "", err
		}
		before := said
		said = ""
		if a.activity.Idle() {
			said = idleSentence(a.activity, time.Now())
		}
		if said != "" && before == "" {
			fmt.Fprintln(b.io.err, oneLine(said))
		}
		word := fmt.Sprintf("%s: %s", e.State, e.Reason)
		if e.Wait != nil && e.Wait.Position > 0 {
			word += fmt.Sprintf("; number %d in the queue", e.Wait.Position)
		}
		if word != last && !b.json {
			start := ""
			if !e.StartTo.IsZero() {
				start = "; expected start " + palapi.Soon(e.StartFrom, e.StartTo, time.Now())
			}
			b.io.printf("%s  %s%s\n", time.Now().Format(time.TimeOnly), word, start)
			last = word
			if e.Ask != "" && !asked {
				b.io.printf("%s\n", e.Ask)
				asked = true
			}
		}
		up := isUp(e)
		if refusedToStart(e) || up && sure || e.State == palapi.Ended && b.ended(a, k) || e.State == palapi.Native {
			return e, said != "", nil
		}
		sure = up && b.evaluated(a, k)
		if sure {
			continue // ask again without a pause, because Nomad may have processed an update since the previous poll
		}
		// Frequent polls load the servers of a large cluster, but people want to see changes soon.
		pause(b.ctx, min(max(500*time.Millisecond, 10*time.Since(began)), 5*time.Second))
	}
}

// warnings returns notes on parts of the job that its author may not intend.
func warnings(job *api.Job) []string {
	all := []string{request.MistypedDevices(job), request.PastNomad(job)}
	return slices.DeleteFunc(all, func(w string) bool { return w == "" })
}
