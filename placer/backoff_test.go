// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
)

// If records cannot be written, cycles continue, the status shows the failure, and the placer
// retries at growing intervals.
func TestRecordsThatCannotBeWritten(t *testing.T) {
	broken, tries := true, 0
	p := placerAt(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/var/") {
			if tries++; broken {
				http.Error(w, "Permission denied", http.StatusForbidden)
				return
			}
			fmt.Fprint(w, `{"ModifyIndex": 1}`)
			return
		}
		http.NotFound(w, r)
	})
	s, prof, err := benchState(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.m.State, p.m.Profile = s, prof
	s.PutJob(hostile.Plain("j", 1, 1, 1))
	began := time.Now()
	p.unsaved.put(gang.Record{Namespace: "default", Job: "j", Decided: began.Add(-time.Hour)})
	if err := p.m.UpdateView(began); err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // all within a second
		p.m.Time = began.Add(time.Duration(i) * 50 * time.Millisecond)
		p.startWrites(t.Context(), p.m.Time)
		p.awaitWrites()
	}
	p.publish(began)
	if w := strings.Join(p.Status().Warnings, "\n"); tries != 1 || !strings.Contains(w, recordingDecisions+" fails") || !strings.Contains(w, "The token lacks") {
		t.Errorf("%d tries, want 1; warnings: %s", tries, w)
	}
	broken = false
	p.startWrites(t.Context(), began.Add(time.Minute))
	p.awaitWrites()
	p.publish(began.Add(time.Hour))
	if w := p.Status().Warnings; len(w) > 0 || p.unsaved.len() > 0 {
		t.Errorf("after records could be written again: warnings %q, %d records left", w, p.unsaved.len())
	}
}

// A record that is too large for a variable is dropped, and does not keep others from being
// written.
func TestRecordThatDoesNotFit(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	stored, client := newVars(t)
	p := newPlacer(t)
	p.nomad, p.m.State = client, cluster.NewState()
	p.m.State.PutJob(hostile.Plain("j", 1, 1, 1))
	p.m.State.PutJob(hostile.Plain("k", 1, 1, 1))
	p.unsaved.put(gang.Record{Namespace: "default", Job: "j", Mode: "x", Decision: pal.Decision{Gang: long}})
	p.unsaved.put(gang.Record{Namespace: "default", Job: "k"})
	if err := writeNow(t.Context(), p.records(10)); err != nil || p.unsaved.len() > 0 || len(stored.m) != 1 {
		t.Errorf("%v, %d left, %d stored", err, p.unsaved.len(), len(stored.m))
	}
}
