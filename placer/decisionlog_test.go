// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// In a burst the placer starts gangs before it writes records, but delays no record for long. A
// cycle writes a limited number of records, and none of jobs that are gone.
func TestRecordsInABurst(t *testing.T) {
	stored, client := newVars(t)
	p := newPlacer(t)
	p.nomad, p.m.State = client, cluster.NewState()
	now := time.Now()
	put := func(n int) {
		id := fmt.Sprintf("job-%d", n)
		p.m.State.PutJob(benchJob(id, 1))
		p.unsaved.put(gang.Record{Namespace: "default", Job: id, Decided: now})
	}
	save := func(after time.Duration, want int, again bool) {
		t.Helper()
		p.startWrites(t.Context(), now.Add(after))
		p.awaitWrites()
		if got, due := len(stored.m), p.decisionsDue(now.Add(after)) > 0; got != want || due != again {
			t.Errorf("after %v: %d records written, want %d; more are due %v, want %v", after, got, want, due, again)
		}
	}
	put(0)
	save(0, 0, false) // its tasks are about to start
	if at, ok := p.decisionsDueAt(); !ok || !at.Equal(now.Add(recordAfter)) {
		t.Errorf("the record is due at %v, %v", at, ok)
	}
	save(recordAfter, 1, false)
	if _, ok := p.decisionsDueAt(); ok {
		t.Error("a record is due, but none is there")
	}
	p.unsaved.put(gang.Record{Namespace: "default", Job: "job-0", Decided: now.Add(time.Hour)}) // decided by another agent, whose clock is ahead
	if save(0, 1, false); p.unsaved.len() > 0 {
		t.Error("the record waits until its decision is in the past")
	}
	for i := range burst {
		p.startedOne(now)
		put(1 + i)
	}
	save(0, 1, false)
	save(999*time.Millisecond, 1, false)
	for i := range burst { // nothing has started for a second, but Nomad has not placed these
		p.m.Add(cluster.JobKey{Namespace: "default", ID: fmt.Sprintf("starting-%d", i)}).Nomad = palapi.Starting
	}
	save(time.Second, 1, false)
	p.m.Forget(cluster.JobKey{Namespace: "default", ID: "starting-0"})
	save(time.Second, 1+burst, false)
	for i := range 3 * decisionsAtOnce {
		put(100 + i)
	}
	for i := range 12 { // the burst continues
		for range burst {
			p.startedOne(now.Add(time.Duration(i) * time.Second))
		}
		if i < 10 {
			save(time.Duration(i)*time.Second, 1+burst, false)
		}
	}
	delete(p.m.State.Jobs, cluster.JobKey{Namespace: "default", ID: "job-100"})
	save(11*time.Second, 1+burst+decisionsAtOnce, true) // one has waited too long
	save(11*time.Second, 1+burst+2*decisionsAtOnce, true)
	save(11*time.Second, burst+3*decisionsAtOnce, false)
}
