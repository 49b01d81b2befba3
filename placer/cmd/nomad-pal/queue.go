// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

var helpQueue = help("queue [options]", `
Shows the waiting jobs in the order in which they will be served (#), each with the
reason why it waits, and a summary of all waiting jobs. Jobs that cannot start now come last:
rejected (the job must be changed), unschedulable (the cluster lacks something), failed
(given up). An array (a parameterized job and its runs) has one line, that of its first
run, and says how many runs are running, waiting and ended. Below the jobs it shows
the GPUs that tenants hold and the GPU hours that they have used; old GPU hours count
less (usage_half_life). On a narrow terminal, some columns, such as the class, are left
out; -json has all.

Queue Options:

  -all                     Print one line for each run of an array; -json always does.
  -namespace=<namespace>   Only jobs of this namespace.
  -mine                    Only your jobs: those whose meta pal_user is NOMAD_PAL_USER, by
                           default the name of your ACL token, or without ACLs your login.
`, examples(
	"Who is next?", "nomad-pal queue | head -n 5",
	"Where do my jobs stand?", "nomad-pal queue -mine",
	"Which jobs will never start, and why?", `nomad-pal queue -json | jq '.[] | select(.state == "unschedulable")'`,
), exitCodes, outputOptions, generalOptions)

// queueStates are the states of jobs that wait for GPUs, are about to get some, or cannot get any.
// Completing and resubmitted jobs count, although they may still hold GPUs.
var queueStates = []palapi.State{palapi.Waiting, palapi.Committing, palapi.Completing, palapi.Rejected, palapi.Unschedulable, palapi.Failed, palapi.Resubmitted}

// queues reports whether queue lists the job. A resubmitted job without a reason keeps its GPUs.
func queues(j palapi.JobStatus) bool {
	return slices.Contains(queueStates, j.State) && (j.State != palapi.Resubmitted || !j.Reason.IsZero())
}

func runQueue(b *base, args []string) int {
	fs := b.flags("queue")
	elements := fs.Bool("all", false, "")
	mine := fs.Bool("mine", false, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	s, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	all, jobs, err := jobs(b, s, *mine)
	if err != nil {
		return b.fail(err)
	}
	within := b.given("namespace") && b.namespace != "*"
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j palapi.JobStatus) bool { return !queues(j) || within && j.Namespace != b.namespace })
	if len(jobs) == 0 && within {
		if err := b.noNamespace(s.nomad, b.namespace); err != nil {
			return b.fail(err)
		}
	}
	tenants, err := s.Tenants()
	if err != nil {
		return b.fail(err)
	}
	slices.SortStableFunc(jobs, byPosition)
	return s.close(b.show(jobs, func() {
		if len(jobs) == 0 {
			b.io.write(noneWaits(all))
			return
		}
		rows := jobs
		if !*elements {
			rows = palapi.ByArray(jobs, all)
		}
		b.printJobs(rows, time.Now())
		b.io.write("\n")
		b.io.say(plain, queueSummary(jobs))
		printTenants(b, tenants)
	}))
}

// noneWaits returns a sentence for a queue without matching jobs. The sentence summarizes the other
// jobs.
func noneWaits(all []palapi.JobStatus) string {
	others := slices.DeleteFunc(slices.Clone(all), func(j palapi.JobStatus) bool { return !queues(j) })
	if len(others) == 0 {
		return "No job waits.\n"
	}
	return "No job in the queue matches. Other jobs: " + queueSummary(others) + "\n"
}

// jobColumn is a column of a table of jobs. If the terminal is too narrow for all columns, the
// columns with a spare above 0 are left out one by one, the lowest spare first.
type jobColumn struct {
	head  string
	shown bool
	spare int
	cell  func(j palapi.JobStatus) any
}

// jobColumns returns the columns for a table of jobs. Some columns are not shown if they would tell
// the reader nothing, for example if they would be empty.
func (b *base) jobColumns(jobs []palapi.JobStatus, now time.Time) []jobColumn {
	some := func(f func(j palapi.JobStatus) bool) bool { return slices.ContainsFunc(jobs, f) }
	runs := some(func(j palapi.JobStatus) bool { return j.Nodes > 0 })
	expected := some(func(j palapi.JobStatus) bool { return !j.StartTo.IsZero() || !j.EndTo.IsZero() })
	return []jobColumn{
		{"#", some(func(j palapi.JobStatus) bool { return j.Position > 0 }), 0, func(j palapi.JobStatus) any { return unlessZero(j.Position) }},
		{"Job", true, 0, func(j palapi.JobStatus) any { return j.Job }},
		{"Namespace", some(func(j palapi.JobStatus) bool { return j.Namespace != "default" }), 0, func(j palapi.JobStatus) any { return j.Namespace }},
		{"User", some(func(j palapi.JobStatus) bool { return j.User != "" }), 0, func(j palapi.JobStatus) any { return j.User }},
		{"State", true, 0, func(j palapi.JobStatus) any { return stateCell(j.State) }},
		{"Runs", some(func(j palapi.JobStatus) bool { return j.Runs != nil }), 0, func(j palapi.JobStatus) any { return runsOf(j) }},
		{"Priority", some(func(j palapi.JobStatus) bool { return j.Priority != jobs[0].Priority }), 4, func(j palapi.JobStatus) any { return j.Priority }},
		{"GPUs", true, 0, func(j palapi.JobStatus) any { return j.Size() }},
		{"Nodes", runs, 2, func(j palapi.JobStatus) any { return unlessZero(j.Nodes) }},
		{"Class", true, 1, func(j palapi.JobStatus) any { return j.Class }},
		{"Submitted", true, 3, func(j palapi.JobStatus) any { return palapi.Ago(j.Submitted, now) }},
		{"Elapsed", runs, 0, func(j palapi.JobStatus) any { return elapsed(j.Started, now) }},
		{"Expected", expected, 0, func(j palapi.JobStatus) any { return startOrEnd(j, now) }},
		{"Reason", true, 0, func(j palapi.JobStatus) any { return j.Reason.String() }},
	}
}

// printJobs prints a table of jobs.
func (b *base) printJobs(jobs []palapi.JobStatus, now time.Time) {
	columns := slices.DeleteFunc(b.jobColumns(jobs, now), func(c jobColumn) bool { return !c.shown })
	cells := func(of func(c jobColumn) any) string { return row(each(columns, of)...) }
	table := func() []string {
		rows := []string{cells(func(c jobColumn) any { return c.head })}
		for _, j := range jobs {
			rows = append(rows, cells(func(c jobColumn) any { return c.cell(j) }))
		}
		return rows
	}
	rows := table()
	for spare := 1; spare <= spareColumns && !b.io.roomFor(rows); spare++ {
		columns = slices.DeleteFunc(columns, func(c jobColumn) bool { return c.spare == spare })
		rows = table()
	}
	b.io.table(rows)
}

// spareColumns is the number of columns of a table of jobs that can be left out.
const spareColumns = 4

// startOrEnd returns when a job is expected to start or, if it has started, to end.
func startOrEnd(j palapi.JobStatus, now time.Time) string {
	start := palapi.Soon(j.StartFrom, j.StartTo, now)
	if start != "" {
		return "start " + start
	}
	end := palapi.Soon(j.EndFrom, j.EndTo, now)
	if end != "" {
		return "end " + end
	}
	return ""
}

// runsOf returns the numbers of an array's runs by state, or "" if the job is not an array.
func runsOf(j palapi.JobStatus) string {
	if j.Runs == nil {
		return ""
	}
	return j.Runs.String()
}

// unlessZero formats a number; 0 becomes "".
func unlessZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// elapsed returns the time since a job's start, or "" if it has not started.
func elapsed(started, now time.Time) string {
	if started.IsZero() {
		return ""
	}
	return palapi.About(max(0, now.Sub(started)))
}

// byPosition compares jobs by their position in the queue. Jobs without a position come last.
func byPosition(a, b palapi.JobStatus) int {
	return cmp.Compare(cmp.Or(a.Position, math.MaxInt), cmp.Or(b.Position, math.MaxInt))
}

// queueSummary counts the jobs that do not have the GPUs that they request, by kind: waiting,
// failed, never able to start and so on.
func queueSummary(jobs []palapi.JobStatus) string {
	var waiting, runOn, never, failed int
	var least, requested float64
	for _, j := range jobs {
		switch j.State {
		case palapi.Resubmitted:
			runOn++
		case palapi.Rejected, palapi.Unschedulable:
			never++
		case palapi.Failed:
			failed++
		default:
			waiting++
			least += j.Amount(j.LeastGPUs())
			requested += j.Amount(j.GPUs)
		}
	}
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 0:
			return
		case len(parts) == 0: // "2 jobs wait …; 1 can never start"
			one, many = "job "+one, "jobs "+many
		}
		parts = append(parts, reason.Counted(n, one, many))
	}
	gpus := palapi.GPURange(least, requested)
	add(waiting, "waits for "+gpus, "wait for "+gpus)
	add(runOn, "keeps running in the old version", "keep running in the old version")
	add(never, "can never start", "can never start")
	add(failed, "failed", "failed")
	return strings.Join(parts, "; ") + "."
}

// printTenants prints how many GPUs each tenant holds and has used. printTenants prints nothing if
// the only tenant has no quota, limit, users or stops.
func printTenants(b *base, tenants []queue.TenantUse) {
	told, ungated := len(tenants) > 1, false
	for _, t := range tenants {
		ungated = ungated || t.Ungated > 0
		told = told || t.Quota > 0 || t.Limit != nil || len(t.Users) > 0 || t.Stops != (queue.Stops{})
	}
	if !told {
		return
	}
	b.io.printf("\nTenants\n")
	line := rowWith(true, true, ungated, true, true, true, true, true, true, true, true)
	rows := []string{line("Tenant", "GPUs", "Without gate", "Quota", "Borrowed", "At most", "GPU hours used", "Times its share", "Stopped", "GPU hours lost", "Hours sooner")}
	for _, t := range tenants {
		quota, borrowed := "none", ""
		most := ""
		if t.Quota > 0 {
			quota, borrowed = fmt.Sprint(t.Quota), reason.Number(t.Borrowed())
		}
		if t.Limit != nil {
			most = fmt.Sprint(*t.Limit)
		}
		rows = append(rows, line(t.Tenant, reason.Number(t.GPUs), reason.Number(t.Ungated), quota, borrowed, most, fmt.Sprintf("%.1f", t.GPUHours), fmt.Sprintf("%.2f", t.Times),
			t.Stops.Stops, fmt.Sprintf("%.1f", t.Stops.LostGPUSeconds/3600), fmt.Sprintf("%.1f", t.Stops.SavedSeconds/3600)))
	}
	b.io.table(rows)
	half := time.Duration(tenants[0].HalfLifeSeconds * float64(time.Second))
	if half > 0 {
		b.io.say(plain, "Old GPU hours count less: a GPU hour used "+palapi.Days(half)+" ago counts half (usage_half_life).")
	}
	if ungated {
		b.io.say(plain, "Nomad starts jobs without the gate itself: they count in these figures, but no limit keeps them from starting.")
	}
	printUsers(b, tenants)
}

// printUsers prints what the users of tenants with limits per user hold.
func printUsers(b *base, tenants []queue.TenantUse) {
	rows := []string{row("User", "Tenant", "GPUs", "At most", "Jobs", "At most")}
	for _, t := range tenants {
		for _, u := range t.Users {
			rows = append(rows, row(u.User, t.Tenant, reason.Number(u.GPUs), unlessZero(t.MaxGPUsPerUser), u.Jobs, unlessZero(t.MaxJobsPerUser)))
		}
	}
	if len(rows) > 1 {
		b.io.printf("\nUsers\n")
		b.io.table(rows)
	}
}
