// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Filter selects runs or GPU time. The zero value selects everything.
type Filter struct {
	// Namespaces lists the namespaces that the caller may see. nil means all namespaces.
	Namespaces []string
	User       string
	Class      string
	Model      string
	States     []palapi.RunState
	// Job is a prefix: the filter selects jobs whose id begins with Job.
	Job string
	// Since and Until limit the time range. A zero time means no limit. [DB.Runs] selects the runs
	// that overlap the time from Since to Until. [DB.Usage] counts whole days.
	Since, Until time.Time
	// Most is the maximum number of runs to return, or 0 if there is no maximum. The newest runs
	// come first.
	Most int
}

// where returns the conditions on columns that all tables have.
func (f Filter) where() (w where) {
	if f.Namespaces != nil {
		w.add("namespace IN ("+cmp.Or(marks(len(f.Namespaces)), "NULL")+")", anys(f.Namespaces)...)
	}
	for _, c := range [][2]string{{"username", f.User}, {"class", f.Class}, {"model", f.Model}} {
		if c[1] != "" {
			w.add(c[0]+" = ?", c[1])
		}
	}
	return w
}

// where holds the conditions of an SQL statement, and the arguments of these conditions.
type where struct {
	conditions []string
	args       []any
}

func (w *where) add(condition string, args ...any) {
	w.conditions, w.args = append(w.conditions, condition), append(w.args, args...)
}

func (w where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

func anys[T any](of []T) (out []any) {
	for _, v := range of {
		out = append(out, v)
	}
	return out
}

const (
	runColumns = "namespace, job, submitted, username, class, model, gpus, member_gpus, preemptible, state, reason, started, whole, ended, waited, " +
		"predicted, packed, any_gpus, slowest, family, took, seen, idle, stops, stops_lost, stops_won"
	allocColumns = "id, namespace, job, submitted, username, class, node, model, gpus, held, began, status, vain, predicted, packed"
	inOrder      = " ORDER BY submitted DESC" // no further columns, or SQLite may sort all rows
)

// Runs returns the runs that a filter selects. The newest runs come first. Runs queries each
// namespace and each state separately, because an index contains the rows of one namespace and
// state in the order of submission. So Runs reads hardly any rows that it does not need.
func (db *DB) Runs(ctx context.Context, f Filter) (out []palapi.Run, err error) {
	namespaces := f.Namespaces
	if namespaces == nil && f.Job != "" { // the index of job names is by namespace
		if namespaces, err = db.Namespaces(ctx); err != nil {
			return nil, err
		}
	}
	one, out := f, []palapi.Run{}
	for _, n := range each(namespaces) {
		for _, s := range each(f.States) {
			one.Namespaces, one.States = n, s
			if f.Most > 0 && len(out) == f.Most && out[len(out)-1].Submitted.After(one.Since) {
				one.Since = out[len(out)-1].Submitted
			}
			statement, args := one.submittedIn()
			more, err := db.runs(ctx, statement, args...)
			if err != nil {
				return nil, err
			}
			out = f.first(append(out, more...))
		}
	}
	if f.Since.IsZero() || f.Most > 0 && len(out) == f.Most {
		return out, nil
	}
	statement, args := f.thereAtSince()
	there, err := db.runs(ctx, statement, args...)
	return f.first(append(out, there...)), err
}

// each splits a list into one-element lists. nil, which means no restriction, becomes one nil list.
func each[T any](of []T) [][]T {
	if of == nil {
		return [][]T{nil}
	}
	return slices.Collect(slices.Chunk(of, 1))
}

// first sorts runs by their submission, the newest first, and returns at most f.Most runs.
func (f Filter) first(runs []palapi.Run) []palapi.Run {
	slices.SortFunc(runs, func(a, b palapi.Run) int {
		return cmp.Or(b.Submitted.Compare(a.Submitted), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Job, b.Job))
	})
	if f.Most > 0 {
		return runs[:min(len(runs), f.Most)]
	}
	return runs
}

// ofRuns returns all conditions on runs except the conditions on time.
func (f Filter) ofRuns() where {
	w := f.where()
	if f.Job != "" {
		w.add("job >= ? AND job < ?", f.Job, f.Job+"\U0010FFFF")
	}
	if len(f.States) > 0 {
		w.add("state IN ("+marks(len(f.States))+")", anys(f.States)...)
	}
	return w
}

// submittedIn returns an SQL statement that selects the runs that were submitted between f.Since
// and f.Until.
func (f Filter) submittedIn() (statement string, args []any) {
	w := f.ofRuns()
	if !f.Since.IsZero() {
		w.add("submitted >= ?", stored(f.Since))
	}
	if !f.Until.IsZero() {
		w.add("submitted < ?", stored(f.Until))
	}
	return "SELECT " + runColumns + " FROM run" + w.String() + inOrder + f.limit(), w.args
}

func (f Filter) limit() string {
	if f.Most > 0 {
		return fmt.Sprintf(" LIMIT %d", f.Most)
	}
	return ""
}

// thereAtSince returns an SQL statement that selects the runs that were submitted before f.Since
// and had not ended at that time. The union keeps the databases from reading all earlier runs.
func (f Filter) thereAtSince() (statement string, args []any) {
	w := f.ofRuns()
	w.add("submitted < ?", stored(f.Since))
	if !f.Until.IsZero() {
		w.add("submitted < ?", stored(f.Until))
	}
	there := fmt.Sprintf("(SELECT %[1]s FROM run WHERE ended = 0 UNION ALL SELECT %[1]s FROM run WHERE ended >= %[2]d) AS there", runColumns, stored(f.Since))
	return "SELECT " + runColumns + " FROM " + there + w.String() + inOrder + f.limit(), w.args
}

func (db *DB) runs(ctx context.Context, statement string, args ...any) ([]palapi.Run, error) {
	out := []palapi.Run{}
	err := db.rows(ctx, statement, args, func(rows *sql.Rows) error {
		var r palapi.Run
		var submitted, started, whole, ended, waited, took, idle int64
		err := rows.Scan(&r.Namespace, &r.Job, &submitted, &r.User, &r.Class, &r.Model, &r.GPUs, &r.MemberGPUs, &r.Preemptible, &r.State, &r.Reason, &started, &whole, &ended, &waited,
			&r.Predicted, &r.Packed, &r.Any, &r.Slowest, &r.Family, &took, &r.Seen, &idle,
			&r.Stops.Stops, &r.LostGPUSeconds, &r.SavedSeconds)
		r.Submitted = loaded(submitted)
		r.Started = loaded(started)
		r.Whole = loaded(whole)
		r.Ended = loaded(ended)
		r.Waited = span(waited)
		r.Took = span(took)
		r.Idle = span(idle)
		out = append(out, r)
		return err
	})
	return out, err
}

func span(ms int64) palapi.Seconds { return palapi.Seconds(ms * int64(time.Millisecond)) }

func (db *DB) rows(ctx context.Context, statement string, args []any, each func(*sql.Rows) error) (err error) {
	rows, err := db.sql.QueryContext(ctx, numbered(statement), storable(args)...)
	if err != nil {
		return fmt.Errorf("cannot read the history: %w", err)
	}
	defer func() { err = cmp.Or(err, rows.Close()) }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("cannot read the history: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("cannot read the history: %w", err)
	}
	return nil
}

// Open returns the runs and allocations that have not ended.
func (db *DB) Open(ctx context.Context) ([]palapi.Run, []Alloc, error) {
	runs, err := db.runs(ctx, "SELECT "+runColumns+" FROM run WHERE ended = 0")
	if err != nil {
		return nil, nil, err
	}
	live, err := db.allocs(ctx, Filter{})
	return runs, live, err
}

// LastRuns returns the newest run of each of these jobs. LastRuns leaves out jobs that have no
// runs.
func (db *DB) LastRuns(ctx context.Context, jobs []cluster.JobKey) (last []palapi.Run, err error) {
	for _, k := range jobs {
		runs, err := db.runs(ctx, "SELECT "+runColumns+" FROM run WHERE namespace = ? AND job = ? ORDER BY submitted DESC LIMIT 1", k.Namespace, short(k.ID))
		if err != nil {
			return nil, err
		}
		last = append(last, runs...)
	}
	return last, nil
}

// allocs returns the allocations that have not ended and that the filter selects.
func (db *DB) allocs(ctx context.Context, f Filter) (out []Alloc, err error) {
	w := f.where()
	w.add("ended = 0")
	err = db.rows(ctx, "SELECT "+allocColumns+" FROM alloc"+w.String(), w.args, func(rows *sql.Rows) error {
		var a Alloc
		var submitted, began, vain int64
		var gpus string
		err := rows.Scan(&a.ID, &a.Namespace, &a.Job, &submitted, &a.User, &a.Class, &a.Node, &a.Model, &gpus, &a.Held, &began, &a.Status, &vain, &a.Predicted, &a.Packed)
		a.Submitted = loaded(submitted)
		a.From = loaded(began)
		a.Vain = loaded(vain)
		a.GPUs = strings.Split(gpus, ",")
		out = append(out, a)
		return err
	})
	return out, err
}

func usageOf(of []string, s sums) palapi.Usage {
	hours := s.hours
	return palapi.Usage{
		Of: of, GPUHours: hours(gpuTime), FailedGPUHours: hours(failedTime), HeldInVainGPUHours: hours(vainTime), IdleGPUHours: hours(idleTime),
		SavedGPUHours: hours(savedTime),
		Runs:          s[runsEnded], Complete: s[runsComplete], Failed: s[runsFailed], WaitedHours: hours(waitedTime),
		Stops: s[stops], StopsLostGPUHours: hours(stopsLost), StopsSavedHours: hours(stopsWon),
	}
}

// groupings maps each of [palapi.UsageColumns] to the column with the sums in the database, and to a function
// that returns the column's value for a day.
var groupings = map[string]struct {
	stored string
	of     func(dayKey) string
}{
	"namespace": {"namespace", func(k dayKey) string { return k.namespace }},
	"user":      {"username", func(k dayKey) string { return k.user }},
	"class":     {"class", func(k dayKey) string { return k.class }},
	"model":     {"model", func(k dayKey) string { return k.model }},
	"day":       {"day", func(k dayKey) string { return startOf(k.day).Format(time.DateOnly) }},
	"month":     {"day", func(k dayKey) string { return startOf(k.day).Format("2006-01") }},
}

// Usage sums up the GPU time and the runs that the filter selects, in whole days of UTC. Usage
// returns one line for each combination of values in the given columns, sorted by these values.
// Running allocations count up to now.
func (db *DB) Usage(ctx context.Context, f Filter, by []string, now time.Time) ([]palapi.Usage, error) {
	since, until := f.days()
	days, err := db.sums(ctx, f, since, until, by)
	if err != nil {
		return nil, err
	}
	live, err := db.allocs(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, a := range live {
		a.addTo(days, startOf(since), earlier(now, startOf(until)))
	}
	return lines(days, by), nil
}

// days returns the first day that the filter selects, and the day after the last selected day.
func (f Filter) days() (since, until int64) {
	until = dayOf(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC))
	if !f.Until.IsZero() {
		until = dayOf(f.Until.Add(dayLong - time.Millisecond))
	}
	if !f.Since.IsZero() {
		since = dayOf(f.Since)
	}
	return since, until
}

// sumsOf returns the stored sums of the days from since (inclusive) to until (exclusive), grouped by
// the given columns. If since and until are first days of a month, and the columns do not include
// the day, sums reads the monthly sums.
func (db *DB) sums(ctx context.Context, f Filter, since, until int64, by []string) (map[dayKey]sums, error) {
	table := "day"
	if !slices.Contains(by, "day") && monthOf(since) == since && monthOf(until) == until {
		table = "month"
	}
	w := f.where()
	w.add("day >= ? AND day < ?", since, until)
	keys := strings.Split(dayColumns, ", ")
	for i, key := range keys {
		grouped := slices.ContainsFunc(by, func(column string) bool { return groupings[column].stored == key })
		switch {
		case !grouped && key == "day":
			keys[i] = "0"
		case !grouped:
			keys[i] = "''"
		}
	}
	for _, c := range sumColumns {
		keys = append(keys, "CAST(SUM("+c+") AS BIGINT)")
	}
	days := map[dayKey]sums{}
	err := db.rows(ctx, "SELECT "+strings.Join(keys, ", ")+" FROM "+table+w.String()+" GROUP BY 1, 2, 3, 4, 5", w.args, func(rows *sql.Rows) error {
		var k dayKey
		var s sums
		to := []any{&k.day, &k.namespace, &k.user, &k.class, &k.model}
		for i := range s {
			to = append(to, &s[i])
		}
		err := rows.Scan(to...)
		days[k] = s
		return err
	})
	return days, err
}

func lines(days map[dayKey]sums, by []string) []palapi.Usage {
	all, of := map[string]sums{}, map[string][]string{}
	for k, s := range days {
		values := make([]string, len(by))
		for i, column := range by {
			values[i] = groupings[column].of(k)
		}
		line := strings.Join(values, "\x00")
		all[line], of[line] = all[line].plus(s), values
	}
	out := []palapi.Usage{}
	for line, s := range all {
		out = append(out, usageOf(of[line], s))
	}
	slices.SortFunc(out, func(a, b palapi.Usage) int { return slices.CompareFunc(a.Of, b.Of, cmp.Compare[string]) })
	return out
}

// Namespaces returns all namespaces in the database. Namespaces finds the namespaces of ended runs
// in the monthly sums, because their table has few rows.
func (db *DB) Namespaces(ctx context.Context) (names []string, err error) {
	err = db.rows(ctx, "SELECT namespace FROM month UNION SELECT namespace FROM run WHERE ended = 0 UNION SELECT namespace FROM alloc WHERE ended = 0 ORDER BY 1", nil, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}
