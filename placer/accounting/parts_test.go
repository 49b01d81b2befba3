// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"maps"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// A part of a GPU with n parts counts as 1/n of a GPU, while it is held and afterwards, however
// many parts the other GPUs have.
func TestPartsOfGPUs(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		groups := []pal.DeviceGroup{{Name: "nvidia/gpu/H100", GPUs: []pal.GPU{{ID: "whole"}}}}
		for gpu, parts := range map[string]int{"four": 4, "two": 2} {
			of := pal.DeviceGroup{Name: "nvidia/gpu.shared/H100", Shared: true}
			for n := range parts {
				of.GPUs = append(of.GPUs, pal.GPU{ID: attr.PartID(gpu, n)})
			}
			groups = append(groups, of)
		}
		c, err := pal.NewCluster([]pal.Node{{ID: "n", Groups: groups}}, pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		m := &model.Model{Time: at(4), State: cluster.NewState(), View: &request.View{Ledger: &ledger.Ledger{Cluster: c}}}
		for namespace, ids := range map[string][]string{
			"quarter": {attr.PartID("four", 2)}, "half": {attr.PartID("two", 0)}, "whole": {"whole"},
			"mixed": {attr.PartID("four", 0), attr.PartID("four", 1), attr.PartID("two", 1)},
		} {
			m.State.Allocs[namespace] = &cluster.Alloc{ID: namespace, Job: cluster.JobKey{Namespace: namespace, ID: "job"}, Node: "n", GPUs: ids,
				Client: api.AllocClientStatusRunning, CreateTime: at(0).UnixNano(), ModifyTime: at(0).UnixNano(), ModifyIndex: 1}
		}
		r := NewRecorder(nil, nil, 0)
		look := func() {
			b := r.Look(m, nil)
			write(t, db, b)
			r.Written(b, m)
		}
		check := func(when string, hours float64) {
			t.Helper()
			got, want := map[string]float64{}, map[string]float64{"quarter": hours / 4, "half": hours / 2, "whole": hours, "mixed": hours}
			for _, u := range usage(t, db, Filter{}, at(4), "namespace") {
				got[u.Of[0]] = u.GPUHours
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: %v GPU hours, want %v", when, got, want)
			}
		}
		look()
		check("while they run", 4)
		for _, a := range m.State.Allocs {
			a.Client, a.ModifyTime, a.ModifyIndex = api.AllocClientStatusComplete, at(8).UnixNano(), 2
		}
		look()
		look()
		check("after their ends", 8)
	})
}

// The GPUs that each member requests are stored if all members request the same.
func TestMemberGPUs(t *testing.T) {
	for want, sets := range map[int][]pal.MemberSet{
		0: {{Members: 1, GPUs: 2}, {Members: 2, GPUs: 4}}, 4: {{Members: 1, GPUs: 4}, {Members: 3, GPUs: 4}}, 8: {{Members: 2, GPUs: 8}},
	} {
		var r palapi.Run
		q := request.Request{Job: batchJob(), Gang: pal.Gang{Class: pal.ClassB, MemberSets: sets}}
		q.Hints.Preempt = want == 8
		if setRequest(&r, cluster.NewState(), q); r.MemberGPUs != want || r.Preemptible != (want == 8) || r.GPUs != q.Gang.GPUs() || r.Class != "B" {
			t.Errorf("%+v of %+v", r, sets)
		}
	}
}

func batchJob() *api.Job {
	j := api.NewBatchJob("job", "job", "global", 50)
	j.Namespace, j.Version, j.JobModifyIndex = new("research"), new(uint64(0)), new(uint64(1))
	return j
}

// A run keeps its number of requested GPUs while its members finish one by one, and
// afterwards.
func TestFinishedMembersCount(t *testing.T) {
	j, s := batchJob(), cluster.NewState()
	request := func(left int) request.Request {
		return request.Request{Job: j, Gang: pal.Gang{Class: pal.ClassB, MemberSets: []pal.MemberSet{{Members: left, GPUs: 2}}}}
	}
	var r, late palapi.Run
	setRequest(&r, s, request(3))
	for n := range 3 {
		id := string('a' + rune(n))
		s.ByJob[cluster.KeyOf(j)] = map[string]*cluster.Alloc{}
		s.Allocs[id] = &cluster.Alloc{ID: id, Job: cluster.KeyOf(j), GPUs: []string{id + "0", id + "1"}, Version: new(uint64(0)), ModifyIndex: 2,
			Client: api.AllocClientStatusComplete, Desired: api.AllocDesiredStatusRun}
		for id, a := range s.Allocs {
			s.ByJob[cluster.KeyOf(j)][id] = a
		}
		if setRequest(&r, s, request(2-n)); r.GPUs != 6 {
			t.Errorf("after %d have finished: %d GPUs", n+1, r.GPUs)
		}
	}
	if setRequest(&late, s, request(0)); late.GPUs != 6 {
		t.Errorf("a run that came and ended between two cycles: %d GPUs", late.GPUs)
	}
}

// If Nomad forgets a run while its clock is set back, the run ends when it began, not
// before.
func TestForgottenBeforeItBegan(t *testing.T) {
	run := job("train", "ann")
	r := NewRecorder([]palapi.Run{run}, []Alloc{allocOf(run, "1", at(1), time.Time{}, "running")}, 0)
	b := r.Look(&model.Model{Time: at(-5), State: cluster.NewState(), View: &request.View{}}, nil)
	if len(b.Runs) != 1 || len(b.Allocs) != 1 || !b.Runs[0].Ended.Equal(run.Submitted) || !b.Allocs[0].To.Equal(at(1)) {
		t.Errorf("%+v", b)
	}
}
