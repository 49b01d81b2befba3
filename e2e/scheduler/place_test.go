// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/command/agent"
	"github.com/hashicorp/nomad/jobspec2"
	"github.com/hashicorp/nomad/nomad/structs"
)

// TestPlacements runs the stories in testdata. They have three commands.
//
//	cluster [companions]
//	n1 a1:2 a2:5 a3:1!
//	n2/r7 b1
//
// cluster makes the nodes with the GPUs; here, n2 is in rack r7. The number after a colon is the
// GPU's variability class for application class A (default 5), and ! marks an unhealthy GPU. With
// companions, every class list has the count that nomad-pal publishes beside it, and the group has
// count and healthy_count. The answer is the nodes by computed class.
//
//	busy
//	n1 a1 a2
//
// busy lets another job hold these GPUs.
//
//	place [job=FILE]
//	job "…" { … }
//
// place evaluates a job many times. The job is given in HCL, or as a file with the API's JSON. Each
// evaluation has another id, from which Nomad derives the order of nodes. The answer is the
// outcome, or all outcomes that occur.
func TestPlacements(t *testing.T) {
	t.Setenv("NOMAD_TEST_LOG_LEVEL", "off")
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories in testdata (%v)", err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			if own := filepath.Join("testdata", recorded, filepath.Base(path)); recorded != "" && exists(own) {
				path = own
			}
			var w world
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "cluster":
					return w.reset(t, d)
				case "busy":
					return w.hold(t, d)
				case "place":
					return w.place(t, readJob(t, d))
				}
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
				return ""
			})
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readJob(t *testing.T, d *datadriven.TestData) *structs.Job {
	t.Helper()
	job := &api.Job{}
	if d.HasArg("job") {
		var file string
		d.ScanArgs(t, "job", &file)
		text, err := os.ReadFile(filepath.Join("testdata", "jobs", file))
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		if err := json.Unmarshal(text, job); err != nil {
			t.Fatalf("%s: job %q: %v", d.Pos, file, err)
		}
	} else {
		var err error
		job, err = jobspec2.Parse("story.nomad.hcl", strings.NewReader(d.Input))
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
	}
	job.Canonicalize()
	out := agent.ApiJobToStructJob(job)
	out.Canonicalize()
	return out
}

// evaluations is how often a job is placed: an outcome with a probability of one in ten would stay
// unseen once in 10^18.
const evaluations = 400

// world is the cluster of a story.
type world struct {
	nodes []*structs.Node
	other []*structs.Allocation // allocations of busy
}

// place evaluates the job many times, each time on a new copy of the world.
func (w *world) place(t *testing.T, job *structs.Job) string {
	t.Helper()
	seen := map[string]bool{}
	for i := range evaluations {
		seen[w.evaluate(t, job.Copy(), i)] = true
	}
	outcomes := make([]string, 0, len(seen))
	for o := range seen {
		outcomes = append(outcomes, o)
	}
	slices.Sort(outcomes)
	if len(outcomes) == 1 {
		return "always:\n" + outcomes[0]
	}
	var b strings.Builder
	for _, o := range outcomes {
		fmt.Fprintf(&b, "sometimes:\n%s", o)
	}
	return b.String()
}

func (w *world) evaluate(t *testing.T, job *structs.Job, i int) string {
	t.Helper()
	h := newHarness(t)
	w.store(t, h, job)
	eval := &structs.Evaluation{
		ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Namespace: job.Namespace, Priority: job.Priority,
		TriggeredBy: structs.EvalTriggerJobRegister, JobID: job.ID, Type: job.Type, Status: structs.EvalStatusPending,
	}
	index := h.NextIndex()
	if err := h.State.UpsertEvals(structs.MsgTypeTestSetup, index, []*structs.Evaluation{eval}); err != nil {
		t.Fatal(err)
	}
	if err := process(h, job, eval); err != nil {
		t.Fatal(err)
	}
	return w.outcome(h)
}

// outcome is the scheduler's plan, group by group, and what it did not place, with Nomad's reasons.
func (w *world) outcome(h *harness) string {
	var lines []string
	for _, plan := range h.Plans {
		for _, allocs := range plan.NodeAllocation {
			for _, a := range allocs {
				lines = append(lines, "  "+a.TaskGroup+" on "+w.placed(a))
			}
		}
	}
	slices.Sort(lines)
	if len(h.Evals) > 0 {
		lines = append(lines, failures(h.Evals[0])...)
	}
	for _, e := range h.CreateEvals {
		if e.Status == structs.EvalStatusBlocked {
			lines = append(lines, "  a blocked evaluation waits")
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func (w *world) placed(a *structs.Allocation) string {
	var ids []string
	for _, task := range a.AllocatedResources.Tasks {
		for _, d := range task.Devices {
			ids = append(ids, d.DeviceIDs...)
		}
	}
	slices.Sort(ids)
	return strings.TrimSpace(a.NodeName + " " + strings.Join(ids, " "))
}

// failures are the groups that could not be placed as a whole, sorted.
func failures(e *structs.Evaluation) []string {
	var lines []string
	for group, m := range e.FailedTGAllocs {
		line := fmt.Sprintf("  %s: %d not placed", group, m.CoalescedFailures+1)
		var why []string
		for reason := range m.ConstraintFiltered {
			why = append(why, reason)
		}
		for reason := range m.DimensionExhausted {
			why = append(why, reason+" exhausted")
		}
		slices.Sort(why)
		if len(why) > 0 {
			line += " (" + strings.Join(why, "; ") + ")"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}
