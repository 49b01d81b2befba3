// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// ViewOptions returns the options that the view needs now.
func (m *Model) ViewOptions(now time.Time) request.Options {
	c := m.Cfg
	return request.Options{
		Ledger: ledger.Options{
			Locality: c.Locality, Profile: m.Profile, RackMeta: c.RackMeta, Reserved: m.ReservedGPUs(now), Ending: m.State.Ending(now),
			Quarantined: failure.QuarantinedGPUs(m.Quarantine, now), Unavailable: m.State.Unavailable(now),
		},
		Apps: c.Apps, DefaultClass: c.DefaultClass, DefaultPreempt: c.MayStop,
		Children: c.Children, Runs: m.runsOf, Slower: m.slowerBeside, OutlierThreshold: c.Queue.OutlierThreshold,
	}
}

// runsOf returns the run times of earlier runs with the same job name and the same number of GPUs.
// The result does not change while the job is in the queue, because the job's speeds must not
// change whenever a run ends.
func (m *Model) runsOf(job *api.Job, gpus int) queue.PastRuns {
	t := m.Jobs[cluster.KeyOf(job)]
	if t != nil && t.Queued {
		return t.runs
	}
	runs := m.Queue.PastRuns(cluster.NameOf(job).String(), gpus)
	if t != nil {
		t.runs = runs
	}
	return runs
}

// slowerBeside returns the [pal.Sharing.Slower] of a job that is in the queue, or zero for other
// jobs.
func (m *Model) slowerBeside(k cluster.JobKey) (slower [pal.NumClasses]float64) {
	t := m.Jobs[k]
	if t != nil && t.Queued && t.Request.Gang.Sharing != nil {
		return t.Request.Gang.Sharing.Slower
	}
	return slower
}

// UpdateView updates the view. If an update is impossible, UpdateView builds a new view, and adapts
// the queue to the new view.
func (m *Model) UpdateView(now time.Time) error {
	m.State.Elapse(now)
	m.forgetUnanswered(now)
	if m.View != nil && m.View.Update(m.State, m.ViewOptions(now)) {
		return nil
	}
	v, err := request.NewView(m.State, m.ViewOptions(now))
	if err != nil {
		return err
	}
	m.View = v
	m.rebase()
	return nil
}

// rebase gives the queue the GPU numbers of a new view.
func (m *Model) rebase() {
	for _, t := range m.Jobs {
		t.Target = nil // the target's GPU numbers are invalid now
	}
	m.Queue.Rebase(func(id string, g pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) {
		unknown := pal.Placement{Penalty: 1, PMScore: 1}
		t := m.ByID(id)
		if t == nil || m.State.Jobs[t.Key] == nil {
			return g, unknown
		}
		r, err := m.RequestOf(gang.Observe(m.State, m.State.Jobs[t.Key]))
		if err != nil {
			return g, unknown
		}
		return r.Full(), m.View.Running(r, m.View.Holds(t.Key))
	})
	referEstimates(m)
}

// Reconsider tells the queue which nodes can serve which gang. Call Reconsider after nodes were
// added or removed and the jobs' requests were read again.
func (m *Model) Reconsider() {
	m.Queue.Reconsider(func(id string, g pal.Gang) pal.Gang {
		t := m.ByID(id)
		if t == nil || t.Refused != nil || len(t.Request.Gang.MemberSets) != len(g.MemberSets) {
			return g
		}
		now := t.Request.Gang
		now.MemberSets = slices.Clone(now.MemberSets)
		for i := range now.MemberSets { // keep the counts, because members that have finished since still count
			now.MemberSets[i].Members = g.MemberSets[i].Members
		}
		return now
	})
	referEstimates(m)
}

// RequestOf returns what a job requests. The request of a waiting gang excludes nodes on which
// Nomad's dry run refused the gang. The request of a requeued gang also excludes the nodes where
// the gang failed.
func (m *Model) RequestOf(st gang.Observed) (request.Request, error) {
	r, err := m.View.Request(st.Job)
	if err != nil {
		return r, err
	}
	nodes := map[string]bool{}
	maps.Copy(nodes, m.Avoids(st, m.Time))
	t := m.Jobs[st.Key]
	if t != nil && st.Nomad == palapi.Waiting {
		maps.Copy(nodes, t.Unfit(st.Job, m.Time))
	}
	if len(nodes) > 0 {
		m.View.Avoid(&r, nodes)
	}
	if r.Hints.Duration > 0 {
		r.Best = m.bestCost(r.Full())
	}
	return r, nil
}

// Avoids returns the names of nodes that a requeued gang uses only if it fits nowhere else.
func (m *Model) Avoids(st gang.Observed, now time.Time) map[string]bool {
	if st.Nomad != palapi.Waiting || len(st.Pins.Groups) == 0 {
		return nil
	}
	return m.FailedOn(st.Key, now)
}

// BuildProfile returns a new profile, or the present profile if nothing has changed.
func (m *Model) BuildProfile() (*profile.Profile, error) {
	if m.View != nil && m.BuiltFrom == m.State.NodeGeneration() {
		return m.Profile, nil
	}
	samples, known, readErr := m.State.Measurements()
	m.BuiltFrom = m.State.NodeGeneration()
	samples = cluster.MergeSamples(samples, m.Imported, known)
	if len(samples) == 0 {
		return m.Profile, readErr
	}
	o := m.Cfg.Calibration
	o.Known, o.Created = known, m.Time.UTC().Format(time.RFC3339)
	built, err := profile.Build(samples, o, m.Profile)
	if err != nil {
		return m.Profile, err
	}
	return built, readErr
}

// GPUIDs converts GPU numbers of the view's cluster to ids.
func GPUIDs(v *request.View, gpus []int) []string {
	var ids []string
	for _, u := range gpus {
		ids = append(ids, v.Cluster.GPU(u).ID)
	}
	return ids
}

// QueueOptions returns the options of the queue.
func (c Config) QueueOptions() queue.Options {
	o := c.Queue
	o.Placement = c.Policy()
	o.Placement.RefuseBad = c.Queue.Placement.RefuseBad
	o.Starts = StartsPerCycle
	return o
}

// StartsPerCycle is the maximum number of decisions that the queue makes in one cycle: starts,
// stops, moves and resizes. Without a limit, new events might have to wait until the placer has
// started or stopped thousands of gangs.
const StartsPerCycle = 256

// Policy returns the placement policy for members of running jobs. Members of a running job accept
// any neighbours on shared GPUs, because the rest of the job waits for them.
func (c Config) Policy() pal.Policy { return queue.Placement(c.Placement) }
