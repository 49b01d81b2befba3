// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// Status is the state as of the last cycle.
func (p *Placer) Status() model.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
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
	s := model.Status{At: now, GPUs: p.m.View.Cluster.NumGPUs(), Free: p.m.View.Cluster.FreeGPUs(), Warnings: slices.Concat(p.warnings, p.ofNodes, p.m.Windows.Warnings(), p.troubled()), Queues: p.m.State.Queues}
	s.InTrouble, s.Allocated, s.Outliers = p.m.CountGPUs(now)
	waits := p.m.WaitsOf(p.m.Queue.Waiting(gang.QueueTime(now), p.m.View.Cluster), p.m.View.Cluster)
	for _, t := range p.m.Sorted() {
		p.m.BeginJob(t.Key)
		s.Jobs = append(s.Jobs, p.m.StatusOf(t, waits))
	}
	p.m.EndJob()
	p.mu.Lock()
	p.status = s
	p.mu.Unlock()
}
