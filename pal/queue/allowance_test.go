// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Gangs that wait only for a limit are expected to start one after the other, when enough gangs
// that count towards the limit have ended; enough GPUs are always free here. If the ends of those
// gangs are unknown, the waiting gangs have no expected start.
func TestExpectAtLimit(t *testing.T) {
	t.Parallel()
	none := 0
	for name, tenant := range map[string]Tenant{
		"of the tenant":       {Quota: 4, BorrowingLimit: &none},
		"of GPUs of the user": {MaxGPUsPerUser: 4},
		"of jobs of the user": {MaxJobsPerUser: 1},
		"of the array":        {},
	} {
		for _, waits := range []int{0, enoughStarts} { // before and after run times may be guessed
			for _, estimate := range []time.Duration{time.Hour, 0} {
				ws := atLimit(t, tenant, name == "of the array", waits, estimate)
				if len(ws) != 2 || ws[0].Reason != reason.Quota && ws[0].Reason != reason.Array {
					t.Fatalf("%s: %+v", name, ws)
				}
				what := fmt.Sprintf("%s, after %d waits, estimate %v: %v–%v, %v–%v", name, waits, estimate, ws[0].From, ws[0].To, ws[1].From, ws[1].To)
				switch {
				case estimate > 0 && (ws[0].From < 25*time.Minute || ws[0].To < ws[0].From || ws[0].From > 2*time.Hour || ws[1].From < ws[0].From+30*time.Minute):
					t.Error(what)
				case estimate == 0 && waits > 0:
				case estimate == 0 && (ws[0].To != 0 || ws[1].To != 0):
					t.Error(what)
				}
			}
		}
	}
}

// atLimit returns the Waits of two gangs behind a running gang that has used up a limit for a
// minute. Half of the GPUs are free.
func atLimit(t *testing.T, tenant Tenant, array bool, waits int, estimate time.Duration) []Wait {
	t.Helper()
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}, Tenants: map[string]Tenant{"t": tenant}})
	if err != nil {
		t.Fatal(err)
	}
	gang := pal.Gang{ID: "g", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 4}}}
	for _, id := range []string{"a", "b", "c"} {
		j := Job{ID: id, Name: id, Gang: gang, Tenant: "t", User: "bob", Estimate: estimate}
		if array {
			j.Array, j.ArrayParallel = "array", 1
		}
		if err := q.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range q.Decide(0, c) {
		c.Take(gang, a.Placement)
		q.Started(0, a.Job, a.Placement)
	}
	q.forecasts.checks = waits
	return q.Waiting(time.Minute, c)
}
