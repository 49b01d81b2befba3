// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"testing"
)

// Of a walk over the bins of hundreds of outliers, only the first and the last entries are shown.
func TestWalkIsCapped(t *testing.T) {
	var gpus []GPU
	for i := range 1000 {
		u := GPU{ID: fmt.Sprint(i)}
		for k := range u.Binned {
			u.Binned[k], u.Scores[k] = PMScore(1+float64(i)/10), PMScore(1+float64(i)/10)
		}
		gpus = append(gpus, u)
	}
	c, err := NewCluster([]Node{{ID: "n", Groups: []DeviceGroup{{Name: "m", GPUs: gpus}}}}, TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	d := Explain(c, SingleGPUs("g", ClassA, 900), Policy{Name: PAL})
	if n := len(d.Walk); n > 100 || d.WalkOmitted < 500 || !d.Walk[n-1].Taken || d.Walk[0].Bin != 1 {
		t.Errorf("%d entries and %d omitted; the last is %+v", n, d.WalkOmitted, d.Walk[n-1])
	}
}
