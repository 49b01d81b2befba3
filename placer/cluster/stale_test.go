// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// After any changes in any order, [State.Orphans] and [State.StaleVersions] return what their
// comments say.
func TestStale(t *testing.T) {
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
				job := clustertest.SmallJob(k.ID, index, rapid.Bool().Draw(t, "GPUs"))
				if old := s.Jobs[k]; old != nil && rapid.Bool().Draw(t, "the same job") {
					job.CreateIndex = old.CreateIndex
				}
				s.PutJob(job)
			},
			"drop a job": func(t *rapid.T) { s.DropJob(key.Draw(t, "key")) },
			"put an allocation": func(t *rapid.T) {
				index++
				k := key.Draw(t, "key")
				a := &Alloc{ID: fmt.Sprintf("%s-%d", k.ID, rapid.IntRange(0, 2).Draw(t, "alloc")), Job: k, ModifyIndex: index, Desired: "run"}
				a.Client = rapid.SampledFrom([]string{api.AllocClientStatusRunning, api.AllocClientStatusComplete}).Draw(t, "client")
				if rapid.Bool().Draw(t, "GPUs") {
					a.GPUs = []string{"g"}
				}
				if a.CreateIndex = index; s.Allocs[a.ID] != nil {
					a.CreateIndex = s.Allocs[a.ID].CreateIndex
				}
				if rapid.Bool().Draw(t, "read by itself") {
					a.Version = new(uint64)
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
				var orphans, unversioned, got []string
				for _, a := range s.Allocs {
					switch job := s.Jobs[a.Job]; {
					case (job == nil && len(a.GPUs) > 0 || job != nil && a.CreateIndex < *job.CreateIndex) && a.Client == "running":
						orphans = append(orphans, a.ID)
					case job != nil && a.Client == "complete" && a.Version == nil && a.CreateIndex < *job.JobModifyIndex && *job.JobModifyIndex < a.ModifyIndex:
						unversioned = append(unversioned, a.ID)
					}
				}
				slices.Sort(orphans)
				slices.Sort(unversioned)
				for _, a := range slices.Concat(s.Orphans(), s.StaleVersions()) {
					got = append(got, a.ID)
				}
				if d := cmp.Diff(slices.Concat(orphans, unversioned), got); d != "" {
					t.Fatalf("orphans and stale versions (-want +got):\n%s", d)
				}
			},
		})
	})
}
