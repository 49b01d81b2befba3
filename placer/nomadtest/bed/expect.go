// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// Members returns the job's allocations that should keep running.
func (w *World) Members(k nomadtest.Key) []nomadtest.Member {
	return slices.DeleteFunc(w.Nomad.Members(k), func(m nomadtest.Member) bool { return !m.Live() })
}

// GPUs returns the GPUs of the job's members, sorted.
func (w *World) GPUs(k nomadtest.Key) []string {
	var out []string
	for _, m := range w.Members(k) {
		out = append(out, m.GPUs...)
	}
	slices.Sort(out)
	return out
}

// Running reports whether all members of a job are running.
func (w *World) Running(k nomadtest.Key) bool {
	job, n := w.Nomad.Job(k), 0
	if job == nil {
		return false
	}
	for _, a := range w.Members(k) {
		if a.Client == api.AllocClientStatusRunning {
			n++
		}
	}
	want := 0
	for _, g := range job.TaskGroups {
		want += *g.Count
	}
	return n == want
}

// Finished reports whether all members of a job have finished since its author last registered it.
func (w *World) Finished(k nomadtest.Key) bool { return w.rules.finished(k) }

// Expect fails the test if ok does not return true within the given time.
func (w *World) Expect(what string, within time.Duration, ok func() bool) {
	w.T.Helper()
	if !w.Until(within, ok) {
		w.T.Fatalf("after %v still not: %s\n%s", within, what, w.Describe())
	}
}

// ExpectRunning fails the test unless all members of a job in the namespace "default" run within
// the given time.
func (w *World) ExpectRunning(name string, within time.Duration) {
	w.T.Helper()
	w.Expect(name+" runs", within, func() bool { return w.Running(Key(name)) })
}

// ExpectFinished fails the test unless all members of a job finish within the given time.
func (w *World) ExpectFinished(name string, within time.Duration) {
	w.T.Helper()
	w.Expect(name+" has finished", within, func() bool { return w.Finished(Key(name)) })
}

// ExpectGone fails the test if a job still has members after the given time.
func (w *World) ExpectGone(name string, within time.Duration) {
	w.T.Helper()
	w.Expect(name+" has no members", within, func() bool { return len(w.Members(Key(name))) == 0 })
}

// ExpectWaiting fails the test if a job has a member at any moment within the given time.
func (w *World) ExpectWaiting(name string, during time.Duration) {
	w.T.Helper()
	if w.Until(during, func() bool { return len(w.Members(Key(name))) > 0 }) {
		w.T.Fatalf("%s should have waited:\n%s", name, w.Describe())
	}
}

// Describe returns a text that lists the jobs in Nomad and their states in the placers.
func (w *World) Describe() string {
	var b strings.Builder
	for _, k := range w.Nomad.Jobs() {
		j := w.Nomad.Job(k)
		fmt.Fprintf(&b, "%s: %s, version %d, %s\n", k, *j.Status, *j.Version, Carries(j))
		for _, m := range w.Nomad.Members(k) {
			fmt.Fprintf(&b, "  %s[%d] %s, to %s, version %d, on %s: %v\n", m.Group, m.Number, m.Client, m.Desired, *m.Version.Version, m.Node, m.GPUs)
		}
		for _, e := range w.Nomad.Evaluations(k) {
			fmt.Fprintf(&b, "  evaluation %s: %s, %d groups not placed\n", e.TriggeredBy, e.Status, len(e.FailedTGAllocs))
		}
	}
	for _, p := range w.placers {
		for _, j := range p.Status().Jobs {
			fmt.Fprintf(&b, "%s: %s/%s %s: %s\n", p.Name, j.Namespace, j.Job, j.State, j.Reason.String())
		}
	}
	return b.String()
}
