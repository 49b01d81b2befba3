// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// BenchmarkClone clones the queue of a busy cluster of 80,000 GPUs, with 10,000 running and
// 10,000 waiting gangs.
func BenchmarkClone(b *testing.B) {
	q, c := crowd(b, 10_000, 10_000)
	b.Run("queue", func(b *testing.B) {
		for b.Loop() {
			q.Clone()
		}
	})
	b.Run("cluster", func(b *testing.B) {
		for b.Loop() {
			c.Clone()
		}
	})
}

// crowd returns a queue with one running gang for each node of 8 GPUs and this number of waiting
// gangs, and its cluster, which is full.
func crowd(b *testing.B, nodes, waiting int) (*Queue, *pal.Cluster) {
	var ns []pal.Node
	for i := range nodes {
		n := pal.Node{ID: fmt.Sprint("node", i), Name: fmt.Sprint("node", i), Rack: fmt.Sprint(i / 16)}
		g := pal.DeviceGroup{Name: "nvidia/gpu/H100"}
		for j := range 8 {
			g.GPUs = append(g.GPUs, pal.GPU{ID: fmt.Sprintf("GPU-%d-%d", i, j)})
		}
		n.Groups = []pal.DeviceGroup{g}
		ns = append(ns, n)
	}
	c, err := pal.NewCluster(ns, pal.TwoTier(1.7))
	if err != nil {
		b.Fatal(err)
	}
	q, err := New(Options{Order: Adaptive, Placement: pal.Policy{Name: pal.PAL}, Preempt: true, Backfill: BackfillReserved})
	if err != nil {
		b.Fatal(err)
	}
	job := func(kind string, i int) Job {
		id := fmt.Sprintf("default/%s-%d", kind, i)
		return Job{ID: id, Name: fmt.Sprint(kind, i%1000), Tenant: "default", Gang: pal.SingleGPUs(id, pal.ClassB, 8), Preemptible: true, Estimate: time.Duration(i%50) * time.Minute}
	}
	for i := range nodes {
		j := job("runs", i)
		pl, ok := pal.Place(c, j.Gang, pal.Policy{Name: pal.PAL})
		if !ok {
			b.Fatal("no room")
		}
		c.Take(j.Gang, pl)
		if err := q.Restore(j, pl, 0); err != nil {
			b.Fatal(err)
		}
	}
	for i := range waiting {
		if err := q.Submit(time.Duration(i)*time.Second, job("waits", i)); err != nil {
			b.Fatal(err)
		}
	}
	return q, c
}
