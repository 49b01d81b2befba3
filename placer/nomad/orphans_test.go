// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"
)

// Whatever happens in whichever order, the orphans are the live allocations
// with GPUs whose job is not there.
func TestOrphans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewState()
		index := uint64(0)
		key := rapid.Custom(func(t *rapid.T) JobKey {
			return JobKey{"default", fmt.Sprint("j", rapid.IntRange(0, 2).Draw(t, "job"))}
		})
		t.Repeat(map[string]func(*rapid.T){
			"put a job": func(t *rapid.T) {
				k := key.Draw(t, "key")
				index++
				s.PutJob(orphanJob(k, index, rapid.Bool().Draw(t, "GPUs")))
			},
			"drop a job": func(t *rapid.T) { s.dropJob(key.Draw(t, "key")) },
			"put an allocation": func(t *rapid.T) {
				index++
				k := key.Draw(t, "key")
				a := &Alloc{ID: fmt.Sprintf("%s-%d", k.ID, rapid.IntRange(0, 2).Draw(t, "alloc")), Job: k, ModifyIndex: index, Desired: "run"}
				a.Client = rapid.SampledFrom([]string{api.AllocClientStatusRunning, api.AllocClientStatusComplete}).Draw(t, "client")
				if rapid.Bool().Draw(t, "GPUs") {
					a.GPUs = []string{"g"}
				}
				s.PutAlloc(a)
			},
			"drop an allocation": func(t *rapid.T) {
				id := fmt.Sprintf("%s-%d", key.Draw(t, "key").ID, rapid.IntRange(0, 2).Draw(t, "alloc"))
				if a := s.Allocs[id]; a != nil {
					s.dropAlloc(a)
				}
			},
			"": func(t *rapid.T) {
				want, got := []string{}, []string{}
				for _, a := range s.Allocs {
					if s.Jobs[a.Job] == nil && a.Live() && len(a.GPUs) > 0 {
						want = append(want, a.ID)
					}
				}
				slices.Sort(want)
				for _, a := range s.Orphans() {
					got = append(got, a.ID)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("orphans (-want +got):\n%s", d)
				}
			},
		})
	})
}

func orphanJob(k JobKey, index uint64, gpus bool) *api.Job {
	task := &api.Task{Name: "t"}
	if gpus {
		task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu"}}}
	}
	kind, group := "batch", "g"
	return &api.Job{ID: &k.ID, Namespace: &k.Namespace, Type: &kind, CreateIndex: &index, ModifyIndex: &index, JobModifyIndex: &index, TaskGroups: []*api.TaskGroup{{Name: &group, Tasks: []*api.Task{task}}}}
}
