// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Spreading never keeps a gang from starting that fits without it, and is as sound as any
// placement. Its reasons are about the GPUs that it chose.
func TestSpreadIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		plain := d.gang
		plain.MemberSets = append([]MemberSet(nil), plain.MemberSets...)
		c, before := d.cluster(t), d.cluster(t)
		if rapid.Bool().Draw(t, "limit") {
			d.gang.MaxTier = rapid.SampledFrom([]Tier{TierNUMA, TierNode, TierRack}).Draw(t, "tier")
			plain.MaxTier = d.gang.MaxTier
		}
		for i := range d.gang.MemberSets {
			for range rapid.IntRange(0, 2).Draw(t, "spreads") {
				n := rapid.IntRange(1, 3).Draw(t, "values")
				o := SpreadOver{Weight: float64(rapid.IntRange(0, 100).Draw(t, "weight"))}
				for range c.Groups() {
					o.Values = append(o.Values, rapid.IntRange(-1, n-1).Draw(t, "value"))
				}
				for range n {
					o.Targets = append(o.Targets, float64(rapid.IntRange(0, 3).Draw(t, "target")))
				}
				d.gang.MemberSets[i].Spreads = append(d.gang.MemberSets[i].Spreads, o)
			}
		}
		p := policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		p.OutlierThreshold = rapid.SampledFrom([]float64{0, 1.05}).Draw(t, "avoid")
		if p.OutlierThreshold > 0 {
			before.countOutliers(p.OutlierThreshold)
		}
		f, ok := Find(c, d.gang, p)
		if diff := cmp.Diff(before, c, sameCluster); diff != "" {
			t.Fatalf("the cluster changed: %s", diff)
		}
		without, fits := Find(c, plain, p)
		if fits && !ok {
			t.Fatal("the spread keeps it out")
		}
		if !ok {
			return
		}
		checkSound(t, c, d.gang, f.Placement)
		if d.gang.MaxTier > 0 && f.Tier > max(d.gang.MaxTier, without.Tier) { // the limit may be a tier that is not in use
			t.Fatalf("it reaches over %v", f.Tier)
		}
		checkWithin(t, c, d.gang.MaxTier, f.Members)
		again, _ := Find(c, d.gang, p)
		if !cmp.Equal(f.Placement, again.Placement) {
			t.Fatalf("not deterministic: %v %v", f.Placement, again.Placement)
		}
		if e, best := ExplainFound(c, d.gang, p, f); !best || !e.Placed {
			t.Fatalf("the explanation is for another placement: %+v", e)
		}
	})
}

// Among equally desirable places, spread takes the best GPUs.
func TestSpreadTakesTheBest(t *testing.T) {
	var nodes []Node
	over := SpreadOver{Weight: 1}
	for n := range 12 {
		g := DeviceGroup{Name: "gpu"}
		for k := range 2 {
			u := GPU{ID: fmt.Sprint(n, "-", k)}
			for class := range NumClasses {
				if u.Scores[class] = 1.5; n >= 10 {
					u.Scores[class] = 1
				}
				u.Binned[class] = u.Scores[class]
			}
			g.GPUs = append(g.GPUs, u)
		}
		nodes = append(nodes, Node{ID: fmt.Sprint(n), Name: fmt.Sprint(n), Groups: []DeviceGroup{g}})
		over.Values, over.Targets = append(over.Values, n), append(over.Targets, 0.25)
	}
	c, err := NewCluster(nodes, TwoTier(1.5))
	if err != nil {
		t.Fatal(err)
	}
	g := SingleGPUs("g", ClassA, 3)
	g.MemberSets[0].Spreads = []SpreadOver{over}
	pl, _ := Place(c, g, Policy{Name: PAL})
	var on []int
	for _, m := range pl.Members {
		n, _ := c.Group(m.Group)
		on = append(on, n)
	}
	if d := cmp.Diff([]int{10, 11, 0}, on); d != "" {
		t.Errorf("nodes (-want +got):\n%s", d)
	}
}

// checkWithin checks limits of a node or closer, whatever the policy.
func checkWithin(t *rapid.T, c *Cluster, limit Tier, members []Member) {
	if limit == 0 || limit > TierNode {
		return
	}
	first, _ := c.Group(members[0].Group)
	for _, m := range members {
		if n, _ := c.Group(m.Group); n != first {
			t.Fatalf("it is on nodes %d and %d, despite its limit", first, n)
		}
	}
}

// Replicas are spread evenly: no node has two more replicas than another node that has room for
// one. Distance costs them nothing, and they fit wherever the same gang would.
func TestReplicasAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c := d.cluster(t)
		d.gang.MemberSets, d.gang.MaxTier = d.gang.MemberSets[:1], 0
		plain := d.gang
		d.gang.Replicas = true
		p := policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		f, ok := Find(c, d.gang, p)
		if _, fits := Find(c, plain, p); fits && !ok && d.gang.MemberSets[0].Need.PerNode == 0 {
			t.Fatal("it fits as a gang, but not as replicas")
		}
		if !ok {
			return
		}
		set := d.gang.MemberSets[0]
		on := map[int]int{}
		most, worst := 0, TierIsland
		for _, m := range f.Members {
			node, _ := c.Group(m.Group)
			on[node]++
			worst = max(worst, layout{c, &plain, []Member{m}}.tier())
		}
		for _, m := range f.Members {
			node, _ := c.Group(m.Group)
			most = max(most, on[node])
		}
		if f.Tier != worst {
			t.Fatalf("it pays for tier %v; no replica reaches over more than %v", f.Tier, worst)
		}
		if len(f.Members) < 2 || len(set.Prefer) > 0 || len(set.Spreads) > 0 {
			return
		}
		c.Take(d.gang, f.Placement)
		defer c.Release(d.gang, f.Placement)
		for node := range c.NumNodes() {
			one := d.gang
			set := set
			set.Members, set.Eligible = 1, make([]bool, c.Groups())
			for gi := range set.Eligible {
				at, _ := c.Group(gi)
				set.Eligible[gi] = at == node && (d.gang.MemberSets[0].Eligible == nil || d.gang.MemberSets[0].Eligible[gi])
			}
			one.MemberSets = []MemberSet{set}
			if full := set.Need.PerNode > 0 && on[node] >= set.Need.PerNode; full || most < on[node]+2 {
				continue
			}
			if _, room := Find(c, one, p); room {
				t.Fatalf("node %d has %d replicas and room for one; another has %d: %v", node, on[node], most, on)
			}
		}
	})
}
