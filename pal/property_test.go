// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawn is a random small cluster and a gang for it.
type drawn struct {
	nodes []Node
	l     Locality
	busy  []int
	gang  Gang
}

func draw(t *rapid.T) drawn {
	d := drawn{l: TwoTier(rapid.SampledFrom([]float64{1, 1.05, 1.2, 1.7, 3}).Draw(t, "across"))}
	if rapid.Bool().Draw(t, "racks") {
		for k := range NumClasses {
			d.l[TierRack][k] = 1 + (d.l[TierCluster][k]-1)/2
			d.l[TierNUMA][k] = 1
		}
	}
	scores := rapid.SampledFrom([]PMScore{0.9, 1, 1.02, 1.1, 1.3, 2.8})
	id := 0
	for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		node := Node{ID: fmt.Sprint(n), Name: fmt.Sprint(n), Rack: rapid.SampledFrom([]string{"", "r0", "r1"}).Draw(t, "rack"), Free: Resources{MemoryMB: rapid.IntRange(1, 5).Draw(t, "mem")}}
		g := DeviceGroup{Name: "gpu"}
		for range rapid.IntRange(1, 4).Draw(t, "gpus") {
			u := GPU{ID: fmt.Sprint(id), NUMA: uint16(rapid.IntRange(0, 2).Draw(t, "numa")), Health: Health{Unhealthy: rapid.IntRange(0, 9).Draw(t, "unhealthy") == 0}}
			for k := range NumClasses {
				u.Scores[k] = scores.Draw(t, "score")
				u.Binned[k] = u.Scores[k]
			}
			if rapid.Bool().Draw(t, "busy") {
				d.busy = append(d.busy, id)
			}
			g.GPUs = append(g.GPUs, u)
			id++
		}
		node.Groups = []DeviceGroup{g}
		d.nodes = append(d.nodes, node)
	}
	d.gang = Gang{ID: "job", Class: rapid.SampledFrom(AppClasses()).Draw(t, "class")}
	for i := range rapid.IntRange(1, 2).Draw(t, "member sets") {
		d.gang.MemberSets = append(d.gang.MemberSets, MemberSet{
			Name: fmt.Sprint("g", i), Members: rapid.IntRange(1, 3).Draw(t, "members"), GPUs: rapid.IntRange(1, 3).Draw(t, "each"),
			Need: Resources{MemoryMB: rapid.IntRange(0, 1).Draw(t, "need")},
		})
	}
	return d
}

func (d drawn) cluster(t *rapid.T) *Cluster {
	c, err := NewCluster(d.nodes, d.l)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range d.busy {
		c.SetTaken(i, true)
	}
	return c
}

// sameCluster compares clusters in all counts.
var sameCluster = cmp.Options{
	cmp.AllowUnexported(Cluster{}, binCounts{}, nodeState{}, groupState{}, gpuState{}, modelState{}, scores{}, level{}, outliers{}),
	cmpopts.IgnoreFields(Cluster{}, "scratch", "scales"),
}

func policy(name PolicyName) Policy {
	return Policy{Name: name}
}

// Whatever the policy, placement uses only available GPUs, and places all members or none. Each
// member is on one device group with the GPUs and memory it needs. The cluster is unchanged
// afterwards, and the same input gives the same result.
func TestPlacementIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c, before := d.cluster(t), d.cluster(t)
		p := policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		p.RoomForWide = rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "room")
		pl, ok := Place(c, d.gang, p)
		if diff := cmp.Diff(before, c, sameCluster); diff != "" {
			t.Fatalf("place changed the cluster: %s", diff)
		}
		again, okAgain := Place(c, d.gang, p)
		if ok != okAgain || !cmp.Equal(pl, again) {
			t.Fatalf("not deterministic: %v %v", pl, again)
		}
		if ok {
			checkSound(t, c, d.gang, pl)
		}
	})
}

func checkSound(t *rapid.T, c *Cluster, g Gang, pl Placement) {
	used := map[int]bool{}
	members := make([]int, len(g.MemberSets))
	memory := map[int]int{}
	for _, m := range pl.Members {
		members[m.MemberSet]++
		if len(m.GPUs) != g.MemberSets[m.MemberSet].GPUs {
			t.Fatalf("member %v lacks GPUs that it needs", m)
		}
		node, _ := c.Group(m.Group)
		memory[node] += g.MemberSets[m.MemberSet].Need.MemoryMB
		for _, u := range m.GPUs {
			if used[u] || !c.Available(u) || c.GroupOf(u) != m.Group {
				t.Fatalf("member %v: GPU %d is given twice, not available, or in another group", m, u)
			}
			used[u] = true
		}
	}
	for i, sh := range g.MemberSets {
		if members[i] != sh.Members {
			t.Fatalf("member set %d has %d members, want %d", i, members[i], sh.Members)
		}
	}
	for n, mb := range memory {
		if mb > c.Node(n).Free.MemoryMB {
			t.Fatalf("node %d lacks the memory", n)
		}
	}
}

// If every GPU has its own bin, PAL finds the lowest cost for gangs of one member set, as
// exhaustive search does. (PAL §3.3: the walk takes the cheapest feasible entry; its product
// bounds the placement's cost.)
func TestPALFindsTheLowestCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		d.gang.MemberSets = d.gang.MemberSets[:1]
		c := d.cluster(t)
		pl, ok := Place(c, d.gang, policy(PAL))
		best, any := exhaustive(c, d.gang)
		if ok != any {
			t.Fatalf("PAL placed it: %v, a placement exists: %v", ok, any)
		}
		if ok && d.gang.GPUs() > 1 && pl.Cost() > best+1e-9 {
			t.Fatalf("PAL costs %v, the best is %v", pl.Cost(), best)
		}
	})
}

// With room for wide gangs, a placement costs little more, and every gang that fits without it
// still fits. A gang on several nodes in either case uses no more of them.
func TestRoomForWideCostsLittleMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		d.gang.MemberSets = d.gang.MemberSets[:1]
		c := d.cluster(t)
		published, fits := Place(c, d.gang, policy(PAL))
		tight := Policy{Name: PAL, RoomForWide: rapid.SampledFrom([]float64{0.05, 0.1, 0.5}).Draw(t, "tight")}
		pl, ok := Place(c, d.gang, tight)
		if ok != fits {
			t.Fatalf("it fits: %v, with PAL as published: %v", ok, fits)
		}
		if !ok || d.gang.GPUs() == 1 { // PAL as published ignores distance for one GPU
			return
		}
		if pl.Cost() > (1+tight.RoomForWide)*published.Cost()+1e-9 {
			t.Fatalf("it costs %v, with PAL as published %v", pl.Cost(), published.Cost())
		}
		if a, b := nodesOf(pl), nodesOf(published); pl.Tier == TierCluster && published.Tier == TierCluster && a > b {
			t.Fatalf("it is on %d nodes, with PAL as published on %d", a, b)
		}
	})
}

func nodesOf(pl Placement) int {
	groups := map[int]bool{}
	for _, m := range pl.Members {
		groups[m.Group] = true
	}
	return len(groups)
}

// exhaustive tries all placements of a gang of one member set.
func exhaustive(c *Cluster, g Gang) (best float64, ok bool) {
	sh := g.MemberSets[0]
	var slots []Member
	for gi := range c.Groups() {
		first, n := c.GroupGPUs(gi)
		for set := range 1 << n {
			var gpus []int
			for i := range n {
				if set>>i&1 == 1 && c.Available(first+i) {
					gpus = append(gpus, first+i)
				} else if set>>i&1 == 1 {
					gpus = nil
					break
				}
			}
			if len(gpus) == sh.GPUs {
				slots = append(slots, Member{Group: gi, GPUs: gpus})
			}
		}
	}
	var try func(from int, members []Member)
	try = func(from int, members []Member) {
		if len(members) == sh.Members {
			if p := Predict(c, g, members); !ok || p.Cost() < best {
				best, ok = p.Cost(), true
			}
			return
		}
		for i := from; i < len(slots); i++ {
			if disjoint(members, slots[i]) && memoryHolds(c, sh, members, slots[i]) {
				try(i+1, append(slices.Clip(members), slots[i]))
			}
		}
	}
	try(0, nil)
	return best, ok
}

func disjoint(members []Member, m Member) bool {
	for _, o := range members {
		for _, u := range o.GPUs {
			if slices.Contains(m.GPUs, u) {
				return false
			}
		}
	}
	return true
}

func memoryHolds(c *Cluster, sh MemberSet, members []Member, m Member) bool {
	n := 1
	for _, o := range members {
		if o.Group == m.Group {
			n++
		}
	}
	return n*sh.Need.MemoryMB <= c.Node(m.Group).Free.MemoryMB
}

// One more free GPU never raises the cost of a gang of one member set under PAL.
func TestMoreGPUsNeverCostMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		d.gang.MemberSets = d.gang.MemberSets[:1]
		if len(d.busy) == 0 || d.gang.GPUs() == 1 {
			return
		}
		before, ok := Place(d.cluster(t), d.gang, policy(PAL))
		d.busy = d.busy[1:]
		after, okAfter := Place(d.cluster(t), d.gang, policy(PAL))
		if ok && (!okAfter || after.Cost() > before.Cost()+1e-9) {
			t.Fatalf("with one more free GPU: %v %v, before %v", after.Cost(), okAfter, before.Cost())
		}
	})
}

// Take and Release are inverse, whatever the placement.
func TestReleaseUndoesTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c, before := d.cluster(t), d.cluster(t)
		pl, ok := Place(c, d.gang, policy(PMFirst))
		if !ok {
			return
		}
		c.Take(d.gang, pl)
		if c.FreeGPUs() != before.FreeGPUs()-d.gang.GPUs() {
			t.Fatalf("%d free after taking %d of %d", c.FreeGPUs(), d.gang.GPUs(), before.FreeGPUs())
		}
		c.Release(d.gang, pl)
		if diff := cmp.Diff(before, c, sameCluster); diff != "" {
			t.Fatal(diff)
		}
	})
}
