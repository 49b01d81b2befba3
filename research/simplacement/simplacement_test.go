// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A pair is the same whenever it runs, and no policy but the blind one meets an outlier on purpose.
func TestPairs(t *testing.T) {
	in, err := readInputs("")
	if err != nil {
		t.Fatal(err)
	}
	c := in.cells()[0]
	for seed := range uint64(2) {
		p, err := c.run(seed)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.run(seed)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, again, cmp.AllowUnexported(totals{})); d != "" {
			t.Errorf("seed %d: the second run differs:\n%s", seed, d)
		}
		c.pairs = append(c.pairs, p)
	}
	if r := c.over(base, all, jct); r.Value != 1 || r.Low != 1 {
		t.Errorf("packed over packed is %v", r)
	}
	if r := c.over("bound", 0, ran); r.Value >= 1 {
		t.Errorf("class A runs as long on the best GPUs as on others: %v", r)
	}
	if len(rows([]*cell{c})) == 0 || len(page([]*cell{c}, false)) == 0 {
		t.Error("the results are empty")
	}
}
