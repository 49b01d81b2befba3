// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func at(hours float64) time.Time {
	return ms(noon.Add(time.Duration(hours * float64(time.Hour))))
}

// databases are one of SQLite, and one of PostgreSQL where a server can be started.
func databases(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Run("sqlite", func(t *testing.T) { test(t, openTest(t, filepath.Join(t.TempDir(), "accounts", "history.db"))) })
	t.Run("postgres", func(t *testing.T) { test(t, openTest(t, postgres(t))) })
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

func usage(t *testing.T, db *DB, f Filter, now time.Time, by ...string) []Usage {
	t.Helper()
	u, err := db.Usage(t.Context(), f, by, now)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func job(name, user string) Run {
	return Run{Namespace: "research", Job: name, User: user, Class: "A", Model: "H100", GPUs: 2, State: Running, Submitted: at(0), Started: at(1), Waited: Seconds(time.Hour), Predicted: 1.1, Packed: 1.32}
}

func allocOf(r Run, id string, from, to time.Time, status string) Alloc {
	return Alloc{ID: id, Namespace: r.Namespace, Job: r.Job, Submitted: r.Submitted, User: r.User, Class: r.Class, Node: "n", Model: r.Model, GPUs: []string{"GPU-1", "GPU-2"},
		From: from, To: to, Status: status, Vain: from, Predicted: r.Predicted, Packed: r.Packed}
}

// GPU time counts on the days on which it was, once, however often its end is written, and with that of what still runs.
func TestUsage(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		a, b := job("a", "ann"), job("b", "bob")
		write(t, db, Batch{Runs: []Run{a, b}, Allocs: []Alloc{allocOf(a, "1", at(1), time.Time{}, "running"), allocOf(b, "2", at(1), time.Time{}, "running")}})
		if got := usage(t, db, Filter{}, at(3), "user"); len(got) != 2 || got[0].Of[0] != "ann" || got[0].GPUHours != 4 || got[0].Runs != 0 {
			t.Errorf("of jobs that run: %+v", got)
		}
		a.State, a.Ended = Complete, at(14) // two hours into the next day
		b.State, b.Ended = Failed, at(3)
		failed := allocOf(b, "2", at(1), at(3), "failed")
		failed.Vain = at(2)
		for range 3 {
			write(t, db, Batch{Runs: []Run{a, b}, Allocs: []Alloc{allocOf(a, "1", at(1), at(14), "complete"), failed}})
		}
		want := []Usage{
			{Of: []string{"ann"}, GPUHours: 26, SavedGPUHours: 26 * 0.2, Runs: 1, Complete: 1, WaitedHours: 1},
			{Of: []string{"bob"}, GPUHours: 4, FailedGPUHours: 4, HeldInVainGPUHours: 2, SavedGPUHours: 4 * 0.2, Runs: 1, Failed: 1, WaitedHours: 1},
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

// Runs are found by what they are, the last submitted first.
func TestRuns(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		ended, waits, other := job("train-1", "ann"), job("train-2", "bob"), job("serve", "ann")
		ended.State, ended.Ended, ended.Whole, ended.Reason = Complete, at(2), at(1.5), "2 of 2 members are complete"
		waits.State, waits.Started, waits.Submitted = Pending, time.Time{}, at(5)
		other.Namespace, other.Submitted, other.Model = "default", at(1), "T4"
		write(t, db, Batch{Runs: []Run{ended, waits, other}})
		for name, c := range map[string]struct {
			f    Filter
			want []Run
		}{
			"all":             {Filter{}, []Run{waits, other, ended}},
			"two":             {Filter{Most: 2}, []Run{waits, other}},
			"of a user":       {Filter{User: "ann"}, []Run{other, ended}},
			"of a model":      {Filter{Model: "T4"}, []Run{other}},
			"of a class":      {Filter{Class: "D"}, []Run{}},
			"of a namespace":  {Filter{Namespaces: []string{"research"}}, []Run{waits, ended}},
			"by its name":     {Filter{Job: "train"}, []Run{waits, ended}},
			"by state":        {Filter{States: []State{Complete, Failed}}, []Run{ended}},
			"since its end":   {Filter{Since: at(2)}, []Run{waits, other, ended}},
			"since after it":  {Filter{Since: at(2.1)}, []Run{waits, other}},
			"until it began":  {Filter{Until: at(0.5)}, []Run{ended}},
			"of no namespace": {Filter{Namespaces: []string{}}, []Run{}},
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
		write(t, db, Batch{Runs: []Run{again}})
		keys := []cluster.JobKey{ended.key(), {Namespace: "research", ID: "none"}, waits.key()}
		if last, err := db.LastRuns(t.Context(), keys); err != nil || cmp.Diff([]Run{again, waits}, last) != "" {
			t.Errorf("last runs %+v, %v", last, err)
		}
	})
}

// What is forgotten leaves its sums.
func TestPrune(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		r := job("a", "ann")
		r.State, r.Ended = Stopped, at(3)
		write(t, db, Batch{Runs: []Run{r}, Allocs: []Alloc{allocOf(r, "1", at(1), at(3), "complete")}})
		if err := db.Prune(t.Context(), at(4)); err != nil {
			t.Fatal(err)
		}
		if runs, err := db.Runs(t.Context(), Filter{}); err != nil || len(runs) != 0 {
			t.Errorf("runs are still there: %v, %v", runs, err)
		}
		if got := usage(t, db, Filter{}, at(99)); len(got) != 1 || got[0].GPUHours != 4 || got[0].Stopped != 1 {
			t.Errorf("usage %+v", got)
		}
	})
}

// A batch is stored whole or not at all.
func TestWriteIsWhole(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := job("a", "ann")
		if err := db.Write(ctx, Batch{Runs: []Run{r}}); err == nil {
			t.Error("an ended context stores something")
		}
		if runs, err := db.Runs(t.Context(), Filter{}); err != nil || len(runs) != 0 {
			t.Errorf("runs %v, %v", runs, err)
		}
	})
}

// A database is opened again as it was. One of a later version is refused, and stays as it is.
func TestOpenAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history.db")
	db := openTest(t, file)
	write(t, db, Batch{Runs: []Run{job("a", "ann")}})
	again := openTest(t, file)
	if runs, err := again.Runs(t.Context(), Filter{}); err != nil || len(runs) != 1 {
		t.Errorf("runs %v, %v", runs, err)
	}
	if _, err := db.sql.ExecContext(t.Context(), "UPDATE version SET applied = 99"); err != nil {
		t.Fatal(err)
	}
	if _, aside, err := Open(t.Context(), file); err == nil || aside != "" || !strings.Contains(err.Error(), "later version of nomad-pal (form 99; this one knows 1)") {
		t.Errorf("a later form: %q, %v", aside, err)
	}
}

// A corrupt file is set aside, and named.
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
			write(t, db, Batch{Runs: []Run{job("a", "ann")}})
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
				t.Errorf("the new one has %v, %v", runs, err)
			}
		})
	}
}

// A directory that cannot be made, or a file that cannot be read, is an error that names it.
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
		t.Error("a directory is a database")
	}
}

// BenchmarkAsk answers from 10 million runs and their days.
func BenchmarkAsk(b *testing.B) {
	db, _, err := Open(b.Context(), filepath.Join(b.TempDir(), "history.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	const runs = 10_000_000
	err = db.transact(b.Context(), func(tx tx) error {
		return tx.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO run SELECT 'ns' || (i % 20), 'job-' || i, ? - i * 3000, 'user' || (i % 200), 'A', 'H100', 8,
			CASE i % 10 WHEN 0 THEN 'failed' ELSE 'complete' END, '', ? - i * 3000 + 1000, ? - i * 3000 + 1000, ? - i * 3000 + 100000, 1000, 1.1, 1.3 FROM n`,
			runs, stored(noon), stored(noon), stored(noon), stored(noon))
	})
	if err != nil {
		b.Fatal(err)
	}
	days := map[dayKey]sums{}
	for day := range int64(365) {
		for user := range 200 {
			days[dayKey{dayOf(noon) - day, fmt.Sprintf("ns%d", user%20), fmt.Sprintf("user%d", user), "A", "H100"}] = sums{gpu: time.Hour, runs: 137}
		}
	}
	if err := db.transact(b.Context(), func(tx tx) error { return tx.days(days) }); err != nil {
		b.Fatal(err)
	}
	for name, ask := range map[string]func() error{
		"last 100": func() error { _, err := db.Runs(b.Context(), Filter{Most: 100}); return err },
		"failed of a day": func() error {
			_, err := db.Runs(b.Context(), Filter{States: []State{Failed}, Since: noon.Add(-dayLong), Most: 1000})
			return err
		},
		"of a user":      func() error { _, err := db.Runs(b.Context(), Filter{User: "user7", Most: 100}); return err },
		"usage by month": func() error { _, err := db.Usage(b.Context(), Filter{}, []string{"month", "user"}, noon); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := ask(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
