// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/accounting/accountingtest"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func at(hours float64) time.Time {
	return ms(noon.Add(time.Duration(hours * float64(time.Hour))))
}

// databases runs the test with SQLite, and with PostgreSQL if a server can be started.
func databases(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Run("sqlite", func(t *testing.T) { test(t, openTest(t, filepath.Join(t.TempDir(), "accounts", "history.db"))) })
	t.Run("postgres", func(t *testing.T) { test(t, openTest(t, accountingtest.StartPostgres(t).Address())) })
}

func openTest(t *testing.T, database string) *DB {
	t.Helper()
	db, aside, err := Open(t.Context(), database)
	if err != nil || aside != "" {
		t.Fatalf("opening %s: %v, set aside %q", database, err, aside)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func write(t *testing.T, db *DB, b Batch) {
	t.Helper()
	if err := db.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func usage(t *testing.T, db *DB, f Filter, now time.Time, by ...string) []palapi.Usage {
	t.Helper()
	u, err := db.Usage(t.Context(), f, by, now)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func job(name, user string) palapi.Run {
	return palapi.Run{Namespace: "research", Job: name, User: user, Class: "A", Model: "H100", GPUs: 2, State: palapi.RunRunning, Submitted: at(0), Started: at(1), Waited: palapi.Seconds(time.Hour), Predicted: 1.1, Packed: 1.32, Any: 1.21}
}

func allocOf(r palapi.Run, id string, from, to time.Time, status string) Alloc {
	return Alloc{ID: id, Namespace: r.Namespace, Job: r.Job, Submitted: r.Submitted, User: r.User, Class: r.Class, Node: "n", Model: r.Model, GPUs: []string{"GPU-1", "GPU-2"}, Held: 2,
		From: from, To: to, Status: status, Vain: from, Predicted: r.Predicted, Packed: r.Packed}
}

// GPU time counts on the days on which it was used, once, however often its end is written. Running
// jobs are included.
func TestUsage(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		a, b := job("a", "ann"), job("b", "bob")
		write(t, db, Batch{Runs: []palapi.Run{a, b}, Allocs: []Alloc{allocOf(a, "1", at(1), time.Time{}, "running"), allocOf(b, "2", at(1), time.Time{}, "running")}})
		if got := usage(t, db, Filter{}, at(3), "user"); len(got) != 2 || got[0].Of[0] != "ann" || got[0].GPUHours != 4 || got[0].Runs != 0 {
			t.Errorf("of running jobs: %+v", got)
		}
		a.State, a.Ended = palapi.RunComplete, at(14) // two hours into the next day
		b.State, b.Ended = palapi.RunFailed, at(3)
		a.Stops, b.Stops = queue.Stops{Stops: 2, LostGPUSeconds: 1800}, queue.Stops{SavedSeconds: 5400}
		failed := allocOf(b, "2", at(1), at(3), "failed")
		failed.Vain = at(2)
		for range 3 {
			write(t, db, Batch{Runs: []palapi.Run{a, b}, Allocs: []Alloc{allocOf(a, "1", at(1), at(14), "complete"), failed}})
		}
		want := []palapi.Usage{
			{Of: []string{"ann"}, GPUHours: 26, SavedGPUHours: 26 * 0.2, Runs: 1, Complete: 1, WaitedHours: 1, Stops: 2, StopsLostGPUHours: 0.5},
			{Of: []string{"bob"}, GPUHours: 4, FailedGPUHours: 4, HeldInVainGPUHours: 2, SavedGPUHours: 4 * 0.2, Runs: 1, Failed: 1, WaitedHours: 1, StopsSavedHours: 1.5},
		}
		if d := cmp.Diff(want, usage(t, db, Filter{}, at(99), "user"), near); d != "" {
			t.Errorf("usage by user (-want +got):\n%s", d)
		}
		days := usage(t, db, Filter{User: "ann"}, at(99), "day", "class")
		if len(days) != 2 || days[0].Of[0] != "2026-11-02" || days[0].GPUHours != 22 || days[1].Of[1] != "A" || days[1].GPUHours != 4 || days[1].Runs != 1 {
			t.Errorf("by day: %+v", days)
		}
		if got := usage(t, db, Filter{Since: at(13)}, at(99), "month"); len(got) != 1 || got[0].Of[0] != "2026-11" || got[0].GPUHours != 4 {
			t.Errorf("since the next day: %+v", got)
		}
		if got := usage(t, db, Filter{Until: at(12)}, at(99)); len(got) != 1 || got[0].GPUHours != 26 {
			t.Errorf("until midnight: %+v", got)
		}
		if got := usage(t, db, Filter{Namespaces: []string{}}, at(99)); len(got) != 0 {
			t.Errorf("of no namespace: %+v", got)
		}
	})
}

var near = cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })

// Runs can be found by their fields, the last submitted first.
func TestRuns(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		ended, waits, other := job("train-1", "ann"), job("train-2", "bob"), job("serve", "ann")
		ended.State, ended.Ended, ended.Whole, ended.Reason = palapi.RunComplete, at(2), at(1.5), "2 of 2 members complete"
		ended.MemberGPUs, ended.Preemptible = 2, true
		ended.Stops = queue.Stops{Stops: 3, LostGPUSeconds: 100.25, SavedSeconds: 0.5}
		waits.State, waits.Started, waits.Submitted = palapi.RunPending, time.Time{}, at(5)
		other.Namespace, other.Submitted, other.Model = "default", at(1), "T4"
		write(t, db, Batch{Runs: []palapi.Run{ended, waits, other}})
		for name, c := range map[string]struct {
			f    Filter
			want []palapi.Run
		}{
			"all":             {Filter{}, []palapi.Run{waits, other, ended}},
			"two":             {Filter{Most: 2}, []palapi.Run{waits, other}},
			"of a user":       {Filter{User: "ann"}, []palapi.Run{other, ended}},
			"of a model":      {Filter{Model: "T4"}, []palapi.Run{other}},
			"of a class":      {Filter{Class: "D"}, []palapi.Run{}},
			"of a namespace":  {Filter{Namespaces: []string{"research"}}, []palapi.Run{waits, ended}},
			"by its name":     {Filter{Job: "train"}, []palapi.Run{waits, ended}},
			"by state":        {Filter{States: []palapi.RunState{palapi.RunComplete, palapi.RunFailed}}, []palapi.Run{ended}},
			"since its end":   {Filter{Since: at(2)}, []palapi.Run{waits, other, ended}},
			"since after it":  {Filter{Since: at(2.1)}, []palapi.Run{waits, other}},
			"until it began":  {Filter{Until: at(0.5)}, []palapi.Run{ended}},
			"of no namespace": {Filter{Namespaces: []string{}}, []palapi.Run{}},
		} {
			got, err := db.Runs(t.Context(), c.f)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
		if names, err := db.Namespaces(t.Context()); err != nil || strings.Join(names, " ") != "default research" {
			t.Errorf("namespaces %v, %v", names, err)
		}
		runs, live, err := db.Open(t.Context())
		if err != nil || len(runs) != 2 || len(live) != 0 {
			t.Errorf("not ended: %v, %v, %v", runs, live, err)
		}
		again := ended
		again.Submitted = at(9)
		write(t, db, Batch{Runs: []palapi.Run{again}})
		keys := []cluster.JobKey{keyOf(ended), {Namespace: "research", ID: "none"}, keyOf(waits)}
		if last, err := db.LastRuns(t.Context(), keys); err != nil || cmp.Diff([]palapi.Run{again, waits}, last) != "" {
			t.Errorf("last runs %+v, %v", last, err)
		}
	})
}

// Time in which GPUs were idle is added to the run and to its days, also after the run's
// end.
func TestIdle(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		r := job("a", "ann")
		write(t, db, Batch{Runs: []palapi.Run{r}, Allocs: []Alloc{allocOf(r, "1", at(1), time.Time{}, "running")}, Idle: []Idle{{"1", at(11), at(13), 1}, {"none", at(1), at(2), 1}}})
		r.State, r.Ended = palapi.RunComplete, at(14)
		write(t, db, Batch{Runs: []palapi.Run{r}, Allocs: []Alloc{allocOf(r, "1", at(1), at(14), "complete")}})
		write(t, db, Batch{Idle: []Idle{{"1", at(13), at(14), 2}}})
		days := usage(t, db, Filter{}, at(99), "day")
		if len(days) != 2 || days[0].IdleGPUHours != 1 || days[1].IdleGPUHours != 3 || days[1].GPUHours != 4 {
			t.Errorf("by day: %+v", days)
		}
		if runs, err := db.Runs(t.Context(), Filter{}); err != nil || len(runs) != 1 || runs[0].Idle != palapi.Seconds(4*time.Hour) {
			t.Errorf("runs %+v, %v", runs, err)
		}
	})
}

// A complete run is compared with earlier runs of its family on as many GPUs of the same model.
func TestSeen(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		run := func(n int, family string, took, predicted float64) palapi.Run {
			r := job(fmt.Sprintf("%s-%d", family, n), "ann")
			r.Family, r.Submitted, r.Started, r.Whole = family, at(float64(n)), at(float64(n)), at(float64(n))
			r.State, r.Took, r.Predicted = palapi.RunComplete, palapi.Seconds(took*float64(time.Hour)), predicted
			r.Ended = r.Whole.Add(time.Duration(r.Took))
			return r
		}
		others := run(4, "train", 40, 1)
		others.Model = "T4"
		write(t, db, Batch{Runs: []palapi.Run{run(1, "train", 1, 1), run(2, "train", 1.2, 1.2), run(3, "train", 1.5, 1), others, run(5, "train", 1.5, 1.1), run(6, "train", 1.1, 1.1)}})
		runs, err := db.Runs(t.Context(), Filter{Job: "train-"})
		if err != nil {
			t.Fatal(err)
		}
		// The median of 1, 1 and 1.5, and then of 1, 1, 1.5 and 1.5/1.1.
		if got := []float64{runs[0].Seen, runs[1].Seen, runs[2].Seen}; got[0] < 0.93 || got[0] > 0.931 || got[1] != 1.5 || got[2] != 0 {
			t.Errorf("slowdowns seen: %v", got)
		}
	})
}

// meanSlowest gives the same result as listing all choices.
func TestMeanSlowest(t *testing.T) {
	scores := []float64{0.9, 1, 1.05, 1.3, 2}
	for n := 1; n <= len(scores); n++ {
		sum, choices := 0.0, 0
		for set := range 1 << len(scores) {
			if bits.OnesCount(uint(set)) == n {
				choices++
				sum += scores[bits.Len(uint(set))-1]
			}
		}
		if got, want := meanSlowest(scores, n), sum/float64(choices); !near2(got, want) {
			t.Errorf("of %d: %v, want %v", n, got, want)
		}
	}
}

func near2(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// When runs are pruned, their sums stay.
func TestPrune(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		r := job("a", "ann")
		r.State, r.Ended = palapi.RunStopped, at(3)
		write(t, db, Batch{Runs: []palapi.Run{r}, Allocs: []Alloc{allocOf(r, "1", at(1), at(3), "complete")}})
		if err := db.Prune(t.Context(), at(4)); err != nil {
			t.Fatal(err)
		}
		if runs, err := db.Runs(t.Context(), Filter{}); err != nil || len(runs) != 0 {
			t.Errorf("runs are still stored: %v, %v", runs, err)
		}
		if got := usage(t, db, Filter{}, at(99)); len(got) != 1 || got[0].GPUHours != 4 {
			t.Errorf("usage %+v", got)
		}
	})
}

// A batch is stored completely or not at all.
func TestWriteIsWhole(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := job("a", "ann")
		if err := db.Write(ctx, Batch{Runs: []palapi.Run{r}}); err == nil {
			t.Error("a write with an ended context stores something")
		}
		if runs, err := db.Runs(t.Context(), Filter{}); err != nil || len(runs) != 0 {
			t.Errorf("runs %v, %v", runs, err)
		}
	})
}

// A database can be opened again unchanged. A database of a later version is refused, and stays
// unchanged.
func TestOpenAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history.db")
	db := openTest(t, file)
	write(t, db, Batch{Runs: []palapi.Run{job("a", "ann")}})
	again := openTest(t, file)
	if runs, err := again.Runs(t.Context(), Filter{}); err != nil || len(runs) != 1 {
		t.Errorf("runs %v, %v", runs, err)
	}
	if _, err := db.sql.ExecContext(t.Context(), "UPDATE version SET applied = 99"); err != nil {
		t.Fatal(err)
	}
	if _, aside, err := Open(t.Context(), file); err == nil || aside != "" || !strings.Contains(err.Error(), "later version of nomad-pal wrote the database (schema 99; this version knows 1)") {
		t.Errorf("a later schema: %q, %v", aside, err)
	}
}

// A corrupt file is set aside, and reported. The sums of the new file start at
// zero.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(text []byte) []byte{
		"no database": func([]byte) []byte { return []byte(strings.Repeat("this is no database\n", 1000)) },
		"a page of zeros": func(text []byte) []byte {
			copy(text[4096:], make([]byte, len(text)-4096))
			return text
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "history.db")
			db, _, err := Open(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			r := job("a", "ann")
			r.State, r.Ended = palapi.RunComplete, at(3)
			ended := Batch{Runs: []palapi.Run{r}, Allocs: []Alloc{allocOf(r, "1", at(1), at(3), "complete")}}
			write(t, db, ended)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, damage(text), 0o600); err != nil {
				t.Fatal(err)
			}
			db, aside, err := Open(t.Context(), file)
			if err != nil || !strings.HasPrefix(aside, file+".corrupt-") {
				t.Fatalf("opened %v, set aside as %q", err, aside)
			}
			defer db.Close()
			if _, err := os.Stat(aside); err != nil {
				t.Error(err)
			}
			if runs, err := db.Runs(t.Context(), Filter{}); err != nil || len(runs) != 0 {
				t.Errorf("the new file has %v, %v", runs, err)
			}
			if sums := usage(t, db, Filter{}, at(99)); len(sums) != 0 {
				t.Errorf("the new file begins with %+v", sums)
			}
			write(t, db, ended)
			write(t, db, ended)
			if sums := usage(t, db, Filter{}, at(99)); len(sums) != 1 || sums[0].GPUHours != 4 || sums[0].Runs != 1 {
				t.Errorf("a run that is written twice counts as %+v", sums)
			}
		})
	}
}

// If a directory cannot be created or a file cannot be read, the error names it.
func TestCannotOpen(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), filepath.Join(file, "below", "history.db")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("below a file: %v", err)
	}
	if _, _, err := Open(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory is opened as a database")
	}
}
