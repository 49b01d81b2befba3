// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package trace turns published job traces into jobs for the simulator, and
// generates workloads of its own from a seed.
//
// Five formats are read: Sia (the CSV of the PAL artifact), Philly (the public
// JSON), Helios and Acme (CSV) and Alibaba (its CSV forms of 2020 and 2023).
// [ReadFile] tells them apart by their first bytes. What cannot be a job is an error that names file
// and line; where a format is known to hold such rows (jobs killed before they
// ran, CPU-only jobs) they are counted in [Trace.Skipped] by reason instead.
//
//	t, err := trace.ReadFile("workload-1.csv")
//	for _, j := range t.Jobs { … }
//
// Jobs are in order of submission.
package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Job is one job of a trace.
type Job struct {
	ID     string
	Line   int    // of the file; 0: it comes from none
	Name   string // what runs: the model, or the job's name; the key of its history
	Tenant string // user or virtual cluster
	Class  pal.AppClass
	GPUs   int
	// MemberGPUs is the number of GPUs that belong together on one node, the last
	// member may have fewer; 0: any GPU may lie anywhere, as PAL sees jobs.
	MemberGPUs int
	// Groups are the task groups of a gang that has several, of GPUs in all; nil: GPUs
	// and MemberGPUs say it.
	Groups []Group
	// SubmitS is the time of submission in seconds since the trace began.
	SubmitS float64
	// Iterations × IterTimeS is the work: seconds on GPUs of PM score 1 that
	// are close together.
	Iterations, IterTimeS float64
	// After are jobs that must have finished first, by ID.
	After []string
	// DeadlineS is by when it is to have ended, in seconds after SubmitS; 0: whenever.
	DeadlineS float64
	// Priority is as Nomad's: the higher goes first.
	Priority int
	// Preemptible jobs may be stopped, and started again later.
	Preemptible bool
	// Array is the array that it belongs to, "" for none, of which Parallel jobs run at a
	// time.
	Array    string
	Parallel int
	// LeastMembers makes the gang elastic: it runs with so many members at least, all of
	// GPUs at most; 0: with all. Efficiency is what each doubling of them keeps of a linear
	// speed-up; 0: 1.
	LeastMembers int
	Efficiency   float64
	// EstimateS is the user's estimate of the work in seconds; 0: none.
	EstimateS float64
}

// Group is a task group: members of so many GPUs each.
type Group struct{ Members, GPUs int }

// TaskGroups are the groups of the job's gang: Groups, or members of MemberGPUs, the last
// with what is left.
func (j Job) TaskGroups() []Group {
	if j.Groups != nil {
		return j.Groups
	}
	return inMembers(j.GPUs, max(1, j.MemberGPUs))
}

// inMembers divides GPUs into members of so many, and one with the rest.
func inMembers(gpus, each int) []Group {
	var groups []Group
	if whole := gpus / each; whole > 0 {
		groups = append(groups, Group{whole, each})
	}
	if rest := gpus % each; rest > 0 {
		groups = append(groups, Group{1, rest})
	}
	return groups
}

// WorkS is how long the job runs, in seconds, on GPUs of PM score 1 that are
// close together.
func (j Job) WorkS() float64 { return j.Iterations * j.IterTimeS }

// Trace is a list of jobs in order of submission.
type Trace struct {
	Name   string
	Format string // sia, philly, helios, acme or alibaba; "": not read from a file
	Jobs   []Job
	// Skipped counts the rows that are no GPU jobs, by reason.
	Skipped map[string]int
}

// Skip counts a row that is no job.
func (t *Trace) Skip(reason string) {
	if t.Skipped == nil {
		t.Skipped = map[string]int{}
	}
	t.Skipped[reason]++
}

// mark is what spreadsheets put before a table in UTF-8.
const mark = "\ufeff"

// ReadFile reads a trace in any of the formats.
func ReadFile(path string) (Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return Trace{}, fmt.Errorf("open trace: %w", err)
	}
	defer f.Close()
	return read(path, f, func(name string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(filepath.Dir(path), name))
	})
}

// read reads a trace in any of the formats; name is what errors call it.
func read(name string, r io.Reader, siblings func(string) (io.ReadCloser, error)) (Trace, error) {
	b := bufio.NewReaderSize(r, headBytes)
	head, err := b.Peek(len(mark))
	if err != nil && err != io.EOF {
		return Trace{}, fmt.Errorf("read trace %q: %w", name, err)
	}
	if string(head) == mark {
		_, _ = b.Discard(len(mark))
	}
	first := strings.ToLower(firstLine(b))
	switch {
	case strings.HasPrefix(first, "[") || strings.HasPrefix(first, "{"):
		return ReadPhilly(name, b)
	case strings.Contains(first, "num_gpus"):
		return ReadSia(name, b)
	case strings.Contains(first, "gpu_num"):
		return ReadHelios(name, b)
	case strings.Contains(first, "creation_time") || strings.Contains(first, "gpu_milli") || strings.Count(first, ",") == 9:
		return readAlibaba(name, b, siblings)
	}
	return Trace{}, fmt.Errorf("%s:1: unknown trace format: neither Sia (job_id,num_gpus,…), Philly (JSON), Helios or Acme (job_id,…,gpu_num,…) nor Alibaba; write jobs of your own with the columns job_id,user,gpu_num,submit_time,duration", name)
}

// number checks that v is a finite number of at least low.
func number(v, low float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < low {
		return fmt.Errorf("%v is not a number of at least %v", v, low)
	}
	return nil
}

// Fit checks that every job fits a cluster of so many GPUs. In a Sia trace one
// that does not is an error; in the logs of other, larger clusters it is usual,
// and is counted and left out.
func (t *Trace) Fit(gpus int) error {
	kept := t.Jobs[:0]
	for _, j := range t.Jobs {
		switch {
		case j.GPUs <= gpus:
			kept = append(kept, j)
		case t.Format == "sia":
			return fmt.Errorf("%s:%d: job %q needs %d GPUs, the cluster has %d", t.Name, j.Line, j.ID, j.GPUs, gpus)
		default:
			t.Skip("larger than the cluster")
		}
	}
	t.Jobs = kept
	return nil
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

// Tenants are the tenants of the trace, those with most GPU time first.
func (t Trace) Tenants() []string {
	work := map[string]float64{}
	for _, j := range t.Jobs {
		work[j.Tenant] += j.WorkS() * float64(j.GPUs)
	}
	names := slices.Sorted(maps.Keys(work))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(work[b], work[a]) })
	return names
}

// Of is the trace of one tenant's jobs alone, from its first submission on.
func (t Trace) Of(tenant string) Trace {
	one := Trace{Name: t.Name + ", " + tenant, Format: t.Format}
	for _, j := range t.Jobs {
		if j.Tenant == tenant {
			one.Jobs = append(one.Jobs, j)
		}
	}
	one.Rebase()
	return one
}

// InTasks is the trace with every job written as tasks of up to so many GPUs
// that lie on one node each, as Nomad's users write gangs: all of a size where
// there is one of at least half of that many, else full ones and one with the
// rest. 1: every GPU may lie anywhere.
func (t Trace) InTasks(gpus int) Trace {
	t.Jobs = slices.Clone(t.Jobs)
	for i := range t.Jobs {
		t.Jobs[i].MemberGPUs, t.Jobs[i].Groups = taskOf(t.Jobs[i].GPUs, gpus), nil
	}
	return t
}

func taskOf(gang, most int) int {
	for task := min(gang, most); 2*task >= most; task-- {
		if gang%task == 0 {
			return task
		}
	}
	return min(gang, most)
}

// String is the group as errors write it.
func (g Group) String() string { return fmt.Sprintf("%d × %d GPUs", g.Members, g.GPUs) }
