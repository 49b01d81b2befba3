// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// An elastic gang starts with as many members as fit on one GPU model, although more GPUs are free.
func TestElasticOnSeveralModels(t *testing.T) {
	var nodes []pal.Node
	for _, model := range []string{"a", "b", "c"} {
		g := pal.DeviceGroup{Name: model}
		for k := range 7 {
			g.GPUs = append(g.GPUs, pal.GPU{ID: fmt.Sprint(model, k)})
		}
		nodes = append(nodes, pal.Node{ID: model, Datacenter: "dc", Groups: []pal.DeviceGroup{g}})
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err := q.Submit(0, Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 16), Least: 2, Estimate: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if as := q.Decide(0, c); len(as) != 1 || as[0].Kind != Start || len(as[0].Placement.Members) != 7 {
		t.Errorf("%+v, want a start with 7 members", as)
	}
}
