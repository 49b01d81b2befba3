// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// Classes and counts are listed only if they change the answer.
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
	s := Picture(&model.Model{Queue: q}, nil, nil)
	for _, test := range []struct {
		name          string
		slow          pal.PMScore // score of two GPUs, for class A
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

// A class for which the free GPUs are outliers would have to wait for others: it is listed without
// a choice of GPUs.
func TestTradeoffThatWouldWait(t *testing.T) {
	t.Parallel()
	nodes := []pal.Node{{ID: "slow", Name: "slow", Groups: []pal.DeviceGroup{{Name: "m"}}}, {ID: "fast", Name: "fast", Groups: []pal.DeviceGroup{{Name: "m"}}}}
	for i := range 8 {
		scores := [pal.NumClasses]pal.PMScore{1, 1, 1, 1}
		if i < 4 {
			scores[pal.ClassA.Index()] = 2
		}
		g := &nodes[i/4].Groups[0]
		g.GPUs = append(g.GPUs, pal.GPU{ID: fmt.Sprint(i), Scores: scores, Binned: scores, Classes: [pal.NumClasses]uint8{1, 1, 1, 1}})
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(model.DefaultConfig().QueueOptions())
	if err != nil {
		t.Fatal(err)
	}
	gang := func(id string, class pal.AppClass) pal.Gang {
		return pal.Gang{ID: id, Class: class, MemberSets: []pal.MemberSet{{Name: "s", Members: 1, GPUs: 4}}}
	}
	if err := q.Submit(0, queue.Job{ID: "runs", Gang: gang("runs", pal.ClassA), Estimate: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, a := range q.Decide(0, c) {
		c.Take(gang("runs", pal.ClassA), a.Placement)
		q.Started(0, a.Job, a.Placement)
	}
	got := Picture(&model.Model{Queue: q}, nil, nil).tradeoffs(c, gang("g", pal.ClassD), "count")
	if len(got) != 1 || got[0].Change != "pal_class=A" || got[0].Choice != nil {
		t.Errorf("%+v", got)
	}
}
