// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A job with a group without GPUs that no node can take is unschedulable for the placer at work, and holds
// nobody up. It starts once a node comes that can take the group.
func TestGroupWithoutGPUsThatNoNodeTakes(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // of the bubble
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		beside := bed.Gang{Name: "beside", Members: 1, GPUs: 4, Runs: time.Hour, Change: func(j *api.Job) {
			web := *j.TaskGroups[0]
			web.Name, web.Count = new("web"), new(1)
			task := *web.Tasks[0]
			task.Driver, task.Resources = "java", &api.Resources{CPU: new(100), MemoryMB: new(100)}
			web.Tasks = []*api.Task{&task}
			j.TaskGroups = append(j.TaskGroups, &web)
		}}
		w.Submit(beside)
		w.RunFor(3 * time.Second)
		const why = `no node can take a member of group "web": missing drivers: java`
		status := func() (gang.State, string) {
			for _, j := range p.Status().Jobs {
				if j.Job == "beside" {
					return j.State, j.Reason
				}
			}
			return "", ""
		}
		if state, reason := status(); state != gang.Unschedulable || !strings.HasPrefix(reason, why) {
			t.Errorf("it is %s: %s", state, reason)
		}
		e, err := snapshot(w).Explain(t.Context(), nomad.JobKey{Namespace: "default", ID: "beside"})
		if err != nil || e.State != gang.Unschedulable || !strings.HasPrefix(e.Reason, why) || len(e.Remedies) != 1 {
			t.Errorf("explain: %+v, %v", e, err)
		}
		w.Submit(bed.Gang{Name: "next", Members: 1, GPUs: 1, Runs: time.Minute})
		w.ExpectRunning("next", 10*time.Second)
		w.RunFor(2 * time.Minute)
		if state, reason := status(); state != gang.Unschedulable {
			t.Errorf("later it is %s: %s", state, reason)
		}
		w.Nomad.AddNode(&api.Node{ID: "java", Drivers: map[string]*api.DriverInfo{"java": {Detected: true, Healthy: true}}})
		w.ExpectRunning("beside", 30*time.Second)
	})
}
