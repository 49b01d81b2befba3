// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package trace reads job traces for the simulator, and generates workloads from a seed.
//
// [ReadFile] reads Slurm's logs and a table of our own (see formats), and recognizes the format by
// the columns. Each error names the file, the line and the column. A job that did not run on GPUs,
// or has not ended, is in [Trace.LeftOut] with the reason. The package research/published reads
// published traces.
//
//	t, err := trace.ReadFile("workload-1.csv")
//	for _, j := range t.Jobs { … }
//
// Jobs are in order of submission.
//
// Every change must preserve these properties. No job is dropped silently: each job that is left
// out is in LeftOut, with the reason. If a job is simulated differently from the trace, and this
// can change the results, [Job.Notes] say how. An unclear value is an error, not a guess. A
// generator gives the same workload for the same seed.
package trace

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Job is one job of a trace.
type Job struct {
	ID     string
	Line   int    // line of the file; 0: not from a file
	Name   string // the job's name, or the model that it trains; the key of its run history
	Tenant string // user or virtual cluster
	Class  pal.AppClass
	GPUs   int
	// MemberGPUs is the number of GPUs that a member has on one node; the last member can have
	// fewer. If MemberGPUs is 0, each GPU can be on any node, as in PAL.
	MemberGPUs int
	// Groups are the task groups, if the gang has several; GPUs is then the sum over the groups. If
	// Groups is nil, GPUs and MemberGPUs describe the only group.
	Groups []Group
	// SubmitS is the time of submission in seconds since the trace began.
	SubmitS float64
	// Iterations × IterTimeS is the work: the run time in seconds on GPUs of PM score 1 that are
	// close together.
	Iterations, IterTimeS float64
	// Priority is like Nomad's: a job with a higher priority goes first.
	Priority int
	// Preemptible reports whether the job may be stopped, and started again later.
	Preemptible bool
	// LeastMembers makes the gang elastic: it runs with at least this number of members, and with
	// at most all its GPUs. If LeastMembers is 0, the gang always runs with all its GPUs.
	LeastMembers int
	// EstimateS is the user's estimate of the work in seconds; 0 means none.
	EstimateS float64
	// Speeds has the job's speeds by GPU model, without vendor and type; nil means unknown. If
	// speeds are known, the work (WorkS) is the time on the fastest model. See [Trace.OnModels].
	Speeds pal.Speeds
	// Notes say how the job is simulated differently from the trace.
	Notes []string
}

// note adds a note to the job, but not to copies of the job.
func (j *Job) note(what string) {
	if !slices.Contains(j.Notes, what) {
		j.Notes = append(slices.Clip(j.Notes), what)
	}
}

// Group is a task group: members with the same number of GPUs each.
type Group struct{ Members, GPUs int }

// TaskGroups returns the groups of the job's gang: Groups, or members of MemberGPUs GPUs and a last
// member with the rest.
func (j Job) TaskGroups() []Group {
	if j.Groups != nil {
		return j.Groups
	}
	return inMembers(j.GPUs, max(1, j.MemberGPUs))
}

// inMembers divides GPUs into members of equal size, and one member with the rest.
func inMembers(gpus, each int) []Group {
	var groups []Group
	whole := gpus / each
	if whole > 0 {
		groups = append(groups, Group{whole, each})
	}
	rest := gpus % each
	if rest > 0 {
		groups = append(groups, Group{1, rest})
	}
	return groups
}

// WorkS is how long the job runs, in seconds, on GPUs of PM score 1 that are
// close together.
func (j Job) WorkS() float64 { return j.Iterations * j.IterTimeS }

// Trace is a list of jobs in order of submission.
type Trace struct {
	Name string
	Jobs []Job
	// LeftOut are the jobs that are not simulated.
	LeftOut []LeftOut
}

// LeftOut is a job that is not simulated.
type LeftOut struct {
	Reason, ID, Tenant string
	Line               int // line of the file; 0: not from a file
}

// Skip records a job that is left out.
func (t *Trace) Skip(reason string, j Job) {
	t.LeftOut = append(t.LeftOut, LeftOut{reason, j.ID, j.Tenant, j.Line})
}

// Skipped counts the jobs that are left out, by reason.
func (t Trace) Skipped() map[string]int {
	counts := map[string]int{}
	for _, l := range t.LeftOut {
		counts[l.Reason]++
	}
	return counts
}

// Notes counts the jobs that are simulated differently from the trace, by difference.
func (t Trace) Notes() map[string]int {
	counts := map[string]int{}
	for _, j := range t.Jobs {
		for _, note := range j.Notes {
			counts[note]++
		}
	}
	return counts
}

// ReadFile reads a trace in any of the formats.
func ReadFile(path string) (Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return Trace{}, fmt.Errorf("opening trace: %w", err)
	}
	defer f.Close()
	return Read(path, f)
}

// Read reads a trace from r. name is the path, which appears in errors.
func Read(name string, r io.Reader) (Trace, error) {
	t, b := Trace{Name: name}, &book{index: map[string]int{}}
	in, err := text(r)
	if err != nil {
		return t, fmt.Errorf("reading trace %q: %w", name, err)
	}
	rs, err := openRows(name, in)
	if err != nil {
		return t, err
	}
	tb, err := newTable(rs)
	if err != nil {
		return t, err
	}
	if err := tb.read(b); err != nil {
		return t, err
	}
	b.close(&t)
	if tb.format.slurm {
		t.rank()
	}
	t.Rebase()
	return t, nil
}

// highestPriority is the highest priority of a job in Nomad.
const highestPriority = 32_766

// rank replaces all priorities by their ranks if a priority is higher than Nomad's highest.
func (t *Trace) rank() {
	var all []int
	for _, j := range t.Jobs {
		all = append(all, j.Priority)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 || all[len(all)-1] <= highestPriority {
		return
	}
	for i := range t.Jobs {
		t.Jobs[i].Priority, _ = slices.BinarySearch(all, t.Jobs[i].Priority)
	}
}

// Fit leaves out jobs that do not fit on a cluster with this number of nodes, even if the cluster
// is empty. Logs of larger clusters often have such jobs.
func (t *Trace) Fit(nodes, gpusPerNode int) {
	kept := t.Jobs[:0]
	for _, j := range t.Jobs {
		if fits(j.TaskGroups(), nodes, gpusPerNode) {
			kept = append(kept, j)
		} else {
			t.Skip("larger than the cluster", j)
		}
	}
	t.Jobs = kept
}

// fits reports whether a gang fits on empty nodes. The largest members come first, each on the
// fullest node with enough room.
func fits(groups []Group, nodes, gpusPerNode int) bool {
	all := 0
	for _, g := range groups {
		all += g.Members * g.GPUs
	}
	if all > nodes*gpusPerNode {
		return false
	}
	free := map[int]int{gpusPerNode: nodes} // number of nodes, by the number of their free GPUs
	largest := func(a, b Group) int { return b.GPUs - a.GPUs }
	for _, g := range slices.SortedFunc(slices.Values(groups), largest) {
		for left := g.Members; left > 0; {
			tightest := math.MaxInt
			for k, n := range free {
				if n > 0 && k >= g.GPUs {
					tightest = min(tightest, k)
				}
			}
			if tightest == math.MaxInt {
				return false
			}
			here := min(tightest/g.GPUs, left) // members that fit on one node
			used := max(1, min(free[tightest], left/here))
			free[tightest] -= used
			free[tightest-here*g.GPUs] += used
			left -= used * here
		}
	}
	return true
}

// Rebase sorts the jobs by submission, keeping the order of equal times, and
// makes the first submission time 0.
func (t *Trace) Rebase() {
	sort.SliceStable(t.Jobs, func(a, b int) bool { return t.Jobs[a].SubmitS < t.Jobs[b].SubmitS })
	if len(t.Jobs) == 0 {
		return
	}
	start := t.Jobs[0].SubmitS
	for i := range t.Jobs {
		t.Jobs[i].SubmitS -= start
	}
}

// NoWider returns the trace with each member that is wider than a node split into several members.
// All members of an elastic gang keep the same size.
func (t Trace) NoWider(gpusPerNode int) Trace {
	t.Jobs = slices.Clone(t.Jobs)
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if slices.ContainsFunc(j.TaskGroups(), func(g Group) bool { return g.GPUs > gpusPerNode }) {
			j.note(noteWide)
		}
		if j.LeastMembers > 0 && j.MemberGPUs > gpusPerNode {
			width := gpusPerNode
			for j.MemberGPUs%width != 0 {
				width--
			}
			j.LeastMembers, j.MemberGPUs = j.LeastMembers*j.MemberGPUs/width, width
		}
		j.MemberGPUs = min(j.MemberGPUs, gpusPerNode)
		var groups []Group
		for _, g := range j.Groups {
			if g.GPUs <= gpusPerNode {
				groups = append(groups, g)
				continue
			}
			groups = append(groups, inMembers(g.Members*g.GPUs, gpusPerNode)...)
		}
		j.Groups = groups
	}
	return t
}

// String returns the group for errors.
func (g Group) String() string { return fmt.Sprintf("%d × %d GPUs", g.Members, g.GPUs) }
