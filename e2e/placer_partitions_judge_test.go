// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// A task reports a GPU that another task holds, and no other GPU.
func TestPartitionsHoldGPUs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	run := func(alloc, gpus, script string) (end func()) {
		cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf(holdGPUs, dir)+script)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NOMAD_ALLOC_ID=" + alloc, "NVIDIA_VISIBLE_DEVICES=" + gpus}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // the task has its GPUs
			t.Fatal(err)
		}
		return func() {
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
	const untilClosed = "echo; cat >/dev/null"
	end := run("a", "g1,g2", untilClosed)
	run("b", "g3", untilClosed)()
	run("c", "g3,g2", untilClosed)()
	end()
	run("d", "g1,g2,g3", untilClosed)()
	if told, err := os.ReadFile(filepath.Join(dir, "twice")); string(told) != "g2 c a\n" {
		t.Errorf("told %q, %v", told, err)
	}
}

// A task's report is a violation, unless Nomad alone placed that task while another one was lost
// with its node.
func TestPartitionsRank(t *testing.T) {
	t.Parallel()
	e := newObserver(func(...any) {})
	holder, after := seen("b", 0, "running", 9, "g1"), seen("a", 0, "running", 12, "g1")
	ids := []string{"aaaaaaaa-1", "bbbbbbbb-1"}
	after.ID, holder.ID = ids[0], ids[1]
	jobs := []*api.JobListStub{{ID: "a", JobModifyIndex: 10}, {ID: "b"}}
	e.look(time.Now(), jobs, []*api.AllocationListStub{holder, after})
	if why := e.rank([]string{"g1", ids[0], ids[1]}); !strings.Contains(why, "a.workers[0] (aaaaaaaa, run, running, ) found its GPU g1 in use by b.workers[0]") {
		t.Error(why)
	}
	e.lost[holder.ID] = 11
	e.look(time.Now(), jobs, []*api.AllocationListStub{lost(holder), after})
	if why := e.rank([]string{"g1", ids[0], ids[1]}); why != "" {
		t.Error(why)
	}
	for _, told := range [][]string{{"g1", "of Nomad unknown", ids[1]}, {"g1"}} {
		if e.rank(told) == "" {
			t.Errorf("%v is allowed", told)
		}
	}
}

// A cluster has not settled while Nomad does not answer, or a gang is incomplete for long.
func TestPartitionsHalf(t *testing.T) {
	t.Parallel()
	e, mended := newObserver(func(...any) {}), time.Now()
	if why := e.half(mended); why != "Nomad does not answer" {
		t.Error(why)
	}
	e.expect("a", 2)
	jobs, part := []*api.JobListStub{{ID: "a", JobModifyIndex: 10}}, []*api.AllocationListStub{seen("a", 0, "running", 11, "g1")}
	for after, want := range map[time.Duration]bool{time.Second: false, 10 * time.Second: true} {
		e.look(mended.Add(time.Second), jobs, part)
		e.look(mended.Add(time.Second+after), jobs, part)
		if why := e.half(mended); (why != "") != want {
			t.Errorf("after %v: %q", after, why)
		}
	}
}
