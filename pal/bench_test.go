// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"math/rand"
	"testing"
)

// bigCluster has n nodes of 8 GPUs in racks of 16 nodes, five bins per class; busy is the share
// of GPUs that are busy.
func bigCluster(tb testing.TB, n int, busy float64) *Cluster {
	r := rand.New(rand.NewSource(1))
	bins := []PMScore{0.98, 1, 1.02, 1.045, 1.1}
	nodes := make([]Node, n)
	for i := range nodes {
		g := DeviceGroup{Name: "nvidia/gpu/H200"}
		for j := range 8 {
			u := GPU{ID: fmt.Sprintf("GPU-%d-%d", i, j), NUMA: uint16(1 + j/4), Island: 1}
			for k := range NumClasses {
				u.Binned[k] = bins[r.Intn(len(bins))]
				u.Scores[k] = u.Binned[k] + PMScore(j-4)/1000
			}
			g.GPUs = append(g.GPUs, u)
		}
		nodes[i] = Node{ID: fmt.Sprint(i), Name: fmt.Sprint(i), Rack: fmt.Sprint(i / 16), Free: Resources{CPU: 1 << 20, MemoryMB: 1 << 20, DiskMB: 1 << 20}, Groups: []DeviceGroup{g}}
	}
	l := TwoTier(1.7)
	l[TierRack] = [NumClasses]float64{1.2, 1.2, 1.2, 1.2}
	c, err := NewCluster(nodes, l)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range c.NumGPUs() {
		c.SetTaken(i, r.Float64() < busy)
	}
	return c
}

// BenchmarkPlace places one gang on a snapshot of 10,000 nodes × 8 GPUs.
func BenchmarkPlace(b *testing.B) {
	for _, busy := range []float64{0, 0.9} {
		c := bigCluster(b, 10000, busy)
		for _, name := range []PolicyName{PAL, PMFirst, Packed} {
			for _, sh := range []MemberSet{{Members: 1, GPUs: 1}, {Members: 8, GPUs: 1}, {Members: 8, GPUs: 8}, {Members: 128, GPUs: 8}} {
				g := Gang{ID: "x", Class: ClassA, MemberSets: []MemberSet{sh}}
				b.Run(fmt.Sprintf("busy=%v/%s/%dx%d", busy, name, sh.Members, sh.GPUs), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						Place(c, g, Policy{Name: name})
					}
				})
			}
		}
	}
}
