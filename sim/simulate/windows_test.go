// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// TestWindows: a nightly window on the only node delays a job of an hour that arrives half an
// hour before it. Times start at -begin.
func TestWindows(t *testing.T) {
	dir := t.TempDir()
	trace, config := filepath.Join(dir, "jobs.csv"), filepath.Join(dir, "agent.hcl")
	for name, text := range map[string]string{
		trace: "job_id,gpus,submit_time,duration,class\n0,1,0,3240,C\n1,1,86400,3240,C\n",
		config: `window "nightly" {
  cron     = "0 2 * * *"
  duration = "1h"
  racks    = ["` + "*" + `"]
}
`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-trace", trace, "-config", config, "-nodes", "1", "-outliers", "0", "-estimates", "exact"}
	jct := func(job int, begin ...string) float64 {
		t.Helper()
		return figuresOf(t, append(args, begin...)...).Jobs[job].JCT
	}
	least := jct(0) // long before the window at two
	for begin, want := range map[string]float64{"2024-01-01T03:00:00Z": 0, "2024-01-01T02:30:00Z": 0.5 * 3600, "2024-01-01T02:30:00+01:00": 1.5 * 3600} {
		for job := range 2 { // the second job arrives a day later
			if got := jct(job, "-begin", begin) - least; got < want-1 || got > want+1 {
				t.Errorf("from %s on job %d takes %v s longer, want %v", begin, job, got, want)
			}
		}
	}
}

// TestWindowsFollowDates: if the trace has dates, the simulation begins at the first of them,
// unless -begin is given.
func TestWindowsFollowDates(t *testing.T) {
	dir := t.TempDir()
	trace, config := filepath.Join(dir, "jobs.csv"), filepath.Join(dir, "agent.hcl")
	for name, text := range map[string]string{
		trace:  "job_id,tenant,gpus,submit_time,duration,class\n0,a,1,2026-11-22 02:30:00,3240,C\n1,b,1,2026-11-23 03:00:00,3240,C\n",
		config: "window \"driver\" {\n  start    = \"2026-11-22T03:00:00Z\"\n  duration = \"1h\"\n  racks    = [\"*\"]\n}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	jct := func(args ...string) float64 {
		t.Helper()
		return figuresOf(t, append([]string{"-trace", trace, "-config", config, "-nodes", "1", "-outliers", "0", "-estimates", "exact"}, args...)...).Jobs[0].JCT
	}
	const waits = 1.5 * 3600 // until the window has ended
	if got := jct(); got < waits {
		t.Errorf("the first job ran for %v s, although a window begins after half an hour", got)
	}
	for _, args := range [][]string{{"-begin", "2026-11-22T05:00:00Z"}} {
		if got := jct(args...); got > waits {
			t.Errorf("%v: the job waited for a window that is over: %v s", args, got)
		}
	}
}

// TestHistoryBegins: a trace from the agent's history begins at the first submission.
func TestHistoryBegins(t *testing.T) {
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "g", GPUs: []pal.GPU{{ID: "a"}}}}}}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, time.November, 22, 2, 30, 0, 0, time.UTC)
	runs := []palapi.Run{{Job: "j", Submitted: at, Started: at.Add(time.Minute), Ended: at.Add(time.Hour), GPUs: 1, MemberGPUs: 1, State: palapi.RunComplete}}
	if got := ofRuns(runs, c); len(got.Jobs) != 1 || !got.Begin.Equal(at) {
		t.Errorf("%d jobs from %v, want 1 from %v", len(got.Jobs), got.Begin, at)
	}
}
