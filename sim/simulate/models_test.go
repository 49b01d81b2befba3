// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// report runs the command with -json and returns its report.
func report(t *testing.T, args ...string) (r Report) {
	t.Helper()
	out, _ := simulate(t, 0, append(args, "-json")...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// On an empty cluster a job runs on its fastest model, and there takes its duration, unless another
// job gains more there. Baselines ignore speeds, but the slower model is slower nevertheless.
func TestModels(t *testing.T) {
	jobs := filepath.Join(t.TempDir(), "jobs.csv")
	const table = `job_id,members,member_gpus,submit_time,duration,model,speed
slow,1,4,0,1000,llm,"V100=1,K80=0.1"
same,1,4,0,1000,ncf,"V100=1,K80=0.8"
later,1,4,99999,1000,llm2,"V100=1,K80=0.1"
`
	if err := os.WriteFile(jobs, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	const v100, k80 = "nvidia/gpu/V100", "nvidia/gpu/K80"
	type at struct {
		model string
		jct   float64
	}
	for policy, want := range map[string][3]at{
		"pal":  {{v100, 1000}, {k80, 1250}, {v100, 1000}},
		"easy": {{k80, 10000}, {v100, 1000}, {k80, 10000}},
	} {
		r := report(t, "-trace", jobs, "-gpus", "4xK80,4xV100", "-outliers", "0", "-policy", policy)
		for i, j := range r.Jobs {
			if j.GPUModel != want[i].model || j.JCT < 0.85*want[i].jct || j.JCT > 1.15*want[i].jct {
				t.Errorf("%s: %s ends after %.0f s on %s, want %v", policy, j.ID, j.JCT, j.GPUModel, want[i])
			}
		}
		if r.GPUModels != "4xK80,4xV100" || len(r.ByModel) == 0 {
			t.Errorf("%s: the report says %q, by model %v", policy, r.GPUModels, r.ByModel)
		}
	}
}
