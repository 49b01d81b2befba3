// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pyrandom

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The expected values are CPython's: random.seed(n), then the calls.
func TestStreams(t *testing.T) {
	r := New(42)
	var got []uint32
	for range 6 {
		got = append(got, r.Uint32())
	}
	want := []uint32{2746317213, 478163327, 107420369, 3184935163, 1181241943, 1051802512}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("seed 42, getrandbits(32) (-want +got):\n%s", d)
	}
	for seed, want := range map[uint32][]float64{
		42: {0.6394267984578837, 0.025010755222666936, 0.27502931836911926},
		1:  {0.13436424411240122, 0.8474337369372327, 0.763774618976614, 0.2550690257394217, 0.49543508709194095, 0.4494910647887381},
	} {
		r := New(seed)
		for i, w := range want {
			if v := r.Float64(); v != w {
				t.Errorf("seed %d: random() number %d = %v, want %v", seed, i, v, w)
			}
		}
	}
}

func TestSample(t *testing.T) {
	r := New(42)
	for _, want := range [][]int{
		{14, 3, 35, 31, 28},
		{17, 47, 6, 43, 62, 57},
		{11, 37, 27, 2, 1, 5, 13, 14, 32, 38, 59, 35},
	} {
		if d := cmp.Diff(want, r.Sample(64, len(want))); d != "" {
			t.Errorf("sample(range(64), %d) (-want +got):\n%s", len(want), d)
		}
	}
	r = New(42)
	for _, want := range [][]int{{1}, {0, 4, 3}, {3, 2, 1, 5, 6, 4, 0, 8, 7, 9}} {
		if d := cmp.Diff(want, r.Sample(10, len(want))); d != "" {
			t.Errorf("sample(range(10), %d) (-want +got):\n%s", len(want), d)
		}
	}
}
