// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"math/rand/v2"
	"strings"
	"testing"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// A text that the database cannot store in its column does not keep the runs of others out.
// PostgreSQL stores no NUL and no invalid UTF-8, and indexes no text above about 2,700 bytes.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	long := make([]byte, 10_000) // random text, which compression does not shorten enough
	for i := range long {
		long[i] = byte('!' + r.IntN(90))
	}
	databases(t, func(t *testing.T, db *DB) {
		for what, text := range map[string]string{"NUL": "a\x00b", "invalid UTF-8": "a\xff", "too long": string(long)} {
			for field, set := range map[string]func(r *palapi.Run, a *Alloc){
				"job":    func(r *palapi.Run, a *Alloc) { r.Job, a.Job, r.Family = text, text, text },
				"user":   func(r *palapi.Run, a *Alloc) { r.User, a.User = text, text },
				"model":  func(r *palapi.Run, a *Alloc) { r.Model, a.Model = text, text },
				"node":   func(_ *palapi.Run, a *Alloc) { a.Node = text },
				"reason": func(r *palapi.Run, _ *Alloc) { r.Reason = text },
				"status": func(_ *palapi.Run, a *Alloc) { a.Status = text },
				"GPU":    func(_ *palapi.Run, a *Alloc) { a.GPUs = []string{text} },
			} {
				id := strings.ReplaceAll(what+field, " ", "")
				run := job(id, "eve")
				run.State, run.Ended = palapi.RunComplete, at(2)
				alloc := allocOf(run, id, at(1), at(2), "complete")
				set(&run, &alloc)
				if err := db.Write(t.Context(), Batch{Runs: []palapi.Run{run}, Allocs: []Alloc{alloc}}); err != nil {
					t.Errorf("%s, %s: %.200v", field, what, err)
				}
			}
		}
		if all, err := db.Runs(t.Context(), Filter{}); err != nil || len(all) != 21 {
			t.Errorf("%d runs are stored: %v", len(all), err)
		}
		for _, text := range []string{"a\x00b", string(long)} {
			last, err := db.LastRuns(t.Context(), []cluster.JobKey{{Namespace: "research", ID: text}})
			if err != nil || len(last) != 1 {
				t.Errorf("the last run of job %.10q: %+v, %v", text, last, err)
			}
		}
	})
}
