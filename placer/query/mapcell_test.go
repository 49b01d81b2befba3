// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// A cell has three bits for each application class, in which 7 means class 7 or slower. The flags
// come on top.
func TestMapCell(t *testing.T) {
	gpus := []pal.GPU{
		{ID: "a", Classes: [pal.NumClasses]uint8{1, 2, 0, 200}},
		{ID: "b", Health: pal.Health{Unhealthy: true, Quarantined: true}, Degraded: "slowed by heat"},
	}
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Name: "n", Groups: []pal.DeviceGroup{{Name: "nvidia/gpu/X", GPUs: gpus}}}}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	c.SetTaken(0, true)
	if got, want := mapCell(c, 0, palapi.GPUAllocated), 1|2<<3|7<<9|CellAllocated; got != want {
		t.Errorf("measured and allocated: %b, want %b", got, want)
	}
	if got, want := mapCell(c, 1, palapi.GPUUnhealthy), CellUnhealthy|CellDegraded; got != want {
		t.Errorf("in trouble: %b, want %b", got, want)
	}
}
