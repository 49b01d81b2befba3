// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// Classes and counts are named if they change the answer, and only then.
func TestTradeoffs(t *testing.T) {
	t.Parallel()
	node := func(name string, scores ...pal.PMScore) pal.Node {
		n := pal.Node{ID: name, Name: name, Groups: []pal.DeviceGroup{{Name: "m"}}}
		for i, s := range scores {
			one := [pal.NumClasses]pal.PMScore{1, 1, 1, 1}
			one[pal.ClassA.Index()] = s
			n.Groups[0].GPUs = append(n.Groups[0].GPUs, pal.GPU{ID: fmt.Sprintf("%s-%d", name, i), Scores: one, Binned: one, Classes: [pal.NumClasses]uint8{1, 1, 1, 1}})
		}
		return n
	}
	q, err := queue.New(model.DefaultConfig().QueueOptions())
	if err != nil {
		t.Fatal(err)
	}
	s := New(&model.Model{Queue: q}, nil, heartbeat.Activity{}, "")
	for _, test := range []struct {
		name          string
		slow          pal.PMScore // of two GPUs, for class A
		members, gpus int
		want          string
	}{
		{"another class goes to the other node", 1.2, 1, 4, "pal_class=B on 1 nodes (node) pal_class=C on 1 nodes (node) pal_class=D on 1 nodes (node) "},
		{"all classes go to the same GPUs", 1, 1, 4, ""},
		{"fewer members stand closer together", 1.2, 2, 4, "count=1 on 1 nodes (node) "},
		{"fewer members fit", 1.2, 3, 4, "count=2 on 2 nodes (cluster) "},
		{"no number of members fits", 1.2, 2, 5, ""},
	} {
		c, err := pal.NewCluster([]pal.Node{node("slow", 1, 1, test.slow, test.slow), node("fast", 1, 1, 1, 1)}, pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		g := pal.Gang{ID: "g", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Name: "s", Members: test.members, GPUs: test.gpus}}}
		got := ""
		for _, o := range s.tradeoffs(c, g, "count") {
			got += fmt.Sprintf("%s on %d nodes (%s) ", o.Change, o.Choice.Nodes, o.Choice.Tier)
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
