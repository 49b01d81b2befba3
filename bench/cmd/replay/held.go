// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// held draws the use of the GPUs in one run under plain Nomad and, below, in one run under the
// placer with the same jobs and GPUs. If plain Nomad deadlocked, held draws the first repetition
// with a deadlock, otherwise the first of all. ok is false if a run is missing.
func (v view) held() (f plot.Figure, ok bool) {
	var theirs, ours *line
	for _, l := range v.lines {
		if l.theirs() && !l.slurm() && theirs == nil {
			theirs = l
		}
		if !l.theirs() && !l.Preemption {
			ours = l // the last of these lines has the default configuration
		}
	}
	if theirs == nil || ours == nil {
		return f, false
	}
	a := theirs.Raw[0]
	for _, raw := range theirs.Raw {
		if raw.Stuck && ours.of(raw.Seed) != nil {
			a = raw
			break
		}
	}
	b := ours.of(a.Seed)
	if b == nil || len(a.Timeline) == 0 || len(b.Timeline) == 0 {
		return f, false
	}
	n := float64(v.GPUs)
	return plot.Areas{
		Name: "replay-held" + v.suffix, Title: v.title("What the GPUs do"), X: plot.Axis{Label: "seconds after the first submission, compressed"},
		Y: plot.Axis{Label: "GPUs", Ticks: []float64{0, n / 4, n / 2, 3 * n / 4, n}}, Bands: []plot.Band{{Name: "run a gang", Colour: plot.Good}, {Name: "held in vain: wait for the rest of the gang", Colour: plot.Bad}},
		Panels: []plot.Panel{v.panel("plain Nomad", a), v.panel("nomad-pal", b)},
	}.Figure(), true
}

func (v view) panel(under string, r *replay.Result) plot.Panel {
	s := r.Summarize(v.GPUs)
	p := plot.Panel{Title: fmt.Sprintf("Under %s: all %d jobs done after %.0f s", under, s.Jobs, s.Makespan.Seconds())}
	if s.Finished < s.Jobs {
		p.Title = fmt.Sprintf("Under %s: deadlock, %d of %d jobs never finish", under, s.Jobs-s.Finished, s.Jobs)
	}
	if s.Finished < s.Jobs && !r.Stuck {
		p.Title = fmt.Sprintf("Under %s: %d of %d jobs not finished after %.0f s", under, s.Jobs-s.Finished, s.Jobs, r.Took.Seconds())
	}
	for _, m := range r.Timeline {
		p.At = append(p.At, m.At.Seconds())
		p.Values = append(p.Values, []float64{float64(m.Busy), float64(m.Held)})
	}
	p.End = r.Took.Seconds()
	return p
}
