// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// defaultPriority is the priority that Nomad gives to jobs without a priority.
const defaultPriority = 50

// row is a row of a table: one run of a job.
type row struct {
	Job // the job's fields; its GPUs, times and work come from the fields below

	line   int
	column string // the column that is being read
	clock  *clock
	step   bool // the row describes a step of a job, not a job
	slices bool // some of the GPUs are MIG instances

	group, user        string
	gpus, nodes        opt // gpus: GPUs in total
	members, each      opt
	submit, start, end opt
	lasted             opt
	state              state
}

// run is one run of a task group of a job.
type run struct {
	group         string
	line          int
	start         opt
	gpus, each    int
	submitS, work float64
	leftOut       string // why the run did not end on GPUs; "" if it did
}

// Reasons why a row is not a run that ended on GPUs.
const (
	noGPU        = "no GPU"
	migSlices    = "MIG instances, which are parts of GPUs"
	neverStarted = "never started"
	noRunTime    = "no run time"
	stillRunning = "still running"
	stillWaiting = "still waiting"
	noEnd        = "no end"
	noSubmission = "no time of submission"
	backwards    = "ends before it starts"
)

// Ways in which a simulated job can differ from the trace. Reports count the jobs by difference.
const (
	noteRequeued = "ran several times (requeued); the run times add up"
	noteTwice    = "several rows describe the same run; the last of these rows is used"
	noteNoGPU    = "task groups without GPUs are not simulated"
	noteWide     = "members with more GPUs than a node has, split into several (-gpus-per-node)"
)

// booked is a job with its runs.
type booked struct {
	Job
	user string
	runs []run
}

// book collects the rows of each job.
type book struct {
	entries []booked
	index   map[string]int
}

// add adds a row of a table to the book.
func (b *book) add(r *row, t *table) error {
	if err := r.settle(); err != nil {
		return err
	}
	if t.format.slurm {
		b.renumber(r)
	}
	i, known := b.index[r.ID]
	switch {
	case !known:
	case !t.format.slurm && !sameJob(r.Job, b.entries[i].Job):
		return fmt.Errorf("job %q does not match its row on line %d: only the group, GPUs, state and times may differ", r.ID, b.entries[i].Line)
	case r.LeastMembers > 0 && r.group != b.entries[i].runs[0].group:
		return fmt.Errorf("job %q is elastic, but has several groups: an elastic gang has only one", r.ID)
	}
	u, err := r.run(t)
	if err == nil {
		b.book(r, u)
	}
	return err
}

// renumber gives a row another id if the id belongs to a job of another user, account or name:
// Slurm's ids begin again, for example when its database is new.
func (b *book) renumber(r *row) {
	id := r.ID
	for n := 2; ; n++ {
		i, known := b.index[r.ID]
		if !known || b.entries[i].sameOwner(r) {
			return
		}
		r.ID = fmt.Sprintf("%s#%d", id, n)
	}
}

// sameOwner reports whether a row of Slurm's log can belong to the job. The parts of a heterogeneous
// job can have different names.
func (e *booked) sameOwner(r *row) bool {
	return e.user == r.user && e.Tenant == r.Tenant && (e.Name == r.Name || e.runs[0].group != r.group)
}

func sameJob(a, b Job) bool {
	a.Line = b.Line
	return reflect.DeepEqual(a, b)
}

// book adds a run to the row's job. The job's fields come from the first row with GPUs.
func (b *book) book(r *row, u run) {
	j := r.Job
	i, known := b.index[j.ID]
	if !known {
		i = len(b.entries)
		b.index[j.ID] = i
		b.entries = append(b.entries, booked{Job: j, user: r.user})
	}
	e := &b.entries[i]
	if known && e.runs[0].leftOut == noGPU && u.leftOut != noGPU {
		j.Line = e.Line
		e.Job = j
		e.runs[0], u = u, e.runs[0]
	}
	e.runs = append(e.runs, u)
}

// settle computes the job's fields from the row.
func (r *row) settle() error {
	r.Line = r.line
	r.Name, r.Tenant = cmp.Or(r.Name, r.user), cmp.Or(r.Tenant, r.user)
	r.Class, r.IterTimeS = cmp.Or(r.Class, pal.ClassA), 1
	return r.size()
}

// size computes the numbers of GPUs and of members from each other.
func (r *row) size() error {
	if r.members.ok && r.members.v == 0 {
		r.gpus = opt{0, true}
		return nil
	}
	n := r.gpus.v
	switch {
	case r.each.ok:
		all := r.each.v * cmp.Or(r.members.v, 1)
		if r.gpus.ok && r.members.ok && n != all {
			return fmt.Errorf("%v members with %v GPUs each do not add up to %v GPUs", r.members.v, r.each.v, n)
		}
		r.gpus.set(all)
	case r.gpus.ok && r.members.v > 0:
		if r.each.set(n / r.members.v); r.each.v != float64(int(r.each.v)) {
			return fmt.Errorf("%v GPUs cannot be divided equally among %v members", n, r.members.v)
		}
	case r.gpus.ok && r.nodes.v > 0: // the last node can have fewer GPUs
		r.each.set(float64((int(n) + int(r.nodes.v) - 1) / int(r.nodes.v)))
	}
	if r.gpus.v > most {
		return fmt.Errorf("%v GPUs are more than any cluster has", r.gpus.v)
	}
	if r.LeastMembers > 0 && (r.each.v == 0 || float64(r.LeastMembers)*r.each.v > r.gpus.v || int(r.gpus.v)%int(r.each.v) != 0) {
		return fmt.Errorf("least_members %d is more than the number of members, or the table lacks that number", r.LeastMembers)
	}
	return nil
}

// run returns the run that the row describes.
func (r *row) run(t *table) (run, error) {
	u := run{group: r.group, line: r.line, start: r.start, gpus: int(r.gpus.v), each: int(r.each.v), submitS: r.submit.v}
	length := r.length(t)
	u.work = length.v
	if length.v > longest {
		return u, fmt.Errorf("the run takes %.0f years; is one of its times wrong?", length.v/(365*86400))
	}
	switch {
	case r.gpus.ok && r.gpus.v == 0:
		u.leftOut = noGPU
	case r.slices:
		u.leftOut = migSlices
	case r.state == waiting:
		u.leftOut = stillWaiting
	case t.starts && !r.start.ok:
		u.leftOut = neverStarted
	case r.state == running:
		u.leftOut = stillRunning
	case !r.gpus.ok:
		u.leftOut = noGPU
	case !length.ok, t.ends && !r.end.ok && r.state != ended:
		u.leftOut = noEnd
	case length.v < 0:
		u.leftOut = backwards
	case length.v == 0:
		u.leftOut = noRunTime
	case !r.submit.ok:
		u.leftOut = noSubmission
	}
	return u, nil
}

// length returns how long the run took: the time from start to end, rather than a duration column.
// A duration can include the wait, or belong to an unfinished run. Slurm's durations are reliable.
func (r *row) length(t *table) opt {
	if r.start.ok && r.end.ok && !(t.format.slurm && r.lasted.ok) {
		return opt{r.end.v - r.start.v, true}
	}
	return r.lasted
}

// close turns the collected runs into jobs.
func (b *book) close(t *Trace) {
	for i := range b.entries {
		e := &b.entries[i]
		leftOut, line := e.merge()
		e.runs = nil
		if leftOut == "" {
			t.Jobs = append(t.Jobs, e.Job)
			continue
		}
		e.Line = line
		t.Skip(leftOut, e.Job)
	}
}

// merge makes one job of all runs. Runs of different task groups form a gang. Several runs of one
// group mean that the job was requeued. If a run has not ended, the whole job is left out.
func (e *booked) merge() (leftOut string, line int) {
	var groups []run
	without, again := false, false
	e.SubmitS = math.Inf(1)
	runs := once(e.runs)
	for _, u := range runs {
		switch u.leftOut {
		case "":
		case noGPU, neverStarted, noRunTime:
			leftOut, line = u.leftOut, u.line
			without = without || u.leftOut == noGPU
			continue
		default:
			return u.leftOut, u.line
		}
		e.SubmitS = min(e.SubmitS, u.submitS)
		i := slices.IndexFunc(groups, func(g run) bool { return g.group == u.group })
		if i >= 0 {
			u.work += groups[i].work
			groups[i], again = u, true
			continue
		}
		groups = append(groups, u)
	}
	if len(groups) == 0 {
		return leftOut, line
	}
	if again {
		e.note(noteRequeued)
	}
	if without {
		e.note(noteNoGPU)
	}
	if len(runs) < len(e.runs) {
		e.note(noteTwice)
	}
	e.gather(groups)
	return "", 0
}

// once returns each run once, in order of time. A file can hold several overlapping outputs of
// sacct. In an earlier output, a run may not have ended, or not even started.
func once(rows []run) []run {
	if len(rows) == 1 {
		return rows
	}
	started := map[string]int{} // by task group: the last line with a start time
	for _, u := range rows {
		if u.start.ok {
			started[u.group] = max(started[u.group], u.line)
		}
	}
	at := map[run]int{}
	var runs []run
	for _, u := range rows {
		if u.leftOut == stillWaiting && u.line < started[u.group] {
			continue
		}
		same := run{group: u.group, start: u.start}
		if !u.start.ok {
			same = u
			same.line = 0
		}
		i, twice := at[same]
		switch {
		case !twice:
			at[same] = len(runs)
			runs = append(runs, u)
		case u.leftOut == "" || runs[i].leftOut != "":
			runs[i] = u
		}
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.from(), b.from()) })
	return runs
}

// from returns the time when the run starts; +Inf if unknown.
func (u run) from() float64 {
	if u.start.ok {
		return u.start.v
	}
	return math.Inf(1)
}

// gather makes the gang from its groups. All groups hold their GPUs until the last group has ended.
func (e *booked) gather(groups []run) {
	for _, g := range groups {
		e.GPUs += g.gpus
		e.Iterations = max(e.Iterations, g.work)
		if len(groups) > 1 {
			e.Groups = append(e.Groups, inMembers(g.gpus, max(1, g.each))...)
		}
	}
	if len(groups) == 1 {
		e.MemberGPUs = groups[0].each
	}
}
