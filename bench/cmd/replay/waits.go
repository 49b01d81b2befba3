// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// waits has the total times for which a line's gangs did not run, as means over its repetitions,
// in compressed seconds.
type waits struct {
	Avg     float64 `json:"avg_s"`
	P99     float64 `json:"p99_s"`
	Longest float64 `json:"longest_s"`
	// Overdue is how many gangs waited longer than max_wait.
	Overdue float64 `json:"longer_than_max_wait"`
	// Promised is the longest wait that the queue promised to the gang that waited longest. Used is
	// the largest ratio of a gang's wait to the longest wait that the queue promised to this gang.
	// Under plain Nomad, Promised and Used are 0.
	Promised float64 `json:"promised_s,omitempty"`
	Used     float64 `json:"of_promise,omitempty"`
}

func (l *line) waits(r *report) waits {
	maxWait := time.Duration(float64(cmp.Or(time.Duration(r.MaxWaitS*float64(time.Second)), queue.DefaultMaxWait)) / cmp.Or(r.Compress, 1))
	of := func(f func(replay.Waits) float64) float64 {
		return l.mean(func(raw *replay.Result, _ replay.Summary) float64 {
			return f(raw.Waits(maxWait, queue.DefaultOverdueShare, l.gpus))
		})
	}
	w := waits{
		Avg:     of(func(w replay.Waits) float64 { return w.Avg.Seconds() }),
		P99:     of(func(w replay.Waits) float64 { return w.P99.Seconds() }),
		Longest: of(func(w replay.Waits) float64 { return w.Longest.Seconds() }),
		Overdue: of(func(w replay.Waits) float64 { return float64(w.Overdue) }),
	}
	if !l.theirs() {
		w.Promised = of(func(w replay.Waits) float64 { return w.Promised.Seconds() })
		w.Used = of(func(w replay.Waits) float64 { return w.Used })
	}
	return w
}

const waitsNote = "The time between a gang's submission and its end in which the gang did not run. If a gang never ended, this time lasts until the end of the replay. Promised: the longest wait that the queue promises, in any overload, to the gang that waited longest (see the package comment of pal/queue); L is the longest run of the line."

func (v view) waits() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "average wait", "p99", "longest", "longer than max_wait", "promised to that gang", "most of a promise used"}}
	for _, l := range v.lines {
		promised, used := "–", "–"
		if !l.theirs() {
			promised, used = fmt.Sprintf("%.0f s", l.Waits.Promised), fmt.Sprintf("%.1f %%", 100*l.Waits.Used)
		}
		t.Rows = append(t.Rows, []string{l.title(), fmt.Sprintf("%.1f s", l.Waits.Avg), fmt.Sprintf("%.0f s", l.Waits.P99), fmt.Sprintf("%.0f s", l.Waits.Longest),
			fmt.Sprint(l.Waits.Overdue), promised, used})
	}
	return t
}
