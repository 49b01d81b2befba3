// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpHistory = help("history [options]", `
Lists runs of jobs with GPUs, also ended runs, the last submitted first, as Slurm's
sacct does. With -by, adds up GPU hours, as sreport does. The agent keeps the runs in its
database: see the history block of its configuration. Runs from the time before this block
was set are missing.

History Options:

  -since=<time>            Start: a duration before now such as 7d or 12h, a day such as
                           2026-11-01, or a time such as 2026-11-01T08:00:00Z.
  -until=<time>            End, in the same forms.
  -namespace=<namespace>   Only this namespace. Default: all that the token may see.
  -user=<user>, -class=<class>, -model=<model>
                           Only runs with this user, class or model.
  -by=<columns>            Instead of runs, print sums by one or several of these, separated by commas:
                           `+strings.Join(palapi.UsageColumns(), ", ")+`. They count whole
                           UTC days. "failed" are the GPU hours of allocations that failed or were lost, "in
                           vain" those held while other members of the gang were missing, "idle" those in which
                           the GPU is known to have been idle. "saved" are the additional GPU hours predicted
                           for packed placement. "stops" to "sooner" are as below.
  -state=<state>           Only runs in this state: pending, running, complete, failed,
                           stopped or unknown. Several, separated by commas, match any.
  -job=<job>               Only jobs whose ids start with this text.
  -limit=<n>               At most n runs; 0: all, up to 100,000. Default: 50.
  -columns=<columns>       Which of these columns to show: `+strings.Join(runColumnNames(), ", ")+`.
                           "slowdown" is the predicted slowdown on the run's GPUs. "packed" is the slowdown on the GPUs
                           that packing would have chosen. "any" is the slowdown on the same number
                           of random GPUs of the model. "seen" is measured: the run time relative to earlier runs of the job. "stops" counts how often the run was
                           stopped for other jobs, "lost" are the GPU hours that these stops cost, and
                           "sooner" is how much earlier the run started because other jobs were stopped
                           for it.
  -csv                     Print CSV.
`, examples(
	"What failed in the last day?", "nomad-pal history -since 1d -state failed",
	"All runs of a month, for a spreadsheet:", "nomad-pal history -since 2026-11-01 -until 2026-12-01 -limit 0 -csv",
	"Who used the GPUs this month?", "nomad-pal history -by namespace,user -since 2026-11-01",
	"GPU hours by month and model:", "nomad-pal history -by month,model",
), exitCodes, outputOptions, generalOptions)

// runColumn is a column of history.
type runColumn struct {
	name, title string
	// value returns a time, a duration, a number or a text. nil always means unknown. Zero times
	// and factors, and empty texts, can also mean unknown.
	value func(r palapi.Run, now time.Time) any
}

func runColumns() []runColumn {
	return []runColumn{
		{"job", "Job", func(r palapi.Run, _ time.Time) any { return r.Namespace + "/" + r.Job }},
		{"user", "User", func(r palapi.Run, _ time.Time) any { return r.User }},
		{"state", "State", func(r palapi.Run, _ time.Time) any { return r.State }},
		{"gpus", "GPUs", func(r palapi.Run, _ time.Time) any { return r.GPUs }},
		{"class", "Class", func(r palapi.Run, _ time.Time) any { return r.Class }},
		{"model", "Model", func(r palapi.Run, _ time.Time) any { return r.Model }},
		{"submitted", "Submitted", func(r palapi.Run, _ time.Time) any { return r.Submitted }},
		{"started", "Started", func(r palapi.Run, _ time.Time) any { return r.Started }},
		{"ended", "Ended", func(r palapi.Run, _ time.Time) any { return r.Ended }},
		{"waited", "Waited", func(r palapi.Run, now time.Time) any {
			if r.Started.IsZero() && r.Ended.IsZero() {
				return now.Sub(r.Submitted)
			}
			return time.Duration(r.Waited)
		}},
		{"elapsed", "Elapsed", func(r palapi.Run, now time.Time) any {
			if r.Started.IsZero() {
				return nil
			}
			return ranFor(r, now)
		}},
		{"slowdown", "Slowdown", func(r palapi.Run, _ time.Time) any { return r.Predicted }},
		{"packed", "Packed", func(r palapi.Run, _ time.Time) any { return r.Packed }},
		{"any", "Any", func(r palapi.Run, _ time.Time) any { return r.Any }},
		{"seen", "Seen", func(r palapi.Run, _ time.Time) any { return r.Seen }},
		{"idle", "Idle (GPU h)", func(r palapi.Run, _ time.Time) any { return time.Duration(r.Idle).Hours() }},
		{"stops", "Stops", func(r palapi.Run, _ time.Time) any { return r.Stops.Stops }},
		{"lost", "Lost (GPU h)", func(r palapi.Run, _ time.Time) any { return r.LostGPUSeconds / 3600 }},
		{"sooner", "Sooner (h)", func(r palapi.Run, _ time.Time) any { return r.SavedSeconds / 3600 }},
		{"reason", "Reason", func(r palapi.Run, _ time.Time) any { return oneLine(r.Reason) }},
	}
}

// cell formats a value for a table; "" if the value is unknown.
func cell(value any) string {
	switch v := value.(type) {
	case time.Time:
		if !v.IsZero() {
			return v.Local().Format("2006-01-02 15:04")
		}
	case time.Duration:
		return span(v)
	case float64:
		if v != 0 {
			return strconv.FormatFloat(v, 'f', 2, 64)
		}
	case nil:
	default:
		return fmt.Sprint(v)
	}
	return ""
}

// csvCell formats a value for CSV: times in RFC 3339 format, durations in seconds, other values as
// [cell] does. csvCell puts an apostrophe before a text that a spreadsheet would take for a formula.
func csvCell(value any) string {
	switch v := value.(type) {
	case time.Time:
		if !v.IsZero() {
			return v.UTC().Format(time.RFC3339)
		}
	case time.Duration:
		return strconv.FormatFloat(v.Seconds(), 'f', -1, 64)
	case string:
		if v != "" && strings.ContainsRune("=+-@\t\r", rune(v[0])) {
			return "'" + v
		}
	}
	return cell(value)
}

// ranFor returns the run time of a started run: until its end or, if it still runs, until now.
func ranFor(r palapi.Run, now time.Time) time.Duration {
	if !r.Ended.IsZero() {
		now = r.Ended
	}
	return now.Sub(r.Started)
}

// span rounds a duration to seconds, or to milliseconds if it is below a second, and formats it.
func span(d time.Duration) string {
	to := time.Second
	if d < to {
		to = time.Millisecond
	}
	return palapi.ShortDuration(d.Round(to))
}

func runColumnNames() []string {
	return each(runColumns(), func(c runColumn) string { return c.name })
}

// historyOptions are the options that apply to runs and to sums.
type historyOptions struct {
	since, until, user, class, model string
	csv                              bool
}

// query returns the parameters of the request to the agent.
func (o *historyOptions) query(b *base, now time.Time) (url.Values, error) {
	q := url.Values{}
	for name, text := range map[string]string{"since": o.since, "until": o.until} {
		if text == "" {
			continue
		}
		at, err := timeOf(text, now)
		if err != nil {
			return nil, fmt.Errorf("-%s %s: %w", name, text, err)
		}
		q.Set(name, at.UTC().Format(time.RFC3339))
	}
	for name, text := range map[string]string{"user": o.user, "class": o.class, "model": o.model} {
		if text != "" {
			q.Set(name, text)
		}
	}
	if b.given("namespace") {
		q.Set("namespace", b.namespace)
	}
	if o.csv && b.json {
		return nil, errors.New("-csv cannot be combined with -json")
	}
	return q, nil
}

// timeOf parses a date, a time, or a duration counted back from now.
func timeOf(text string, now time.Time) (time.Time, error) {
	if d, err := rewrite.ParseSpan(text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("is not a duration such as 7d, a day such as 2026-11-01, or a time such as 2026-11-01T08:00:00Z")
}

func runHistory(b *base, args []string) int {
	fs := b.flags("history")
	var o historyOptions
	for name, to := range map[string]*string{"since": &o.since, "until": &o.until, "user": &o.user, "class": &o.class, "model": &o.model} {
		fs.StringVar(to, name, "", "")
	}
	fs.BoolVar(&o.csv, "csv", false, "")
	by := fs.String("by", "", "")
	states, job := fs.String("state", "", ""), fs.String("job", "", "")
	limit := fs.Int("limit", 50, "")
	columns := fs.String("columns", "", "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	now := time.Now()
	q, err := o.query(b, now)
	if err != nil {
		return b.fail(err)
	}
	if b.given("by") {
		return b.sums(q, *by, o.csv)
	}
	chosen, err := chosenColumns(*columns, o.csv)
	if err != nil {
		return b.fail(err)
	}
	for _, s := range splitList(*states) {
		if !slices.Contains(palapi.RunStates(), palapi.RunState(s)) {
			return b.fail(fmt.Errorf("-state: %q is none of %s", s, strings.Join(each(palapi.RunStates(), func(s palapi.RunState) string { return string(s) }), ", ")))
		}
		q.Add("state", s)
	}
	if *job != "" {
		q.Set("job", *job)
	}
	if *limit < 0 {
		return b.fail(fmt.Errorf("-limit %d is negative", *limit))
	}
	s, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	runs, err := s.runs(q, *limit)
	if err != nil {
		return b.fail(err)
	}
	if o.csv {
		printRunsCSV(b, runs, chosen, now)
		return s.close(0)
	}
	return s.close(b.show(runs, func() { printRuns(b, runs, chosen, now, *limit) }))
}

// runs returns the last runs, at most limit. If limit is 0, the agent limits the number.
func (a *answers) runs(q url.Values, limit int) (runs []palapi.Run, err error) {
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return runs, a.get("/v1/runs", q, &runs)
}

func printRuns(b *base, runs []palapi.Run, columns []runColumn, now time.Time, limit int) {
	if len(runs) == 0 {
		b.io.printf("No runs.\n")
		return
	}
	rows := []string{row(each(columns, func(c runColumn) any { return c.title })...)}
	for _, r := range runs {
		rows = append(rows, row(each(columns, func(c runColumn) any { return cell(c.value(r, now)) })...))
	}
	b.io.table(rows)
	if limit > 0 && len(runs) == limit {
		b.io.printf("\nNot more than %s; -limit 0 shows all.\n", counted(limit, "run"))
	}
}

// chosenColumns returns the columns that a list names. If the list is empty, chosenColumns returns
// all columns for CSV, and otherwise the columns that fit a terminal.
func chosenColumns(list string, all bool) ([]runColumn, error) {
	known := runColumns()
	names := splitList(list)
	switch {
	case len(names) == 0 && all:
		return known, nil
	case len(names) == 0:
		names = []string{"job", "user", "state", "gpus", "class", "submitted", "waited", "elapsed"}
	}
	var chosen []runColumn
	for _, name := range names {
		i := slices.IndexFunc(known, func(c runColumn) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-columns: %q is none of %s", name, strings.Join(runColumnNames(), ", "))
		}
		chosen = append(chosen, known[i])
	}
	return chosen, nil
}

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// printRunsCSV prints runs as CSV, and ignores errors of the writer, because [quoting] keeps them.
func printRunsCSV(b *base, runs []palapi.Run, columns []runColumn, now time.Time) {
	w := csv.NewWriter(b.io.out)
	defer w.Flush()
	_ = w.Write(each(columns, func(c runColumn) string { return c.name }))
	for _, r := range runs {
		_ = w.Write(each(columns, func(c runColumn) string { return csvCell(c.value(r, now)) }))
	}
}
