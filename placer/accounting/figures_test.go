// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// For any filter, the answer equals that of filtering all runs one by one.
func TestRunsAreAllOfThem(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *DB) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		of := func(values ...string) string { return values[random.IntN(len(values))] }
		hours := func(most float64) time.Time { return at(random.Float64() * most) }
		var all []palapi.Run
		for i := range 300 {
			r := palapi.Run{Namespace: of("a", "b", "c"), Job: fmt.Sprintf("%s-%d", of("train", "serve"), i), User: of("", "ann", "bob"), Class: of("A", "D"), Model: of("H100", "T4"),
				GPUs: 1, State: palapi.RunRunning, Submitted: hours(100)}
			if long := []float64{0, 0.1, 5, 90}[random.IntN(4)]; random.IntN(8) > 0 {
				r.State, r.Ended = palapi.RunState(of(string(palapi.RunComplete), string(palapi.RunFailed))), ms(r.Submitted.Add(time.Duration(random.Float64()*long*float64(time.Hour))))
			}
			all = append(all, r)
		}
		write(t, db, Batch{Runs: all})
		if err := db.Prune(t.Context(), at(-1)); err != nil {
			t.Fatal(err)
		}
		for range 300 {
			f := Filter{User: of("", "", "ann"), Class: of("", "", "D"), Model: of("", "", "T4"), Job: of("", "", "tr", "train-1"), Most: []int{0, 1, 7, 50}[random.IntN(4)]}
			if random.IntN(2) == 0 {
				f.Namespaces = slices.Delete([]string{"a", "b", "c"}, 0, random.IntN(4))
			}
			if random.IntN(2) == 0 {
				f.States = slices.Delete([]palapi.RunState{palapi.RunFailed, palapi.RunRunning, palapi.RunComplete}, 0, random.IntN(3))
			}
			if random.IntN(2) == 0 {
				f.Since = hours(120)
			}
			if random.IntN(3) == 0 {
				f.Until = hours(120)
			}
			want := f.first(slices.DeleteFunc(slices.Clone(all), func(r palapi.Run) bool { return !f.chooses(r) }))
			got, err := db.Runs(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(want, got); d != "" {
				t.Fatalf("%+v (-want +got):\n%s", f, d)
			}
		}
	})
}

// chooses reports whether a filter chooses a run.
func (f Filter) chooses(r palapi.Run) bool {
	is := func(want, is string) bool { return want == "" || want == is }
	return (f.Namespaces == nil || slices.Contains(f.Namespaces, r.Namespace)) && (f.States == nil || slices.Contains(f.States, r.State)) &&
		is(f.User, r.User) && is(f.Class, r.Class) && is(f.Model, r.Model) && strings.HasPrefix(r.Job, f.Job) &&
		(r.Ended.IsZero() || !r.Ended.Before(f.Since)) && (f.Until.IsZero() || r.Submitted.Before(f.Until))
}

// SQLite reads runs in the order of the list, without sorting.
func TestPlans(t *testing.T) {
	t.Parallel()
	db := openTest(t, filepath.Join(t.TempDir(), "history.db"))
	fill(t, db, 5000)
	if err := db.Prune(t.Context(), time.UnixMilli(1)); err != nil { // SQLite plans by the statistics that it has gathered
		t.Fatal(err)
	}
	since := Filter{Since: at(0), Most: 10, User: "ann"}
	for _, f := range []Filter{{Most: 10}, {User: "ann"}, {Class: "A"}, {Model: "T4"}, {Namespaces: []string{"a"}}, {States: []palapi.RunState{palapi.RunFailed}}, since} {
		statement, args := f.submittedIn()
		plan := explain(t, db, statement, args)
		if !strings.Contains(plan, "USING INDEX run_") || strings.Contains(plan, "TEMP B-TREE FOR ORDER BY") {
			t.Errorf("%s:\n%s", statement, plan)
		}
	}
	statement, args := Filter{Since: at(0), Most: 10}.thereAtSince()
	if plan := explain(t, db, statement, args); !strings.Contains(plan, "USING INDEX run_ended (ended>?)") {
		t.Errorf("%s:\n%s", statement, plan)
	}
}

func explain(t *testing.T, db *DB, statement string, args []any) (plan string) {
	t.Helper()
	rows, err := db.sql.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan += detail + "\n"
	}
	return plan
}

// TestFigures is make history-bench: it measures the history of 10 million runs, which a large
// cluster has in a year.
func TestFigures(t *testing.T) {
	report := os.Getenv("HISTORY_REPORT")
	if report == "" {
		t.Skip("skipped: measures ten million runs (make history-bench)")
	}
	runs, _ := strconv.Atoi(cmp.Or(os.Getenv("HISTORY_RUNS"), "10000000"))
	file := filepath.Join(t.TempDir(), "history.db")
	db := openTest(t, file)
	fill(t, db, runs)
	if err := db.Prune(t.Context(), time.UnixMilli(1)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# The history of %s runs\n\nWritten by `make history-bench` on %s; %s/%s, %d processors. Together, 200 users in 20 namespaces start a run every 3.15 s, which makes ten million runs a year. "+
		"The history is an SQLite file of %.1f GB. Each query runs five times. The table has the slowest answer, "+
		"and the highest processor time, which depends less on other programs.\n\n| question | answered in | processor time |\n|---|---|---|\n",
		grouped(runs), time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), float64(info.Size())/1e9)
	for _, q := range questions() {
		slowest, most := time.Duration(0), time.Duration(0)
		for range 5 {
			began, used := time.Now(), processorTime()
			n, err := q.ask(t, db)
			if err != nil {
				t.Fatal(err)
			}
			slowest, most = max(slowest, time.Since(began)), max(most, processorTime()-used)
			t.Logf("%s: %d lines in %v", q.what, n, time.Since(began))
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", q.what, rounded(slowest), rounded(most))
	}
	fmt.Fprint(&out, "\n| ended runs, each with its allocation, written in one transaction | time per run | processor time per run |\n|---|---|---|\n")
	for _, n := range []int{1, 10, 100} {
		took, used := ends(t, db, n)
		fmt.Fprintf(&out, "| %d | %s | %s |\n", n, rounded(took), rounded(used))
	}
	if err := os.WriteFile(report, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// grouped is a number with thousands separators.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// processorTime is the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func rounded(d time.Duration) string {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// fill writes n runs at intervals of [apart], and the sums of their days. SQLite generates
// them itself: for a year, [DB.Write] would take an hour.
func fill(t *testing.T, db *DB, runs int) {
	t.Helper()
	const part = 500_000
	columns := map[string]string{
		"namespace": "CASE i % 1000 WHEN 502 THEN 'rare' ELSE 'ns' || (i % 20) END", "job": "CASE i % 3 WHEN 0 THEN 'train-' WHEN 1 THEN 'eval-' ELSE 'sweep-' END || i",
		"submitted": "?1 - i * ?2", "username": "CASE i % 1000 WHEN 501 THEN 'rare' ELSE 'user' || (i * 7919 % 200) END", "class": "substr('ABC', i % 3 + 1, 1)",
		"model": "CASE i % 2 WHEN 0 THEN 'H100' ELSE 'A100' END", "gpus": "8", "reason": "''", "family": "'family' || (i % 5000)",
		"ended": "CASE WHEN (1 + i % 100) * 300000 > i * ?2 THEN 0 ELSE ?1 - i * ?2 + (1 + i % 100) * 300000 END",
		"state": "CASE WHEN (1 + i % 100) * 300000 > i * ?2 THEN 'running' WHEN i % 10 = 0 THEN 'failed' ELSE 'complete' END",
		"took":  "CASE i % 10 WHEN 0 THEN 0 ELSE (1 + i % 100) * 300000 - 2000 END", "predicted": "1.1", "packed": "1.3", "any_gpus": "1.2",
	}
	var values []string
	names := strings.Split(runColumns, ", ")
	for _, name := range names {
		values = append(values, cmp.Or(columns[name], "0"))
	}
	for from := 0; from < runs; from += part {
		_, err := db.sql.ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT ?4 UNION ALL SELECT i - 1 FROM n WHERE i > ?3)
			INSERT INTO run (%s) SELECT %s FROM n`, strings.Join(names, ", "), strings.Join(values, ", ")),
			noon.UnixMilli(), apart.Milliseconds(), runs-min(runs, from+part)+1, runs-from)
		if err != nil {
			t.Fatal(err)
		}
	}
	first := dayOf(noon.Add(-time.Duration(runs) * apart))
	for day := first; day <= dayOf(noon); day++ {
		days := map[dayKey]sums{}
		for k := range 600 {
			days[dayKey{day, fmt.Sprintf("ns%d", k%20), fmt.Sprintf("user%d", k%200), string("ABC"[k/200]), "H100"}] = sums{gpuTime: 1e7, runsEnded: 45, waitedTime: 1e6}
		}
		days[dayKey{day, "rare", "rare", "A", "H100"}] = sums{gpuTime: 1}
		if err := db.transact(t.Context(), func(tx tx) error { return tx.days(days) }); err != nil {
			t.Fatal(err)
		}
	}
}

// apart is the time between two runs: ten million in a year.
const apart = 3150 * time.Millisecond

// ends measures how long it takes to write the end of one run, in a batch of n.
func ends(t *testing.T, db *DB, n int) (took, used time.Duration) {
	times := 200 / n
	began, before := time.Now(), processorTime()
	for i := range times {
		var b Batch
		for k := range n {
			r := job(fmt.Sprintf("train-%d-of-%d-%d", i, n, k), fmt.Sprintf("user%d", k%200))
			r.State, r.Family, r.Whole, r.Ended, r.Took = palapi.RunComplete, "family7", at(1), at(2), palapi.Seconds(time.Hour)
			r.Namespace, r.GPUs, r.Model = "ns7", 8, "A100"
			b.Runs = append(b.Runs, r)
			b.Allocs = append(b.Allocs, allocOf(r, "alloc-"+r.Job, r.Started, r.Ended, "complete"))
		}
		write(t, db, b)
	}
	all := time.Duration(times * n)
	return time.Since(began) / all, (processorTime() - before) / all
}

type question struct {
	what string
	ask  func(t *testing.T, db *DB) (lines int, err error)
}

func questions() []question {
	runs := func(what string, f Filter) question {
		return question{"history: " + what, func(t *testing.T, db *DB) (int, error) {
			rs, err := db.Runs(t.Context(), f)
			return len(rs), err
		}}
	}
	usage := func(what string, f Filter, by ...string) question {
		return question{"usage: " + what, func(t *testing.T, db *DB) (int, error) {
			us, err := db.Usage(t.Context(), f, by, noon)
			return len(us), err
		}}
	}
	const day = dayLong
	return []question{
		runs("the last 100 runs", Filter{Most: 100}),
		runs("the last 100 runs of a user", Filter{User: "user7", Most: 100}),
		runs("the last 100 runs of a user who has one run in a thousand", Filter{User: "rare", Most: 100}),
		runs("the last 100 runs, for a token that can read only a namespace with one run in a thousand", Filter{Namespaces: []string{"rare"}, Most: 100}),
		runs("the last 100 runs, for a token that can read 19 of 21 namespaces", Filter{Namespaces: namespacesFrom(1), Most: 100}),
		runs("runs that failed in the last day", Filter{States: []palapi.RunState{palapi.RunFailed}, Since: noon.Add(-day), Most: 1000}),
		runs("all runs of the last day", Filter{Since: noon.Add(-day), Most: 100_000}),
		runs("at most 1,000 runs of one user in the last month", Filter{User: "user7", Since: noon.Add(-30 * day), Most: 1000}),
		runs("failed runs of one user and class in the last half year", Filter{User: "user7", Class: "B", States: []palapi.RunState{palapi.RunFailed}, Since: noon.Add(-182 * day), Most: 100}),
		runs("runs of one day half a year ago", Filter{Since: noon.Add(-183 * day), Until: noon.Add(-182 * day), Most: 50}),
		runs("runs of a class that has no runs", Filter{Class: "D", Most: 100}),
		runs("runs in a state that no run has", Filter{States: []palapi.RunState{palapi.RunUnknown}, Most: 100}),
		runs("runs whose name has a prefix that a third of all runs have", Filter{Job: "train-", Most: 100}),
		runs("runs with a given full name", Filter{Job: "train-4000002", Most: 100}),
		usage("by month and user", Filter{}, "month", "user"),
		usage("by namespace, user, class and model", Filter{}, "namespace", "user", "class", "model"),
		usage("by day and user, in a month", Filter{Since: noon.Add(-30 * day)}, "day", "user"),
		usage("by day, in a year", Filter{}, "day"),
		usage("by class, since mid-month half a year ago", Filter{Since: noon.Add(-170 * day)}, "class"),
		{"all namespaces", func(t *testing.T, db *DB) (int, error) { n, err := db.Namespaces(t.Context()); return len(n), err }},
		{"what the agent reads when it starts", func(t *testing.T, db *DB) (int, error) {
			r, a, err := db.Open(t.Context())
			return len(r) + len(a), err
		}},
	}
}

func namespacesFrom(n int) (names []string) {
	for ; n < 20; n++ {
		names = append(names, fmt.Sprintf("ns%d", n))
	}
	return names
}
