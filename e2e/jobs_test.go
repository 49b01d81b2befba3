// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestSchedulerJobs checks that the jobs that e2e/scheduler gives to Nomad's scheduler are what
// package rewrite writes. They are files because that module cannot import ours: -write-jobs writes
// them again.
func TestSchedulerJobs(t *testing.T) {
	t.Parallel()
	node := func(name string) string { return fmt.Sprintf("%08x-0000-0000-0000-000000000000", []byte(name)) }
	pins := func(mode rewrite.Mode, groups ...rewrite.GroupPins) func(*api.Job) (*api.Job, error) {
		p := rewrite.Pins{Mode: mode, Groups: groups}
		if mode == rewrite.ModeClass {
			p.Class, p.Ceiling = "A", 1
		}
		return func(job *api.Job) (*api.Job, error) { return rewrite.Pin(job, p, rewrite.Racks{}) }
	}
	gang := rewrite.GroupPins{Group: "g", Nodes: []string{node("n2"), node("n5")}, GPUs: []string{"b3", "b4", "e1", "e2"}}
	for _, c := range []struct {
		author, name string
		rewrite      func(*api.Job) (*api.Job, error)
	}{
		{"gang", "gang-gated", func(job *api.Job) (*api.Job, error) { return rewrite.Gate(job), nil }},
		{"gang", "gang-pinned", pins(rewrite.ModeGPU, gang)},
		{"gang", "gang-racks", func(job *api.Job) (*api.Job, error) {
			return rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{gang}}, rewrite.Racks{Meta: "rack", Names: []string{"r1", "r3"}})
		}},
		{"gang", "gang-preferred", pins(rewrite.ModePrefer, gang)},
		{"groups", "groups-pinned", pins(rewrite.ModeGPU,
			rewrite.GroupPins{Group: "reader", Nodes: []string{node("n1"), node("n2")}, GPUs: []string{"a1", "b1"}},
			rewrite.GroupPins{Group: "trainer", Nodes: []string{node("n2")}, GPUs: []string{"b3", "b4"}})},
		{"server", "server-class", pins(rewrite.ModeClass, rewrite.GroupPins{Group: "g", Nodes: []string{node("n1"), node("n2")}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join("scheduler", "testdata", "jobs")
			job, err := c.rewrite(author(t, filepath.Join(dir, c.author+".nomad.hcl")))
			if err != nil {
				t.Fatal(err)
			}
			path, got := filepath.Join(dir, c.name+".json"), brief(t, job)
			if *writeJobs {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-) differs from what rewrite writes now (+):\n%s", path, diff)
			}
		})
	}
}

var writeJobs = flag.Bool("write-jobs", false, "write the jobs in scheduler/testdata/jobs")

func author(t *testing.T, path string) *api.Job {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	job, err := jobspec2.Parse(path, f)
	if err != nil {
		t.Fatal(err)
	}
	job.Canonicalize()
	return job
}

// brief is the job as the API's JSON, without empty fields, for readers.
func brief(t *testing.T, job *api.Job) []byte {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", " ")
	if err := enc.Encode(prune(tree)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// prune removes what is empty: null, "", 0, false, and then objects and lists that have become
// empty. It also removes the policies that Canonicalize fills in; the reader fills them in again.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, policy := range []string{"RestartPolicy", "ReschedulePolicy", "LogConfig", "EphemeralDisk", "Update", "Migrate", "Consul"} {
			delete(v, policy)
		}
		for k, e := range v {
			if e = prune(e); e == nil {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = prune(v[i])
		}
	case string, float64, bool:
		if v == "" || v == 0.0 || v == false {
			return nil
		}
	}
	return v
}
