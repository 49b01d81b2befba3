// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"errors"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// ErrPayload explains why the placer does not place a job that was dispatched with a payload.
var ErrPayload = errors.New("the job was dispatched with a payload, which Nomad would discard if nomad-pal rewrote the job. " +
	"So the job stays gated. Stop the job, remove the gate from the parameterized job, and constrain the GPUs there to a variability class instead")

// ErrPayloadRequired explains why the placer places no run of a parameterized job that requires a
// payload.
var ErrPayloadRequired = errors.New("the job requires a payload, which Nomad would discard if nomad-pal rewrote a run. " +
	"Remove the gate, and constrain the GPUs of the job to a variability class instead")

// ErrNoRPC explains why an agent without an RPC address does not place dispatched and periodic
// jobs.
var ErrNoRPC = errors.New("nomad-pal can place dispatched and periodic jobs only through the servers' RPC port: " +
	"set nomad { rpc_address } in the configuration of the agent")

// Child reports whether Nomad made the job from a parameterized or periodic job.
func Child(job *api.Job) bool { return job.ParentID != nil && *job.ParentID != "" }

// TemplateOf returns the parameterized or periodic job from which Nomad made the job, or the zero
// key if there is none.
func TemplateOf(job *api.Job) (template JobKey) {
	if Child(job) {
		template = JobKey{Namespace: KeyOf(job).Namespace, ID: *job.ParentID}
	}
	return template
}

// NameOf returns the name under which the placer remembers a job's run times, application class and
// history. All runs of a parameterized or periodic job share the id of that job. Other jobs are
// remembered by their name, so runs with different ids can share a history. Jobs in different
// namespaces never share a history.
func NameOf(job *api.Job) JobKey {
	k := KeyOf(job)
	if job.Name != nil {
		k.ID = *job.Name
	}
	return cmp.Or(TemplateOf(job), k)
}

// HasPayload reports whether the job carries a payload. Events contain payloads as servers store
// them: compressed, so that an empty payload is one zero byte.
func HasPayload(job *api.Job) bool {
	return len(job.Payload) > 1 || len(job.Payload) == 1 && job.Payload[0] != 0
}

// Canonicalize fills in the defaults of Nomad's API package, and one default that only Nomad's
// servers fill in.
func Canonicalize(job *api.Job) {
	job.Canonicalize()
	if len(job.Datacenters) == 0 {
		job.Datacenters = []string{"*"}
	}
}

// PoolAll is the built-in node pool that every node is in.
const PoolAll = "all"

// PoolOf returns the node pool of the job.
func PoolOf(job *api.Job) string {
	if job.NodePool == nil || *job.NodePool == "" {
		return "default"
	}
	return *job.NodePool
}

// Ended reports whether no allocation of the job runs or will run.
func Ended(job *api.Job) bool { return rewrite.Stopped(job) || Dead(job) }

// Dead reports whether Nomad calls the job dead. A stopped job is not dead while its tasks end.
func Dead(job *api.Job) bool { return job.Status != nil && *job.Status == "dead" }

// Template reports whether the job is parameterized or periodic. A parameterized or periodic job
// never runs itself; Nomad makes other jobs from it.
func Template(job *api.Job) bool { return job.IsParameterized() || job.IsPeriodic() }

// Need returns what one allocation of the group needs besides GPUs. Prestart tasks end before the
// main tasks start, unless they are sidecars. So Need returns the larger of two sums: the sum over
// the prestart tasks that are not sidecars, and the sum over all other tasks.
func Need(g *api.TaskGroup) pal.Resources {
	var main, before pal.Resources
	for _, t := range g.Tasks {
		to := &main
		l := t.Lifecycle
		if l != nil && !l.Sidecar && l.Hook == api.TaskLifecycleHookPrestart {
			to = &before
		}
		r := t.Resources
		if r != nil {
			to.CPU += Amount(r.CPU)
			to.MemoryMB += Amount(r.MemoryMB)
		}
	}
	need := pal.Resources{CPU: max(main.CPU, before.CPU), MemoryMB: max(main.MemoryMB, before.MemoryMB)}
	if g.EphemeralDisk != nil {
		need.DiskMB = Amount(g.EphemeralDisk.SizeMB)
	}
	return need
}

// ValueOf returns the amount that a job requests, or 0 if the job requests no amount.
func ValueOf(i *int) int {
	if i == nil {
		return 0
	}
	return *i
}

// Amount returns the amount that a job requests, limited to 1<<40. No real machine reaches this
// limit, and sums of limited amounts do not overflow.
func Amount(i *int) int { return max(0, min(ValueOf(i), 1<<40)) }

// NeverFinishes returns the reason why this job never finishes: Nomad does not have the job (job is
// nil), or jobs of its type never finish. NeverFinishes returns the zero reason if the job can
// finish.
func NeverFinishes(job *api.Job) reason.Reason {
	switch {
	case job == nil:
		return reason.Reason{Kind: reason.AheadMissing}
	case Template(job):
		return reason.Reason{Kind: reason.AheadTemplate}
	case *job.Type != api.JobTypeBatch && *job.Type != api.JobTypeSysbatch:
		return reason.Reason{Kind: reason.AheadEndless, Cause: *job.Type}
	}
	return reason.Reason{}
}
