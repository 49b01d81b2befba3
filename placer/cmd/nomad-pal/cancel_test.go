// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"
)

// A job that the placer has given up is dead in Nomad, but stays in lists until
// it is stopped.
func TestCancelOfAJobThatWasGivenUp(t *testing.T) {
	c := newCluster(t)
	c.agent("", "retries = 0\nhttp {\n  bind_port = 0\n}\n")
	text := strings.NewReplacer("sleep 3600", "exit 3", "group \"g\" {", "group \"g\" {\n    restart {\n      attempts = 0\n      mode = \"fail\"\n    }\n    reschedule {\n      attempts = 0\n      unlimited = false\n    }").Replace(jobText("default", "broken", 1))
	if code, out, said := c.reads(text, "run", "-detach", "-"); code != 0 {
		t.Fatalf("run: %d\n%s%s", code, out, said)
	}
	c.until("the job is given up", func() bool { _, out, _ := c.does("status"); return strings.Contains(out, "failed") })
	if code, out, said := c.does("cancel", "broken"); code != 0 || out != "Stopped default/broken\n" {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the job is stopped", func() bool { _, out, _ := c.does("status"); return !strings.Contains(out, "broken") })
}

// One command stops a whole array; other jobs keep running.
func TestCancelOfAnArray(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	jobs := c.client("").API().Jobs()
	array := strings.Replace(jobText("default", "array", 1), `group "g" {`, "parameterized {\n    payload = \"forbidden\"\n  }\n  group \"g\" {", 1)
	if code, out, said := c.reads(array, "run", "-detach", "-"); code != 0 {
		t.Fatalf("run: %d\n%s%s", code, out, said)
	}
	c.must("run", "-detach", c.job("default", "arrayed", 1))
	ids := []string{"array"}
	for range 3 {
		child, _, err := jobs.Dispatch("array", nil, nil, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, child.DispatchedJobID)
	}
	if _, _, err := jobs.Deregister(ids[3], false, nil); err != nil {
		t.Fatal(err)
	}
	code, out, said := c.does("cancel", "array")
	if code != 0 || !strings.HasPrefix(out, "Stopped default/array\n") || strings.Contains(out, "arrayed") {
		t.Errorf("cancel: %d\n%s%s", code, out, said)
	}
	for _, id := range ids {
		if job, _, err := jobs.Info(id, nil); err != nil || job.Stop == nil || !*job.Stop {
			t.Errorf("%s was not stopped: %v", id, err)
		}
	}
	for args, want := range map[string]string{
		"cancel":                       "stopping jobs: no job is given",
		"cancel none arrayed":          `no job "none" in namespace "default"`,
		"cancel arayed":                `no job "arayed" in namespace "default" (did you mean "arrayed"?)`,
		"cancel -namespace=no arrayed": `no namespace "no"`,
	} {
		c.says(1, want, strings.Fields(args)...)
	}
	if job, _, err := jobs.Info("arrayed", nil); err != nil || *job.Stop {
		t.Errorf("another job was stopped: %v", err)
	}
}
