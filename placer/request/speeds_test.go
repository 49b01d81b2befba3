// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
)

// Speeds of a job are its author's, else by the rates that the nodes publish; of models that it may
// use only, and none where there is one such model.
func TestSpeeds(t *testing.T) {
	const a, b, c = "nvidia/gpu/A100", "nvidia/gpu/T4", "nvidia/gpu/K80"
	for _, tc := range []struct {
		name, meta, device string
		rates              []string // of the nodes' first GPUs; the models are A100, A100, T4, K80
		want               pal.Speeds
		from, err          string
	}{
		{name: "nobody measured"},
		{name: "one model measured", rates: []string{"A=100"}},
		{name: "medians", rates: []string{"A=100 B=50", "A=300", "A=20 B=25", ""}, want: pal.Speeds{a: 1, b: 0.1}, from: "measured rates of class A"},
		{name: "of the class", meta: `pal_class = "B"`, rates: []string{"A=100 B=50", "A=300", "A=20 B=25", "A=2 B=5"}, want: pal.Speeds{a: 1, b: 0.5, c: 0.1}, from: "measured rates of class B"},
		{name: "three digits", rates: []string{"A=3", "A=3", "A=1", ""}, want: pal.Speeds{a: 1, b: 0.333}, from: "measured rates of class A"},
		{name: "what cannot be read", rates: []string{"A=100", "A=fast", "A=20", ""}, want: pal.Speeds{a: 1, b: 0.2}, from: "measured rates of class A"},
		{name: "its author", meta: `pal_speed = "T4=1, A100 = 2,P4=9"`, rates: []string{"A=100", "A=100", "A=20", "A=2"}, want: pal.Speeds{a: 1, b: 0.5}, from: "the job says so (pal_speed)"},
		{name: "its author, of one model here", meta: `pal_speed = "T4=1,P4=9"`},
		{name: "one model asked for", device: `device "nvidia/gpu/A100" {`, rates: []string{"A=100", "A=100", "A=20", "A=2"}},
		{name: "no such model", meta: `pal_speed = "T5=1,P4=9"`, err: "names no GPU model of this cluster; it has A100, K80, T4"},
		{name: "one model", meta: `pal_speed = "T4=1"`, err: "names one model"},
		{name: "no number", meta: `pal_speed = "T4=1,K80=slow"`, err: "slow is no speed of K80"},
		{name: "no speed", meta: `pal_speed = "T4=1,K80=0"`, err: "0 is no speed of K80"},
		{name: "twice", meta: `pal_speed = "T4=1,T4=2"`, err: "T4 is there twice"},
		{name: "no pair", meta: `pal_speed = "T4"`, err: `"T4" is not MODEL=SPEED`},
	} {
		s := world(4)
		for i, model := range []string{"A100", "A100", "T4", "K80"} {
			d := s.Nodes[fmt.Sprintf("id-%d", i)].NodeResources.Devices[0]
			d.Name = model
			if i < len(tc.rates) && tc.rates[i] != "" {
				d.Attributes[attr.Rates] = clustertest.Text(fmt.Sprintf("n%d-0 %s;GPU-of-another-node A=1e9", i, tc.rates[i]))
			}
		}
		hcl := clustertest.Jobspec("j", 1, 1, "meta {\n"+tc.meta+"\n}")
		if tc.device != "" {
			hcl = strings.Replace(hcl, `device "nvidia/gpu" {`, tc.device, 1)
		}
		job := addJob(t, s, hcl, 1)
		v, err := NewView(s, Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7)}, DefaultClass: pal.ClassA})
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
		if diff := cmp.Diff(tc.want, r.Gang.Speeds); diff != "" || r.SpeedsFrom != tc.from {
			t.Errorf("%s: from %q %s", tc.name, r.SpeedsFrom, diff)
		}
	}
}
