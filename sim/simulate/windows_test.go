// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// TestWindows: a nightly window on the only node delays a job of an hour that arrives half an
// hour before it. The simulation begins at the first date of the trace.
func TestWindows(t *testing.T) {
	dir := t.TempDir()
	trace, config := filepath.Join(dir, "jobs.csv"), filepath.Join(dir, "agent.hcl")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(config, "window \"nightly\" {\n  cron     = \"0 2 * * *\"\n  duration = \"1h\"\n  racks    = [\"*\"]\n}\n")
	jct := func(job int, at string) float64 {
		t.Helper()
		write(trace, fmt.Sprintf("job_id,gpus,submit_time,duration,class\n0,1,2024-01-01 %s,3240,C\n1,1,2024-01-02 %s,3240,C\n", at, at))
		return figuresOf(t, "-trace", trace, "-config", config, "-nodes", "1", "-outliers", "0", "-estimates", "exact").Jobs[job].JCT
	}
	least := jct(0, "00:00:00") // long before the window at two
	for at, want := range map[string]float64{"03:00:00": 0, "02:30:00": 0.5 * 3600, "01:30:00": 1.5 * 3600} {
		for job := range 2 { // the second job arrives a day later
			if got := jct(job, at) - least; got < want-1 || got > want+1 {
				t.Errorf("submitted at %s, job %d takes %v s longer, want %v", at, job, got, want)
			}
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
