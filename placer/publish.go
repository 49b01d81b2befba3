// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"slices"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Status is the state as of the last cycle.
func (p *Placer) Status() model.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Known is where a first snapshot may begin instead of nothing (see [Refresh]): the nodes
// and jobs as of the last full read. It shows nothing by itself; nil before that read.
func (p *Placer) Known() *query.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

func (p *Placer) publishKnown() {
	known := query.New(&model.Model{State: p.m.State.Objects()}, p.nomad, heartbeat.Activity{}, "")
	p.mu.Lock()
	p.known = known
	p.mu.Unlock()
}

// publish makes the state of this cycle visible. What the waiting ones wait for
// takes a look at everything, so it is worked out once a second at most, and
// takes a twentieth of the time at most.
func (p *Placer) publish(now time.Time) {
	p.warnOfNodes()
	if p.unpublished = now.Sub(p.status.At) < max(time.Second, 20*p.publishing); p.unpublished {
		return
	}
	began := time.Now()
	defer func() { p.publishing = time.Since(began) }()
	s := model.Status{At: now, GPUs: p.m.View.Cluster.NumGPUs(), Free: p.m.View.Cluster.FreeGPUs(), Warnings: slices.Concat(p.warnings, p.ofNodes, p.m.Windows.Warnings(), p.m.Denials(), p.failing()), Queues: p.m.State.Queues, Troubles: map[nomad.JobKey]model.Trouble{}}
	s.Jobs = make([]model.JobStatus, 0, len(p.m.Jobs))
	s.InTrouble, s.Allocated, s.Outliers = p.m.CountGPUs(now)
	waits := p.m.WaitsOf(p.m.Queue.Waiting(gang.QueueTime(now), p.m.View.Cluster), p.m.View.Cluster)
	for _, t := range p.m.Sorted() {
		p.m.BeginJob(t.Key)
		s.Jobs = append(s.Jobs, p.m.StatusOf(t, waits))
		if !t.Trouble.IsZero() && (t.Nomad == gang.Waiting || t.Nomad == gang.Starting) {
			s.Troubles[t.Key] = model.Trouble{Why: t.Trouble, Never: t.Never}
		}
	}
	p.m.EndJob()
	p.mu.Lock()
	p.status = s
	p.mu.Unlock()
}

// warnOfQueues says once which queues of Nomad's own are in the way.
func (p *Placer) warnOfQueues() {
	p.warnings = p.tell(p.warnings, p.m.State.Queues.Warnings(), func(w string) { p.log.Warn(w) }, "no batch queue of Nomad's own is in the way any more")
}

// warnOfNodes says once what of the nodes' own data is left out.
func (p *Placer) warnOfNodes() {
	p.ofNodes = p.tell(p.ofNodes, p.m.State.NodeWarnings(), func(w string) { p.log.Warn("a node's data is left out", "why", w) }, "no node's data is left out any more")
}

// tell logs the warnings that were not told before, and that none is left. It returns those
// that are told now.
func (p *Placer) tell(told, warnings []string, warn func(string), none string) []string {
	for _, w := range warnings {
		if !slices.Contains(told, w) {
			warn(w)
		}
	}
	if len(warnings) == 0 && len(told) > 0 {
		p.log.Info(none)
	}
	return warnings
}

// warnOfOldNomad says once what an old Nomad does to gangs.
func (p *Placer) warnOfOldNomad() {
	low := p.m.State.OldestNomad()
	if p.warned || low == nil || !low.LessThan(version.Must(version.NewVersion(nomad.ExactPins))) {
		return
	}
	p.warned = true
	p.log.Warn("this Nomad may start members with fewer GPUs than they ask for (hashicorp/nomad#18364); such gangs are requeued and tried again",
		"version", low, "mended_in", nomad.ExactPins)
}
