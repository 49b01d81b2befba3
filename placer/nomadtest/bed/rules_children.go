// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// array describes the runs of one parameterized or periodic job: how many of them have GPUs
// (running), and the maximum number (most).
type array struct {
	running, most int
	// since is the time since which the limit has been exceeded. unknowable is true if a placer
	// could not know about runs that another placer had just started.
	since      time.Time
	unknowable bool
}

// countArrays returns the array of each parameterized or periodic job whose runs have GPUs.
func (r *rules) countArrays(keys []nomadtest.Key) map[nomadtest.Key]*array {
	out := map[nomadtest.Key]*array{}
	for _, k := range keys {
		job := r.w.Nomad.Job(k)
		if job == nil || job.ParentID == nil || *job.ParentID == "" || !ours(job) {
			continue
		}
		h, err := rewrite.ParseHints(job)
		has := slices.ContainsFunc(r.w.Nomad.Members(k), func(m nomadtest.Member) bool { return m.Live() && len(m.GPUs) > 0 })
		if err != nil || h.Parallel <= 0 || !has {
			continue
		}
		template := nomadtest.Key{Namespace: k.Namespace, ID: *job.ParentID}
		a := cmp.Or(out[template], &array{})
		a.running, a.most = a.running+1, max(a.most, h.Parallel) // the author may have changed the limit
		out[template] = a
	}
	return out
}

// lookAtArrays reports whether the runs of any parameterized or periodic job exceed their limit.
// lookAtArrays reports a violation if the limit has been exceeded for too long. The caller holds
// r.mu.
func (r *rules) lookAtArrays(now map[nomadtest.Key]*array) (beyond bool) {
	for _, k := range slices.SortedFunc(maps.Keys(now), cluster.JobKey.Compare) {
		a, was := now[k], r.arrays[k]
		if a.running <= a.most {
			continue
		}
		beyond = true
		if a.since, a.unknowable = time.Now(), time.Since(r.rerun) < longCycle || time.Since(r.bothStarted) < longCycle; was != nil && !was.since.IsZero() {
			a.since, a.unknowable = was.since, was.unknowable
		}
		if time.Since(a.since) > beyondLimit && !a.unknowable {
			r.violated("%d children of %s have held GPUs, above the limit of %d, since %s", a.running, k, a.most, a.since.Format("15:04:05"))
			a.since = time.Now()
		}
	}
	r.arrays = now
	return beyond
}
