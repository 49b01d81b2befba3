// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/placer/model"
)

// For is the explanation as somebody may know it: see [model.JobStatus.For].
func (e Explanation) For(sees model.Sees) *Explanation {
	if e.Wait != nil {
		now := sees.Wait(*e.Wait)
		e.Reason, e.WaitsFor = model.Rephrase(e.Reason, *e.Wait, now), model.Rephrase(e.WaitsFor, *e.Wait, now)
		e.Wait = &now
	}
	if e.Holders != nil {
		h := *e.Holders
		h.Jobs = slices.Clone(h.Jobs)
		for i := range h.Jobs {
			h.Jobs[i].Job = sees.Name(h.Jobs[i].Job)
		}
		e.Holders = &h
	}
	return &e
}

// For is the GPU as somebody may know it. Why it is in quarantine may tell of jobs and
// tasks, in whichever namespace: that is for operators.
func (g GPU) For(sees model.Sees, operator bool) GPU {
	g.Job = sees.Name(g.Job)
	if g.Quarantine != nil && !operator {
		q := *g.Quarantine
		q.Reason = "something failed on it; what is for operators to know"
		g.Quarantine = &q
	}
	return g
}
