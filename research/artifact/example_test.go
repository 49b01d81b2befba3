// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// exampleCluster is a cluster of 2 nodes × 4 GPUs with one slow GPU per node for class A.
func exampleCluster(t *testing.T, across float64) *pal.Cluster {
	t.Helper()
	p := sim.Population{Nodes: 2, GPUsPerNode: 4, Scores: [][pal.NumClasses]pal.PMScore{
		{1.00, 1.00, 1.00, 1.000}, {1.02, 1.01, 1.00, 1.001}, {1.30, 1.00, 1.05, 1.000}, {0.98, 1.04, 1.00, 1.010},
		{1.01, 1.04, 1.05, 1.000}, {1.28, 1.00, 1.04, 1.000}, {0.99, 1.05, 1.00, 1.012}, {1.03, 1.00, 1.00, 1.000},
	}}
	c, err := Cluster(p, pal.TwoTier(across))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The expected logs were obtained by running the artifact on the example.
func TestWorkedExample(t *testing.T) {
	for _, tc := range []struct {
		name, order, policy string
		across              float64
		want                string
	}{
		{"pal stays in a node with the slow GPU", "fifo", "pal", 1.7,
			"0@360[0 1 2 3] 1@360[6 7] 2@1440[0 1 2 3] finish 1440 1440 2160"},
		{"pal crosses if that is cheap", "fifo", "pal", 1.2,
			"0@360[0 1 3 4] 1@360[6 7] 2@1440[0 1 3 4] finish 1440 1440 2160"},
		{"pm-first crosses and moves", "fifo", "pm-first", 1.7,
			"0@360[0 1 3 4] 1@360[6 7] 2@1440[2 5 6 7] 2@1800[0 1 3 4] finish 1800 1440 2520"},
		{"packed", "fifo", "packed-sticky", 1.7,
			"0@360[0 1 2 3] 1@360[4 5] 2@1440[0 1 2 3] finish 1440 1440 2160"},
		{"random", "fifo", "random-sticky", 1.7,
			"0@360[0 1 2 5] 1@360[3 4] 2@2160[0 2 4 5] finish 2160 2160 3240"},
		{"srtf suspends the longer job", "srtf", "packed-sticky", 1.7,
			"0@360[0 1 2 3] 1@360[4 5] 2@720[4 5 6 7] 1@1440[0 1] finish 1440 2160 1440"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr, err := workload.ReadSia("testdata/example.csv")
			if err != nil {
				t.Fatal(err)
			}
			var log []string
			res, err := Run{Jobs: tr.Jobs, Cluster: exampleCluster(t, tc.across), Policy: tc.policy, Order: tc.order,
				RoundS: 360, LoadPerH: 2, Fillers: true, Scores: pyrandom.New(42), Arrivals: pyrandom.New(1),
				OnEvent: func(e Event) {
					if e.GPUs != nil && e.Job < len(tr.Jobs) {
						log = append(log, fmt.Sprintf("%d@%.0f%v", e.Job, e.TimeS, e.GPUs))
					}
				}}.Run()
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(log, " ") + " finish"
			for _, j := range res.Jobs {
				got += fmt.Sprintf(" %.0f", j.Finish)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-artifact +ours):\n%s", d)
			}
		})
	}
}

func TestWorkedExampleLAS(t *testing.T) {
	for _, policy := range []string{"pal", "packed-sticky"} {
		tr, err := workload.ReadSia("testdata/example.csv")
		if err != nil {
			t.Fatal(err)
		}
		res, err := Run{Jobs: tr.Jobs, Cluster: exampleCluster(t, 1.7), Policy: policy, Order: "las",
			RoundS: 360, LoadPerH: 2, Fillers: true, Arrivals: pyrandom.New(1)}.Run()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, j := range res.Jobs {
			got = append(got, fmt.Sprintf("%.0f", j.JCT()))
		}
		if d := cmp.Diff([]string{"2150", "2140", "1400"}, got); d != "" {
			t.Errorf("LAS %s: job completion times (-artifact +ours):\n%s", policy, d)
		}
		if w := res.Jobs[0].Wait; policy == "pal" && w != 350 {
			t.Errorf("LAS pal: job 0 waited %v s, want 350: rounds of a suspended job do not count", w)
		}
	}
}

func TestFaithfulRefuses(t *testing.T) {
	f := Run{Jobs: []trace.Job{{ID: "big", GPUs: 9, Class: pal.ClassA}}, Cluster: exampleCluster(t, 1.7), Policy: "pal", Order: "fifo"}
	if _, err := f.Run(); err == nil || !strings.Contains(err.Error(), `job "big" needs 9 GPUs, but the cluster has 8`) {
		t.Errorf("a job larger than the cluster: %v", err)
	}
	f.Policy = "best"
	if _, err := f.Run(); err == nil || !strings.Contains(err.Error(), `the artifact does not have the policy "best"`) {
		t.Errorf("an unknown policy: %v", err)
	}
}
