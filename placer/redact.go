// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Sees says whether somebody may know of the jobs of a namespace.
type Sees func(namespace string) bool

// Unseen stands for a job in a namespace that the one who asks cannot see.
const Unseen = "(a job that the token cannot see)"

// name is a job's name, namespace/id, as somebody may know it.
func (sees Sees) name(job string) string {
	namespace, _, ok := strings.Cut(job, "/") // no namespace has a slash
	if job == "" || ok && sees(namespace) {
		return job
	}
	return Unseen
}

func (sees Sees) wait(w queue.Wait) queue.Wait {
	w.Ahead = sees.name(w.Ahead)
	stopping := w.Stopping
	w.Stopping = nil
	for _, job := range stopping {
		w.Stopping = append(w.Stopping, sees.name(job))
	}
	return w
}

// For is the status as somebody may know it who may know of the job: the jobs of
// namespaces that he cannot see are not named in it.
func (j JobStatus) For(sees Sees) JobStatus {
	was := j.waiting
	j.waiting = sees.wait(was)
	j.Reason = rephrase(j.Reason, was, j.waiting)
	return j
}

// For is likewise of an explanation.
func (e Explanation) For(sees Sees) *Explanation {
	if e.Wait != nil {
		now := sees.wait(*e.Wait)
		e.Reason, e.WaitsFor = rephrase(e.Reason, *e.Wait, now), rephrase(e.WaitsFor, *e.Wait, now)
		e.Wait = &now
	}
	if e.Holders != nil {
		h := *e.Holders
		h.Jobs = slices.Clone(h.Jobs)
		for i := range h.Jobs {
			h.Jobs[i].Job = sees.name(h.Jobs[i].Job)
		}
		e.Holders = &h
	}
	return &e
}

// rephrase says within a text what is waited for as it is now, instead of as it
// was.
func rephrase(text string, was, now queue.Wait) string {
	if was.Reason == "" {
		return text
	}
	trim := func(w queue.Wait) string { return strings.TrimPrefix(w.Why(), "waits: ") }
	return strings.ReplaceAll(text, trim(was), trim(now))
}

// For is likewise of a GPU. Why it is kept out may tell of jobs and tasks, in
// whichever namespace: that is for operators.
func (g GPU) For(sees Sees, operator bool) GPU {
	g.Job = sees.name(g.Job)
	if g.Quarantine != nil && !operator {
		q := *g.Quarantine
		q.Reason = "something failed on it; what is for operators to know"
		g.Quarantine = &q
	}
	return g
}
