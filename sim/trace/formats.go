// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
)

// format is a kind of table: its columns and their meaning.
type format struct {
	title string // name in docs and errors
	hint  string // advice on how to write such a table
	// known are the columns that identify the format: a table of this format has all of them. "a|b"
	// means a or b; "a+b" means both.
	known []string
	// needs are further columns that the table must have.
	needs []string
	// columns are in the order in which they are read. If two columns have the same meaning, the
	// first column with a value counts.
	columns []column
	// slurm: the table is a log of Slurm. Such a log can have other columns, and its durations take
	// precedence over start and end.
	slurm bool
}

// column describes one column of a format. Names are in lower case.
type column struct {
	name string
	read func(r *row, cell string) error
}

// formats lists the kinds of tables. The first kind that matches counts.
func formats() []format {
	return []format{
		{title: "Slurm", hint: sacct, known: []string{"jobid|jobidraw", "alloctres|reqtres|elapsed|elapsedraw|submit|start"},
			needs: []string{"alloctres|reqtres", "submit", "elapsedraw|elapsed|start+end"}, columns: slurm(), slurm: true},
		{title: "a table of your own", known: []string{"gpus|member_gpus"}, needs: []string{"job_id", "submit_time", "duration|start_time+end_time"},
			columns: []column{{"group", words(group)}, {"tenant", words(tenant)}, {"model", words(jobName)}, {"class", value(class, pal.ParseAppClass)},
				{"speed", value(speeds, parseSpeeds)}, {"gpus", count(gpus)}, {"members", count(members)}, {"member_gpus", count(each)},
				{"least_members", value(least, atLeast(1))}, {"job_id", words(id)}, {"user", heldBy},
				{"state", became}, {"submit_time", moment(submit)}, {"start_time", moment(start)}, {"end_time", moment(end)}, {"duration", lasted},
				{"estimate", value(estimate, positive)}, {"priority", value(priority, atLeast(0))},
				{"preemptible", value(preemptible, truth)}}},
	}
}

// sacct is a hint: the command by which Slurm writes a readable file.
const sacct = "; Slurm writes a readable file with: sacct -a -D -P -S BEGIN -o JobID,JobName,User,Account,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,AllocTRES"

// The fields of a row in which the columns' values are stored.
func id(r *row) *string      { return &r.ID }
func group(r *row) *string   { return &r.group }
func tenant(r *row) *string  { return &r.Tenant }
func jobName(r *row) *string { return &r.Name }
func submit(r *row) *opt     { return &r.submit }
func start(r *row) *opt      { return &r.start }
func end(r *row) *opt        { return &r.end }
func gpus(r *row) *opt       { return &r.gpus }
func nodes(r *row) *opt      { return &r.nodes }
func members(r *row) *opt    { return &r.members }
func each(r *row) *opt       { return &r.each }

func estimate(r *row) *float64   { return &r.EstimateS }
func priority(r *row) *int       { return &r.Priority }
func preemptible(r *row) *bool   { return &r.Preemptible }
func class(r *row) *pal.AppClass { return &r.Class }
func speeds(r *row) *pal.Speeds  { return &r.Speeds }
func least(r *row) *int          { return &r.LeastMembers }

// given returns a reader that skips cells without a value.
func given(read func(r *row, cell string) error) func(*row, string) error {
	return func(r *row, cell string) error {
		if missing(cell) {
			return nil
		}
		return read(r, cell)
	}
}

// value reads a cell that can be empty.
func value[T any](to func(*row) *T, read func(string) (T, error)) func(*row, string) error {
	return given(func(r *row, cell string) (err error) {
		*to(r), err = read(cell)
		return err
	})
}

// words reads text.
func words(to func(*row) *string) func(*row, string) error {
	return func(r *row, cell string) error {
		if *to(r) == "" {
			*to(r) = cell
		}
		return nil
	}
}

// heldBy reads a user. If the row lacks a tenant or a job's name, the user stands in for it.
func heldBy(r *row, cell string) error {
	r.user = cell
	return nil
}

// moment reads a time. -1 means that the time is missing.
func moment(to func(*row) *opt) func(*row, string) error {
	return given(func(r *row, cell string) error {
		if cell == "-1" {
			return nil
		}
		s, err := r.clock.read(cell, r.column, r.line)
		to(r).set(s)
		return err
	})
}

// count reads a number of GPUs, members or nodes.
func count(to func(*row) *opt) func(*row, string) error {
	return given(func(r *row, cell string) error {
		n, err := whole(cell, 0)
		if err == nil && n > most {
			err = fmt.Errorf("%d is more than any cluster has", n)
		}
		to(r).set(float64(n))
		return err
	})
}

// lasted reads how long a run took.
var lasted = given(func(r *row, cell string) error {
	s, err := span(cell)
	r.lasted.set(s)
	return err
})

// became reads the final state of a run.
func became(r *row, cell string) (err error) {
	r.state, err = stateOf(cell)
	return err
}

// positive reads a duration, and refuses a negative one.
func positive(cell string) (float64, error) {
	s, err := span(cell)
	if err == nil && s < 0 {
		err = fmt.Errorf("%s is negative", cell)
	}
	return s, err
}
