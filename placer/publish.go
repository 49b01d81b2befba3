// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Status is what the agent shows of the placer's work.
type Status struct {
	At   time.Time   `json:"at"`
	Jobs []JobStatus `json:"jobs"`
	GPUs int         `json:"gpus"`
	Free int         `json:"free"`
	// Warnings are about Nomad itself and its nodes, for operators.
	Warnings []string `json:"warnings,omitempty"`
	// Queues are Nomad's own that are in the way.
	Queues nomad.BatchQueues `json:"batch_queues,omitempty"`
}

// JobStatus is one job of the placer's.
type JobStatus struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Phase     Phase  `json:"phase"`
	// Position in the queue, from 1; 0 where it does not wait.
	Position int    `json:"position,omitempty"`
	GPUs     int    `json:"gpus"`
	Class    string `json:"class,omitempty"`
	// Reason is why it waits, or cannot be served.
	Reason    string    `json:"reason,omitempty"`
	Submitted time.Time `json:"submitted"`
	// StartFrom and StartTo are between when it is expected to start, where that
	// can be foretold.
	StartFrom time.Time `json:"start_from,omitzero"`
	StartTo   time.Time `json:"start_to,omitzero"`

	waiting queue.Wait // what Reason says in words, where it waits
}

// wait takes over what the queue says of a waiting job.
func (j *JobStatus) wait(w queue.Wait) {
	j.Position, j.Reason, j.waiting = w.Position, w.Why(), w
	if w.To > 0 {
		j.StartFrom, j.StartTo = time.Unix(0, int64(w.From)), time.Unix(0, int64(w.To))
	}
}

// Status is the state as of the last cycle.
func (p *Placer) Status() Status {
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
	s := Status{At: now, GPUs: p.view.Cluster.NumGPUs(), Free: p.view.Cluster.FreeGPUs(), Warnings: slices.Concat(p.warnings, p.ofNodes, p.troubled()), Queues: p.state.Queues}
	waits := map[string]queue.Wait{}
	for _, w := range p.line.Waiting(since(now), p.view.Cluster) {
		waits[w.Job] = w
	}
	for _, t := range p.sorted() {
		if t.Phase == Rejected {
			s.Jobs = append(s.Jobs, JobStatus{Namespace: t.Key.Namespace, Job: t.Key.ID, Phase: Rejected, Reason: t.refused.Error()})
			continue
		}
		p.on(t.Key)
		j := JobStatus{
			Namespace: t.Key.Namespace, Job: t.Key.ID, Phase: t.Phase, GPUs: t.request.Gang.GPUs(),
			Class: string(t.request.Gang.Class), Submitted: t.submitted(), Reason: t.lastFail,
		}
		if w, ok := waits[t.Key.String()]; ok {
			j.wait(w)
			j.Reason = cmp.Or(t.lastFail, j.Reason)
		}
		if t.refused != nil {
			j.Reason = t.refused.Error()
		}
		s.Jobs = append(s.Jobs, j)
	}
	p.off()
	p.mu.Lock()
	p.status = s
	p.mu.Unlock()
}

// prune removes the records of jobs that Nomad does not know any more.
func (p *Placer) prune(ctx context.Context) error {
	vars, err := p.nomad.ListVariables(ctx, decisionsPath+"/")
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for k := range p.state.Jobs {
		keep[recordPath(k)] = true
	}
	for k := range p.state.Unread {
		keep[recordPath(k)] = true
	}
	for _, v := range vars {
		if !keep[v.Path] && strings.HasPrefix(v.Path, decisionsPath+"/") {
			if err := p.nomad.DeleteVariable(ctx, v.Path); err != nil {
				return err
			}
		}
	}
	return nil
}
