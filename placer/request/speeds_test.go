// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
)

// A job's speeds come from earlier runs of its name, else from its author, else from the rates that
// nodes publish. They cover only models that the job may use; if there is only one, it has no speeds.
func TestSpeeds(t *testing.T) {
	const a, b, c = "nvidia/gpu/A100", "nvidia/gpu/T4", "nvidia/gpu/K80"
	said := map[string]string{a: "pal_speed", b: "pal_speed"}
	ran := func(runsA, minutesA, runsB, minutesB, runsC, minutesC int) map[string]queue.ModelRuns {
		all := map[string]queue.ModelRuns{a: {Runs: runsA, Time: time.Duration(minutesA) * time.Minute}, b: {Runs: runsB, Time: time.Duration(minutesB) * time.Minute}, c: {Runs: runsC, Time: time.Duration(minutesC) * time.Minute}}
		maps.DeleteFunc(all, func(_ string, r queue.ModelRuns) bool { return r.Runs == 0 })
		return all
	}
	for _, tc := range []struct {
		name, meta, device string
		rates              []string // of the nodes' first GPUs; the models are A100, A100, T4, K80
		runs               map[string]queue.ModelRuns
		want               pal.Speeds
		from               map[string]string
		err                string
	}{
		{name: "nobody measured"},
		{name: "one model measured", rates: []string{"A=100"}},
		{name: "medians", rates: []string{"A=100 B=50", "A=300", "A=20 B=25", ""}, want: pal.Speeds{a: 1, b: 0.1}, from: map[string]string{a: "class A, measured on 2 GPUs", b: "class A, measured on 1 GPU"}},
		{name: "of the class", meta: `pal_class = "B"`, rates: []string{"A=100 B=50", "A=300", "A=20 B=25", "A=2 B=5"}, want: pal.Speeds{a: 1, b: 0.5, c: 0.1}, from: map[string]string{a: "class B, measured on 1 GPU", b: "class B, measured on 1 GPU", c: "class B, measured on 1 GPU"}},
		{name: "three digits", rates: []string{"A=3", "A=3", "A=1", ""}, want: pal.Speeds{a: 1, b: 0.333}, from: map[string]string{a: "class A, measured on 2 GPUs", b: "class A, measured on 1 GPU"}},
		{name: "what cannot be read", rates: []string{"A=100", "A=fast", "A=20", ""}, want: pal.Speeds{a: 1, b: 0.2}, from: map[string]string{a: "class A, measured on 1 GPU", b: "class A, measured on 1 GPU"}},
		{name: "its author", meta: `pal_speed = "T4=1, A100 = 2,P4=9"`, rates: []string{"A=100", "A=100", "A=20", "A=2"}, want: pal.Speeds{a: 1, b: 0.5}, from: said},
		{name: "its author, of one model here", meta: `pal_speed = "T4=1,P4=9"`},
		{name: "runs", runs: ran(4, 10, 3, 50, 3, 99), want: pal.Speeds{a: 1, b: 0.2, c: 0.1}, from: map[string]string{a: "4 runs", b: "3 runs", c: "3 runs"}},
		{name: "runs on one model", runs: ran(9, 10, 0, 0, 0, 0)},
		{name: "too few runs", runs: ran(9, 10, 2, 50, 0, 0)},
		{name: "runs come before its author", meta: `pal_speed = "T4=1,A100=2"`, runs: ran(3, 10, 3, 50, 0, 0), want: pal.Speeds{a: 1, b: 0.2}, from: map[string]string{a: "3 runs", b: "3 runs"}},
		{name: "runs on one model tell nothing more than its author", meta: `pal_speed = "T4=1,A100=2"`, runs: ran(3, 10, 0, 0, 0, 0), want: pal.Speeds{a: 1, b: 0.5}, from: said},
		{name: "of a model without runs its author's, to their scale", meta: `pal_speed = "T4=5,A100=10,K80=1"`, runs: ran(3, 10, 3, 20, 0, 0), want: pal.Speeds{a: 1, b: 0.5, c: 0.1}, from: map[string]string{a: "3 runs", b: "3 runs", c: "pal_speed"}},
		{name: "few runs count in part", meta: `pal_speed = "T4=1,A100=2"`, runs: ran(3, 10, 1, 80, 0, 0), want: pal.Speeds{a: 1, b: 0.25}, from: map[string]string{a: "3 runs", b: "1 run, and pal_speed"}},
		{name: "runs on a model of which its author says nothing", meta: `pal_speed = "T4=1,K80=2"`, runs: ran(3, 10, 0, 0, 2, 20), want: pal.Speeds{a: 1, b: 0.25, c: 0.5}, from: map[string]string{a: "3 runs", b: "pal_speed", c: "2 runs, and pal_speed"}},
		{name: "runs on no model of which its author says something", meta: `pal_speed = "T4=1,K80=2"`, runs: ran(3, 10, 0, 0, 0, 0), want: pal.Speeds{b: 0.5, c: 1}, from: map[string]string{b: "pal_speed", c: "pal_speed"}},
		{name: "runs, one model asked for", device: `device "nvidia/gpu/A100" {`, runs: ran(4, 10, 3, 50, 3, 99)},
		{name: "one model asked for", device: `device "nvidia/gpu/A100" {`, rates: []string{"A=100", "A=100", "A=20", "A=2"}},
		{name: "no such model", meta: `pal_speed = "T5=1,P4=9"`, err: "contains no GPU model of this cluster; the cluster has A100, K80, T4"},
		{name: "one model", meta: `pal_speed = "T4=1"`, err: "only one model is named"},
		{name: "no number", meta: `pal_speed = "T4=1,K80=slow"`, err: "slow is not a valid speed of K80"},
		{name: "no speed", meta: `pal_speed = "T4=1,K80=0"`, err: "0 is not a valid speed of K80"},
		{name: "twice", meta: `pal_speed = "T4=1,T4=2"`, err: "T4 is listed twice"},
		{name: "no pair", meta: `pal_speed = "T4"`, err: `"T4" is not MODEL=SPEED`},
	} {
		s := world(4)
		for i, model := range []string{"A100", "A100", "T4", "K80"} {
			d := s.Nodes[fmt.Sprintf("id-%d", i)].NodeResources.Devices[0]
			d.Name = model
			if i < len(tc.rates) && tc.rates[i] != "" {
				d.Attributes[attr.Rates] = clustertest.Text(fmt.Sprintf("n%d-0 %s;GPU-of-another-node A=1e9", i, tc.rates[i]))
				d.Attributes[attr.Raw] = clustertest.Text(fmt.Sprintf("n%d-0 key=k A=1 B=1", i))
			}
		}
		hcl := clustertest.Jobspec("j", 1, 1, "meta {\n"+tc.meta+"\n}")
		if tc.device != "" {
			hcl = strings.Replace(hcl, `device "nvidia/gpu" {`, tc.device, 1)
		}
		job := addJob(t, s, hcl, 1)
		samples, _, _ := s.Measurements() // unreadable measurements are left out
		p, err := profile.Build(samples, profile.DefaultOptions(), nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := NewView(s, Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7), Profile: p}, DefaultClass: pal.ClassA, Runs: func(*api.Job, int) queue.PastRuns { return queue.PastRuns{ByModel: tc.runs} }})
		if err != nil {
			t.Fatal(err)
		}
		r, err := v.Request(job)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if diff := cmp.Diff(tc.want, r.Gang.Speeds) + cmp.Diff(tc.from, r.SpeedsFrom); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// However speeds are known, a job runs only where its author's constraints allow: here, memory that a
// small model lacks, and the model's name.
func TestSpeedsAndConstraints(t *testing.T) {
	memory := func(atLeast string) string {
		return "device \"nvidia/gpu\" {\n  constraint {\n    attribute = \"${device.attr.memory}\"\n    operator = \">=\"\n    value = \"" + atLeast + "\"\n  }\n"
	}
	for _, tc := range []struct {
		name, device string
		want         []string // models that it may use
		speeds       pal.Speeds
	}{
		{"no constraint", `device "nvidia/gpu" {`, []string{"A100", "T4", "K80"}, pal.Speeds{"nvidia/gpu/A100": 0.1, "nvidia/gpu/T4": 1, "nvidia/gpu/K80": 0.5}},
		{"all have the memory", memory("8 GiB"), []string{"A100", "T4", "K80"}, pal.Speeds{"nvidia/gpu/A100": 0.1, "nvidia/gpu/T4": 1, "nvidia/gpu/K80": 0.5}},
		{"the fastest lacks the memory", memory("20 GiB"), []string{"A100", "K80"}, pal.Speeds{"nvidia/gpu/A100": 0.2, "nvidia/gpu/K80": 1}},
		{"the slowest has the memory", memory("40 GiB"), []string{"A100"}, nil},
		{"no model has it", memory("200 GiB"), nil, nil},
		{"the slowest by name", `device "nvidia/gpu/A100" {`, []string{"A100"}, nil},
	} {
		s := world(6)
		for i, m := range []struct {
			model string
			mib   int64
		}{{"T4", 16384}, {"K80", 24576}, {"A100", 40960}} {
			for _, n := range []int{i, i + 3} {
				d := s.Nodes[fmt.Sprintf("id-%d", n)].NodeResources.Devices[0]
				d.Name, d.Attributes["memory"] = m.model, &api.Attribute{IntVal: &m.mib, Unit: "MiB"}
			}
		}
		hcl := clustertest.Jobspec("j", 2, 1, "meta {\n  pal_speed = \"A100=1, T4=10, K80=5\"\n}")
		job := addJob(t, s, strings.Replace(hcl, `device "nvidia/gpu" {`, tc.device, 1), 1)
		runs := map[string]queue.ModelRuns{"nvidia/gpu/T4": {Runs: 9, Time: time.Minute}, "nvidia/gpu/A100": {Runs: 9, Time: 10 * time.Minute}, "nvidia/gpu/K80": {Runs: 9, Time: 2 * time.Minute}}
		for _, of := range []map[string]queue.ModelRuns{nil, runs} {
			v, err := NewView(s, Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7)}, DefaultClass: pal.ClassA, Runs: func(*api.Job, int) queue.PastRuns { return queue.PastRuns{ByModel: of} }})
			if err != nil {
				t.Fatal(err)
			}
			r, err := v.Request(job)
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			var may []string
			for i, d := range v.Devices {
				if r.Gang.MemberSets[0].Eligible[i] && !slices.Contains(may, d.Name) {
					may = append(may, d.Name)
				}
			}
			slices.Sort(may)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, may) + cmp.Diff(tc.speeds, r.Gang.Speeds); diff != "" {
				t.Errorf("%s: %s", tc.name, diff)
			}
			for { // until the models that it may use are full
				f, ok := pal.Find(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL})
				if !ok {
					break
				}
				if name := strings.TrimPrefix(f.Model, "nvidia/gpu/"); !slices.Contains(tc.want, name) {
					t.Errorf("%s: it runs on %s", tc.name, name)
				}
				v.Cluster.Take(r.Gang, f.Placement)
			}
		}
	}
}
