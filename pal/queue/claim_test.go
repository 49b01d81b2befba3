// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// BenchmarkClaims measures a pass while a gang is being stopped for each of n waiting
// gangs.
func BenchmarkClaims(b *testing.B) {
	for _, n := range []int{100, 1_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q, err := New(Options{Order: Priority, Backfill: BackfillReserved, Preempt: true, Placement: pal.Policy{Name: pal.PAL},
				Tenants: map[string]Tenant{"a": {Quota: n}}})
			if err != nil {
				b.Fatal(err)
			}
			c, err := pal.NewCluster(testNodes(n/4, ""), pal.TwoTier(1))
			if err != nil {
				b.Fatal(err)
			}
			submit := func(now time.Duration, of string, j Job) {
				for i := range n {
					j.ID = fmt.Sprint(of, i)
					j.Gang = pal.SingleGPUs(j.ID, pal.ClassA, 1)
					if err := q.Submit(now, j); err != nil {
						b.Fatal(err)
					}
				}
			}
			submit(0, "low", Job{Preemptible: true, Tenant: "b"})
			for _, a := range q.Decide(0, c) {
				c.Take(q.entries[a.Job].job.Gang, a.Placement)
				q.Started(0, a.Job, a.Placement)
			}
			submit(time.Hour, "high", Job{Priority: 1, Tenant: "a"})
			if stops := q.Decide(time.Hour, c); len(stops) != n {
				b.Fatalf("%d stops for %d gangs", len(stops), n)
			}
			for b.Loop() {
				q.Decide(time.Hour, c)
			}
		})
	}
}
