// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// format is a kind of table: its columns and their meaning.
type format struct {
	name  string
	title string // name in docs and errors
	hint  string // advice on how to write such a table
	// known are the columns that identify the format: a table of this format has all of them. "a|b"
	// means a or b; "a+b" means both.
	known []string
	// needs are further columns that the table must have.
	needs []string
	// columns are read in this order. If two columns have the same meaning, the first column with a
	// value counts.
	columns []column
	// exact: each row of the table is one job, and the rows are in order of submission.
	exact bool
	// closed: the table must not have other columns.
	closed bool
	// prompt: in a table without start times, a job starts when it is submitted.
	prompt bool
	// rates: the speeds of the jobs are in [gavelRates], in the table's directory.
	rates bool
	// elapsed: a duration takes precedence over start and end. Only Slurm's logs set elapsed.
	elapsed bool
}

// column is the meaning of a column. Names are in lower case.
type column struct {
	name string
	read func(r *row, cell string) error
}

// formats lists the kinds of tables. The first kind that matches counts.
func formats() []format {
	ran := []string{"job_id", "submit_time", "duration|start_time+end_time"}
	helios := []column{
		{"job_id", words(id)}, {"user", heldBy}, {"vc", words(tenant)}, {"jobname", words(jobName)},
		{"gpu_num", count(gpus)}, {"node_num", count(nodes)}, {"state", became},
		{"submit_time", moment(submit)}, {"start_time", moment(start)}, {"end_time", moment(end)}, {"duration", lasted},
	}
	hints := []column{
		{"estimate", value(estimate, positive)}, {"after", given((*row).setAfter)}, {"deadline", given((*row).setDeadline)}, {"priority", value(priority, atLeast(0))},
		{"preemptible", value(preemptible, truth)}, {"array", words(array)}, {"parallel", value(parallel, atLeast(1))},
	}
	return []format{
		{name: "slurm", title: "Slurm", hint: sacct, known: []string{"jobid|jobidraw", "alloctres|reqtres|allocgres|elapsed|elapsedraw|submit|start"},
			needs: []string{"alloctres|reqtres|allocgres|reqgres", "submit", "elapsedraw|elapsed|start+end"}, columns: slurm(), elapsed: true},
		{name: "alibaba", title: "Alibaba 2026 (spot)", known: []string{"gpu_request", "worker_num"}, needs: []string{"job_name", "submit_time", "duration"},
			columns: []column{{"job_name", words(id)}, {"organization", words(tenant)}, {"worker_num", count(members)}, {"gpu_request", share(1)},
				{"submit_time", moment(submit)}, {"duration", lasted}, {"job_type", (*row).setSpot}}},
		{name: "alibaba", title: "Alibaba 2020 (PAI simulator)", known: []string{"num_gpu", "num_inst"}, needs: []string{"job_id", "submit_time", "duration"},
			columns: []column{{"job_id", words(id)}, {"user", heldBy}, {"num_inst", count(members)}, {"num_gpu", share(1)},
				{"submit_time", moment(submit)}, {"duration", lasted}}},
		{name: "alibaba", title: "Alibaba 2020 (pai_task_table.csv)", known: []string{"plan_gpu", "inst_num"}, needs: []string{"job_name", "task_name", "start_time", "end_time"},
			columns: []column{{"job_name", words(id)}, {"task_name", words(group)}, {"inst_num", count(members)}, {"status", became}, {"plan_gpu", share(100)},
				{"start_time", moment(start)}, {"start_time", moment(submit)}, {"end_time", moment(end)}, {"task_name", words(jobName)}}},
		{name: "alibaba", title: "Alibaba 2023 (openb_pod_list_*.csv)", known: []string{"num_gpu", "creation_time|gpu_milli"}, needs: []string{"name"}, prompt: true,
			columns: []column{{"name", words(id)}, {"qos", words(jobName)}, {"num_gpu", count(each)},
				{"creation_time", moment(submit)}, {"scheduled_time", moment(start)}, {"deletion_time", moment(end)}}},
		{name: "acme", title: "Acme", known: []string{"gpu_num", "gpu_time"}, needs: ran, columns: helios},
		{name: "helios", title: "Helios", known: []string{"gpu_num"}, needs: ran, columns: helios},
		{name: "sia", title: "Sia", closed: true, known: []string{"num_gpus"}, needs: []string{"job_id", "submit_time", "duration", "model"}, exact: true,
			columns: append([]column{{"job_id", words(id)}, {"model", (*row).setSiaModel}, {"num_gpus", count(gpus)}, {"submit_time", moment(submit)}, {"duration", lasted}}, hints...)},
		{name: "gavel", title: "Gavel", known: []string{"job", "steps"}, needs: []string{"job_id", "submit_s", "gpus"}, rates: true,
			columns: []column{{"job_id", words(id)}, {"submit_s", moment(submit)}, {"job", words(jobName)}, {"gpus", count(gpus)},
				{"steps", value(steps, positive)}}},
		{name: "jobs", title: "a table of your own", known: []string{"gpus|members|member_gpus"}, closed: true,
			needs: append([]string{"gpus|member_gpus"}, ran...),
			columns: append(append([]column{{"group", words(group)}, {"tenant", words(tenant)}, {"model", (*row).setModel}, {"class", value(class, pal.ParseAppClass)},
				{"speed", value(speeds, parseSpeeds)}, {"gpus", count(gpus)}, {"members", count(members)}, {"member_gpus", count(each)},
				{"least_members", value(least, atLeast(1))}, {"efficiency", value(efficiency, kept)}}, slices.DeleteFunc(slices.Clone(helios), func(c column) bool {
				return slices.Contains([]string{"vc", "jobname", "gpu_num", "node_num"}, c.name)
			})...), hints...)},
	}
}

// sacct is a hint: the command by which Slurm writes a readable file.
const sacct = "; Slurm writes a readable file with: sacct -a -D -P -S BEGIN -o JobID,JobName,User,Account,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,AllocTRES"

// paiColumns are the columns of pai_task_table.csv, which has no header.
var paiColumns = []string{"job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type"}

// unnamed returns the columns of a table without a header; nil if first is a header.
func unnamed(first []string) []string {
	if len(first) != len(paiColumns) {
		return nil
	}
	if s, err := stateOf(first[3]); err != nil || s == unsaid {
		return nil
	}
	return paiColumns
}

// The fields of a row in which the columns' values are stored.
func id(r *row) *string      { return &r.ID }
func group(r *row) *string   { return &r.group }
func tenant(r *row) *string  { return &r.Tenant }
func jobName(r *row) *string { return &r.Name }
func array(r *row) *string   { return &r.Array }
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
func parallel(r *row) *int       { return &r.Parallel }
func class(r *row) *pal.AppClass { return &r.Class }
func speeds(r *row) *pal.Speeds  { return &r.Speeds }
func steps(r *row) *float64      { return &r.steps }
func least(r *row) *int          { return &r.LeastMembers }
func efficiency(r *row) *float64 { return &r.Efficiency }

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

// heldBy reads a user. The user is also the tenant, and the job's name, if the row has none.
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

// share reads the number of GPUs of a member, in units of 1/parts GPU, and rounds it up to whole
// GPUs.
func share(parts float64) func(*row, string) error {
	return func(r *row, cell string) error {
		if missing(cell) {
			r.each.set(0)
			return nil
		}
		v, err := number(cell, 0)
		if err == nil && v/parts > most {
			err = fmt.Errorf("%s are more GPUs than any cluster has", cell)
		}
		if r.each.set(math.Ceil(v / parts)); r.each.v != v/parts {
			r.rowNote = noteShare
		}
		return err
	}
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

// kept reads an efficiency: the share of a linear speed-up that twice as many members give.
func kept(cell string) (float64, error) {
	v, err := number(cell, 0.5)
	if err == nil && v > 1 {
		err = fmt.Errorf("%s is not between 0.5 and 1", cell)
	}
	return v, err
}

func (r *row) setAfter(cell string) error {
	r.After = strings.FieldsFunc(cell, func(c rune) bool { return c == ' ' || c == ',' || c == ';' })
	return nil
}

// setDeadline reads a time, or a duration after the submission.
func (r *row) setDeadline(cell string) (err error) {
	if r.DeadlineS, err = positive(cell); err == nil {
		if r.DeadlineS == 0 {
			err = errors.New("0 is not a deadline; for no deadline, leave the field empty")
		}
		return err
	}
	s, other := r.clock.read(cell, r.column, r.line)
	if other != nil {
		return fmt.Errorf("neither a duration (%w) nor a time (%w)", err, other)
	}
	r.deadline.set(s)
	return nil
}

// setModel reads the model, which is the job's name. Models of the Sia traces have a known class.
func (r *row) setModel(cell string) error {
	r.Name = cell
	r.modelClass = modelsByName()[cell].Class
	return nil
}

// setSiaModel reads the model, which determines the time per iteration.
func (r *row) setSiaModel(cell string) error {
	m, ok := modelsByName()[cell]
	if !ok {
		return fmt.Errorf("model %q is unknown", cell)
	}
	r.Name, r.Class, r.IterTimeS = m.Name, m.Class, m.IterTimeS
	return nil
}

// spotPriority is the priority of spot jobs, which is lower than the priority of all other jobs.
const spotPriority = defaultPriority / 2

// setSpot reads whether the job is a spot job, which runs on spare GPUs until other jobs need these
// GPUs.
func (r *row) setSpot(cell string) error {
	switch strings.ToLower(cell) {
	case "hp":
	case "spot":
		r.Preemptible, r.Priority = true, spotPriority
	default:
		return fmt.Errorf("%q is neither HP nor Spot", cell)
	}
	return nil
}
