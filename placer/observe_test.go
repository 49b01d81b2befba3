// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// The decision on a gang that has just been placed is waited for; what is not
// about to come is not.
func TestLastRecord(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name   string
		phase  Phase
		placed time.Time
		comes  bool
		note   string
		least  time.Duration
		most   time.Duration
	}{
		{name: "just placed", phase: Running, placed: now, comes: true, note: "new", least: 200 * time.Millisecond, most: recordComes},
		{name: "just ended", phase: Ended, placed: now, comes: true, note: "new", least: 200 * time.Millisecond, most: recordComes},
		{name: "its members are not there", phase: Starting, placed: now, note: "old", most: time.Second},
		{name: "placed long ago", phase: Running, placed: now.Add(-recordComes), note: "old", most: time.Second},
		{name: "never written, by a clock that is ahead", phase: Running, placed: now.Add(time.Hour), note: "old", least: recordComes, most: time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, client := newVars(t)
			write := func(index uint64, note string) {
				if err := WriteRecord(t.Context(), client, Record{Namespace: "default", Job: "j", JobModifyIndex: index, Note: note}); err != nil {
					t.Error(err)
				}
			}
			job, index, at := benchJob("j", 1), uint64(20), c.placed.UnixNano()
			job.JobModifyIndex, job.SubmitTime = &index, &at
			st := Standing{Key: nomad.KeyOf(job), Job: job, Phase: c.phase, Pins: rewrite.Pins{Groups: []rewrite.GroupPins{{}}}}
			write(10, "old")
			began := time.Now()
			if c.comes {
				later := time.AfterFunc(200*time.Millisecond, func() { write(20, "new") })
				defer later.Stop()
			}
			r, err := (&Survey{p: &Placer{nomad: client}}).lastRecord(t.Context(), st)
			if err != nil || r == nil || r.Note != c.note {
				t.Fatalf("got %+v, %v; want the %s one", r, err, c.note)
			}
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("it took %v, want %v to %v", took, c.least, c.most)
			}
		})
	}
}
