// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// ofRuns turns the runs of the agent's history into a trace for a cluster.
func ofRuns(runs []palapi.Run, c *pal.Cluster) trace.Trace {
	t := trace.Trace{Name: "the agent's history"}
	fits := map[[2]int]bool{} // cache: whether a gang with this number of GPUs, and of GPUs per member, fits
	for _, r := range runs {
		j := jobOf(r)
		reason := whyNot(r, j)
		if reason == "" {
			shape := [2]int{j.GPUs, j.MemberGPUs}
			_, known := fits[shape]
			if !known {
				_, fits[shape] = pal.Place(c, sim.GangOf(j), pal.Policy{Name: pal.Packed})
			}
			if !fits[shape] {
				reason = "larger than the cluster"
			}
		}
		if reason != "" {
			t.Skip(reason, j)
			continue
		}
		t.Jobs = append(t.Jobs, j)
	}
	t.Rebase()
	return t
}

// jobOf turns a run into a job. The job's work is the duration of the run, divided by the predicted
// slowdown on its GPUs.
func jobOf(r palapi.Run) trace.Job {
	class := pal.ClassA
	if c, err := pal.ParseAppClass(r.Class); err == nil {
		class = c
	}
	work := ranFor(r).Seconds()
	if r.Predicted > 0 {
		work /= r.Predicted
	}
	return trace.Job{ID: fmt.Sprintf("%s/%s@%s", r.Namespace, r.Job, r.Submitted.UTC().Format("2006-01-02T15:04:05.000Z")),
		Name: cmp.Or(r.Family, r.Job), Tenant: r.Namespace, Class: class, GPUs: r.GPUs, MemberGPUs: r.MemberGPUs,
		SubmitS: float64(r.Submitted.UnixMilli()) / 1e3, Iterations: work, IterTimeS: 1, Preemptible: r.Preemptible}
}

// ranFor returns how long all members of an ended run ran together. Waits before the first start
// and after stops do not count.
func ranFor(r palapi.Run) time.Duration {
	if r.Took > 0 {
		return time.Duration(r.Took)
	}
	ran := r.Ended.Sub(r.Submitted) - time.Duration(r.Waited)
	if r.Whole.After(r.Started) && r.Whole.Before(r.Ended) { // otherwise the run ended before the agent saw all members running
		ran -= r.Whole.Sub(r.Started)
	}
	return ran
}

// whyNot returns why a run is left out of the trace; "" if the run is in the trace.
func whyNot(r palapi.Run, j trace.Job) string {
	switch {
	case r.State == palapi.RunPending:
		return "still waiting"
	case r.State == palapi.RunRunning:
		return "still running"
	case r.State == palapi.RunUnknown || r.Ended.IsZero():
		return "no end"
	case r.GPUs < 1:
		return "no GPU"
	case strings.Contains(r.Model, attr.SharedSuffix) || cluster.IsMIG(&api.NodeDeviceResource{Name: r.Model}):
		return "only parts of GPUs" // the simulator knows only whole GPUs
	case r.Started.IsZero():
		return "never started"
	case !(j.WorkS() > 0):
		return "no run time"
	}
	return ""
}
