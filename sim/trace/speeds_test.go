// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"reflect"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

// On a cluster without its fastest model, a job takes longer. A job that names no model of the
// cluster is left out; a job without speeds is unchanged.
func TestOnModels(t *testing.T) {
	of := pal.Speeds{"A100": 1, "V100": 0.5, "K80": 0.1}
	all := Trace{Jobs: []Job{
		{ID: "said", IterTimeS: 1, Iterations: 60, EstimateS: 80, Speeds: of},
		{ID: "one", IterTimeS: 1, Iterations: 60, Speeds: pal.Speeds{"A100": 1, "V100": 0.5}},
		{ID: "none", IterTimeS: 1, Iterations: 60, Speeds: pal.Speeds{"A100": 1, "H100": 2}},
		{ID: "silent", IterTimeS: 1, Iterations: 60},
	}}
	got := all.OnModels([]string{"nvidia/gpu/V100", "nvidia/gpu/K80"})
	want := []Job{
		{ID: "said", IterTimeS: 2, Iterations: 60, EstimateS: 160, Speeds: pal.Speeds{"nvidia/gpu/V100": 1, "nvidia/gpu/K80": 0.2}},
		{ID: "one", IterTimeS: 2, Iterations: 60},
		{ID: "silent", IterTimeS: 1, Iterations: 60},
	}
	if !reflect.DeepEqual(got.Jobs, want) {
		t.Errorf("got  %+v\nwant %+v", got.Jobs, want)
	}
	if skipped := got.Skipped(); skipped["runs on none of the cluster's GPU models"] != 1 || all.Jobs[0].EstimateS != 80 {
		t.Errorf("%v are left out; the trace is now %+v", skipped, all.Jobs[0])
	}
}
