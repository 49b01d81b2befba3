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

// Members are the job's allocations that are there and are to go on.
func (w *World) Members(k nomadtest.Key) []*api.Allocation {
	return slices.DeleteFunc(w.Nomad.Allocations(k), func(a *api.Allocation) bool {
		return ended(a) || a.DesiredStatus != api.AllocDesiredStatusRun
	})
}

func ended(a *api.Allocation) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}

// GPUs are the GPUs that the job's members have, sorted.
func (w *World) GPUs(k nomadtest.Key) []string {
	var out []string
	for _, a := range w.Members(k) {
		out = append(out, gpusOf(a)...)
	}
	slices.Sort(out)
	return out
}

func gpusOf(a *api.Allocation) (out []string) {
	for _, t := range a.AllocatedResources.Tasks {
		for _, d := range t.Devices {
			out = append(out, d.DeviceIDs...)
		}
	}
	return out
}

// Running says whether all members of a job run.
func (w *World) Running(k nomadtest.Key) bool {
	job, n := w.Nomad.Job(k), 0
	if job == nil {
		return false
	}
	for _, a := range w.Members(k) {
		if a.ClientStatus == api.AllocClientStatusRunning {
			n++
		}
	}
	want := 0
	for _, g := range job.TaskGroups {
		want += *g.Count
	}
	return n == want
}

// Finished says whether all members of a job have done their work since its
// author registered it last.
func (w *World) Finished(k nomadtest.Key) bool { return w.rules.finished(k) }

// Expect fails the test where it does not come to be in time.
func (w *World) Expect(what string, within time.Duration, ok func() bool) {
	w.T.Helper()
	if !w.Until(within, ok) {
		w.T.Fatalf("after %v still not: %s\n%s", within, what, w.Describe())
	}
}

// ExpectRunning expects all members of a job of namespace "default" to run.
func (w *World) ExpectRunning(name string, within time.Duration) {
	w.T.Helper()
	w.Expect(name+" runs", within, func() bool { return w.Running(Key(name)) })
}

// ExpectFinished expects a job's members to have done their work.
func (w *World) ExpectFinished(name string, within time.Duration) {
	w.T.Helper()
	w.Expect(name+" has finished", within, func() bool { return w.Finished(Key(name)) })
}

// ExpectGone expects a job to have no members.
func (w *World) ExpectGone(name string, within time.Duration) {
	w.T.Helper()
	w.Expect(name+" has no members", within, func() bool { return len(w.Members(Key(name))) == 0 })
}

// ExpectWaiting expects a job to have no members all the time.
func (w *World) ExpectWaiting(name string, during time.Duration) {
	w.T.Helper()
	if w.Until(during, func() bool { return len(w.Members(Key(name))) > 0 }) {
		w.T.Fatalf("%s was to wait:\n%s", name, w.Describe())
	}
}

// Describe is what Nomad has, as text.
func (w *World) Describe() string {
	var b strings.Builder
	for _, k := range w.Nomad.Jobs() {
		j := w.Nomad.Job(k)
		fmt.Fprintf(&b, "%s: %s, version %d, %s\n", k, *j.Status, *j.Version, rules1(j))
		for _, a := range w.Nomad.Allocations(k) {
			fmt.Fprintf(&b, "  %s %s, to %s, version %d, on %s: %v\n", a.Name, a.ClientStatus, a.DesiredStatus, *a.Job.Version, a.NodeName, gpusOf(a))
		}
		for _, e := range w.Nomad.Evaluations(k) {
			fmt.Fprintf(&b, "  evaluation %s: %s, %d groups not placed\n", e.TriggeredBy, e.Status, len(e.FailedTGAllocs))
		}
	}
	for _, p := range w.placers {
		for _, j := range p.Status().Jobs {
			fmt.Fprintf(&b, "%s: %s/%s %s: %s\n", p.Name, j.Namespace, j.Job, j.Phase, j.Reason)
		}
	}
	return b.String()
}
