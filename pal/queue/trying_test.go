// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

// After a panic during a search, Trying returns the gang for which the queue searched.
func TestTrying(t *testing.T) {
	q, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "m", GPUs: []pal.GPU{{ID: "g"}}}}}}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	gang := pal.SingleGPUs("default/bad", pal.ClassA, 1)
	gang.MemberSets[0].Eligible = []bool{} // an index out of range
	if err := q.Submit(0, Job{ID: "default/bad", Gang: gang}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if r := recover(); r == nil || q.Trying() != "default/bad" {
			t.Errorf("panic %v in %q", r, q.Trying())
		}
	}()
	q.Decide(0, c)
}
