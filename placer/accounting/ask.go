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

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Filter chooses runs or GPU time. The zero value is all.
type Filter struct {
	// Namespaces are those of which the caller may know; nil: all.
	Namespaces []string
	User       string
	Class      string
	Model      string
	States     []State
	// Job is the beginning of a job's id.
	Job string
	// Since and Until bound the time; zero: no bound. A run counts if some of it lies between.
	Since, Until time.Time
	// Most is how many runs are returned at most, the last submitted first; 0: all.
	Most int
}

// where is the condition on the columns that both tables have.
func (f Filter) where() (conditions []string, args []any) {
	add := func(condition string, arg ...any) {
		conditions, args = append(conditions, condition), append(args, arg...)
	}
	if f.Namespaces != nil {
		marks := make([]any, len(f.Namespaces))
		for i, n := range f.Namespaces {
			marks[i] = n
		}
		add("namespace IN ("+strings.TrimSuffix(strings.Repeat("?,", len(marks)), ",")+")", marks...)
		if len(marks) == 0 {
			conditions[len(conditions)-1] = "1 = 0"
		}
	}
	for _, c := range [][2]string{{"username", f.User}, {"class", f.Class}, {"model", f.Model}} {
		if c[1] != "" {
			add(c[0]+" = ?", c[1])
		}
	}
	return conditions, args
}

func clause(conditions []string) string {
	if len(conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

const runColumns = "namespace, job, submitted, username, class, model, gpus, state, reason, started, whole, ended, waited, predicted, packed"

// Runs are the runs that a filter chooses, the last submitted first.
func (db *DB) Runs(ctx context.Context, f Filter) ([]Run, error) {
	conditions, args := f.where()
	if f.Job != "" {
		conditions, args = append(conditions, "job >= ? AND job < ?"), append(args, f.Job, f.Job+"\U0010FFFF")
	}
	if len(f.States) > 0 {
		conditions = append(conditions, "state IN ("+strings.TrimSuffix(strings.Repeat("?,", len(f.States)), ",")+")")
		for _, s := range f.States {
			args = append(args, string(s))
		}
	}
	if !f.Since.IsZero() {
		conditions, args = append(conditions, "(ended = 0 OR ended >= ?)"), append(args, stored(f.Since))
	}
	if !f.Until.IsZero() {
		conditions, args = append(conditions, "submitted < ?"), append(args, stored(f.Until))
	}
	statement := "SELECT " + runColumns + " FROM run" + clause(conditions) + " ORDER BY submitted DESC, namespace, job"
	if f.Most > 0 {
		statement += fmt.Sprintf(" LIMIT %d", f.Most)
	}
	return db.runs(ctx, statement, args...)
}

func (db *DB) runs(ctx context.Context, statement string, args ...any) ([]Run, error) {
	out := []Run{}
	err := db.rows(ctx, statement, args, func(rows *sql.Rows) error {
		var r Run
		var submitted, started, whole, ended, waited int64
		err := rows.Scan(&r.Namespace, &r.Job, &submitted, &r.User, &r.Class, &r.Model, &r.GPUs, &r.State, &r.Reason, &started, &whole, &ended, &waited, &r.Predicted, &r.Packed)
		r.Submitted, r.Started, r.Whole, r.Ended, r.Waited = loaded(submitted), loaded(started), loaded(whole), loaded(ended), Seconds(waited*int64(time.Millisecond))
		out = append(out, r)
		return err
	})
	return out, err
}

func (db *DB) rows(ctx context.Context, statement string, args []any, each func(*sql.Rows) error) (err error) {
	rows, err := db.sql.QueryContext(ctx, dialect(statement, db.postgres), args...)
	if err != nil {
		return fmt.Errorf("reading accounts: %w", err)
	}
	defer func() { err = cmp.Or(err, rows.Close()) }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("reading accounts: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading accounts: %w", err)
	}
	return nil
}

// Open are the runs and allocations that have not ended.
func (db *DB) Open(ctx context.Context) ([]Run, []Alloc, error) {
	runs, err := db.runs(ctx, "SELECT "+runColumns+" FROM run WHERE ended = 0")
	if err != nil {
		return nil, nil, err
	}
	live, err := db.allocs(ctx, Filter{})
	return runs, live, err
}

// LastRuns are the runs that were submitted last of each job, as far as there are any.
func (db *DB) LastRuns(ctx context.Context, jobs []cluster.JobKey) (last []Run, err error) {
	for _, k := range jobs {
		runs, err := db.runs(ctx, "SELECT "+runColumns+" FROM run WHERE namespace = ? AND job = ? ORDER BY submitted DESC LIMIT 1", k.Namespace, k.ID)
		if err != nil {
			return nil, err
		}
		last = append(last, runs...)
	}
	return last, nil
}

// allocs are the allocations of a filter that have not ended.
func (db *DB) allocs(ctx context.Context, f Filter) (out []Alloc, err error) {
	conditions, args := f.where()
	statement := "SELECT id, namespace, job, submitted, username, class, node, model, gpus, began, status, vain, predicted, packed FROM alloc" +
		clause(append(conditions, "ended = 0"))
	err = db.rows(ctx, statement, args, func(rows *sql.Rows) error {
		var a Alloc
		var submitted, began, vain int64
		var gpus string
		err := rows.Scan(&a.ID, &a.Namespace, &a.Job, &submitted, &a.User, &a.Class, &a.Node, &a.Model, &gpus, &began, &a.Status, &vain, &a.Predicted, &a.Packed)
		a.Submitted, a.From, a.Vain, a.GPUs = loaded(submitted), loaded(began), loaded(vain), strings.Split(gpus, ",")
		out = append(out, a)
		return err
	})
	return out, err
}

// Usage is GPU time, and the runs that ended, of one line of a report.
type Usage struct {
	// Of are the values that the line is about, in the order of the report's columns.
	Of       []string `json:"of"`
	GPUHours float64  `json:"gpu_hours"`
	// FailedGPUHours are those of allocations that failed or were lost, HeldInVainGPUHours those
	// for which members held GPUs while others of their gang were not there yet.
	FailedGPUHours     float64 `json:"failed_gpu_hours"`
	HeldInVainGPUHours float64 `json:"held_in_vain_gpu_hours"`
	// SavedGPUHours is what packing would have taken more, as predicted when the jobs were placed.
	SavedGPUHours float64 `json:"saved_gpu_hours"`
	Runs          int64   `json:"runs"`
	Complete      int64   `json:"complete"`
	Failed        int64   `json:"failed"`
	Stopped       int64   `json:"stopped"`
	// WaitedHours is how long these runs waited together.
	WaitedHours float64 `json:"waited_hours"`
}

// Columns are what usage may be listed by.
func Columns() []string { return []string{"namespace", "user", "class", "model", "day", "month"} }

// of is a day's value in one of [Columns].
func (k dayKey) of(column string) string {
	switch column {
	case "user":
		return k.user
	case "class":
		return k.class
	case "model":
		return k.model
	case "day":
		return startOf(k.day).Format(time.DateOnly)
	case "month":
		return startOf(k.day).Format("2006-01")
	}
	return k.namespace
}

// Usage adds up the GPU time and the runs of a filter by columns; whole days of UTC count. now is
// until when allocations that run are counted. The lines are in order of their values.
func (db *DB) Usage(ctx context.Context, f Filter, by []string, now time.Time) ([]Usage, error) {
	days, err := db.daySums(ctx, f)
	if err != nil {
		return nil, err
	}
	live, err := db.allocs(ctx, f)
	if err != nil {
		return nil, err
	}
	until := now
	if !f.Until.IsZero() && f.Until.Before(now) {
		until = startOf(dayOf(f.Until.Add(dayLong - time.Millisecond)))
	}
	since := time.Time{}
	if !f.Since.IsZero() {
		since = startOf(dayOf(f.Since))
	}
	for _, a := range live {
		a.addTo(days, since, until)
	}
	return lines(days, by), nil
}

// daySums are the stored sums of a filter.
func (db *DB) daySums(ctx context.Context, f Filter) (map[dayKey]sums, error) {
	conditions, args := f.where()
	if !f.Since.IsZero() {
		conditions, args = append(conditions, "day >= ?"), append(args, dayOf(f.Since))
	}
	if !f.Until.IsZero() {
		conditions, args = append(conditions, "day < ?"), append(args, dayOf(f.Until.Add(dayLong-time.Millisecond)))
	}
	days := map[dayKey]sums{}
	statement := "SELECT day, namespace, username, class, model, gpu_ms, failed_ms, vain_ms, saved_ms, runs, complete, failed, stopped, waited_ms FROM day" + clause(conditions)
	err := db.rows(ctx, statement, args, func(rows *sql.Rows) error {
		var k dayKey
		var s sums
		err := rows.Scan(&k.day, &k.namespace, &k.user, &k.class, &k.model, &s.gpu, &s.failedGPU, &s.vain, &s.saved, &s.runs, &s.complete, &s.failed, &s.stopped, &s.waited)
		for _, d := range []*time.Duration{&s.gpu, &s.failedGPU, &s.vain, &s.saved, &s.waited} {
			*d *= time.Duration(time.Millisecond)
		}
		days[k] = s
		return err
	})
	return days, err
}

func lines(days map[dayKey]sums, by []string) []Usage {
	all, of := map[string]sums{}, map[string][]string{}
	for k, s := range days {
		values := make([]string, len(by))
		for i, column := range by {
			values[i] = k.of(column)
		}
		line := strings.Join(values, "\x00")
		all[line], of[line] = all[line].plus(s), values
	}
	out := []Usage{}
	for line, s := range all {
		out = append(out, Usage{of[line], s.gpu.Hours(), s.failedGPU.Hours(), s.vain.Hours(), s.saved.Hours(), s.runs, s.complete, s.failed, s.stopped, s.waited.Hours()})
	}
	slices.SortFunc(out, func(a, b Usage) int { return slices.CompareFunc(a.Of, b.Of, cmp.Compare[string]) })
	return out
}

// Namespaces are those that have accounts.
func (db *DB) Namespaces(ctx context.Context) (names []string, err error) {
	err = db.rows(ctx, "SELECT namespace FROM run UNION SELECT namespace FROM day UNION SELECT namespace FROM alloc WHERE ended = 0 ORDER BY 1", nil, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}
