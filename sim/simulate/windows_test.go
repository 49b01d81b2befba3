// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"os"
	"path/filepath"
	"testing"
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
