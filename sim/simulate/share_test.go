// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two jobs on the one GPU of a cluster slow each other as the pairs say, relative to alone. Jobs
// that do not fit in memory together never share: one of them requests the whole GPU.
func TestShare(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("throughputs.csv", "gpu,consolidated,job,gpus,steps_per_s\nv100,yes,lm,1,10\nv100,yes,a3c,1,4\n")
	jobs := write("jobs.csv", "job_id,gpus,submit_time,duration,model\na,1,0,1000,lm\nb,1,0,1000,a3c\n")
	pairs := write("pairs.csv", "gpu,job_a,job_b,gpus,steps_per_s_a,steps_per_s_b\nv100,lm,lm,1,5,5\nv100,lm,a3c,1,8,2\nv100,a3c,a3c,1,2,2\n")
	large := write("large.csv", "gpu,job_a,job_b,gpus,steps_per_s_a,steps_per_s_b\nv100,lm,lm,1,5,5\nv100,lm,a3c,1,0,0\nv100,a3c,a3c,1,0,0\n")
	one := []string{"-trace", jobs, "-gpus", "1xV100", "-gpus-per-node", "1", "-outliers", "0", "-limit=false"}
	// Beside each other, a runs at speed 0.8 and b at half speed: a ends at 1250, when b has 375
	// of 1000 left.
	for _, tc := range []struct {
		args   []string
		jcts   [2]float64
		shared bool
	}{
		{nil, [2]float64{1000, 2000}, false},
		{[]string{"-share", "2", "-pairs", pairs}, [2]float64{1000, 2000}, true}, // by their classes they would together do less work
		{[]string{"-share", "2", "-pairs", pairs, "-refuse-bad-neighbours=false"}, [2]float64{1250, 1625}, true},
		{[]string{"-share", "2", "-pairs", pairs, "-neighbours", "random"}, [2]float64{1250, 1625}, true},
		{[]string{"-share", "2", "-pairs", large}, [2]float64{1000, 2000}, true},
	} {
		r := report(t, append(one, tc.args...)...)
		var got [2]float64
		for i, j := range r.Jobs {
			got[i] = j.JCT
		}
		if ratio := got[0] / tc.jcts[0]; ratio < 0.85 || ratio > 1.15 || got[1]/tc.jcts[1]-ratio > 0.01 || ratio-got[1]/tc.jcts[1] > 0.01 {
			t.Errorf("%v: jobs end after %.0f s, want %.0f s times the GPU's score", tc.args, got, tc.jcts)
		}
		if r.GPUs != 1 || (r.Parts == 2) != tc.shared {
			t.Errorf("%v: the report has %d GPUs of %d parts", tc.args, r.GPUs, r.Parts)
		}
	}
	// Without names, jobs of one class are one application. Random pairs are close to the means
	// of their classes.
	classes := write("classes.csv", "job_id,gpus,submit_time,duration,class\na,1,0,1000,A\nb,1,0,1000,A\nd,1,0,10,D\n")
	r := report(t, append(one, "-trace", classes, "-share", "3", "-refuse-bad-neighbours=false", "-seed", "3")...)
	if a := r.Jobs[0]; a.JCT < 1500 {
		t.Errorf("A beside A ends after %.0f s; alone it takes 1000 s, and on average 2.6 times as long beside A", a.JCT)
	}
	for want, args := range map[string][]string{
		"large.csv has no pairs measured on GPU model \"K80\"; name the cluster's GPU models with -gpus": {"-gpus", "1xK80", "-share", "2", "-pairs", large},
		`has no pairs of "bert", which job "x" runs`:                                                     {"-trace", write("other.csv", "job_id,gpus,submit_time,duration,model\nx,1,0,10,bert\n"), "-share", "2", "-pairs", pairs},
		"-share cannot be combined with -mtbf":                                                           {"-share", "2", "-mtbf", "1h"},
		"-share cannot be combined with -policy fifo":                                                    {"-share", "2", "-policy", "fifo"},
		"-share 1 is not between 2 and 48":                                                               {"-share", "1"},
		`-neighbours "best" is unknown`:                                                                  {"-share", "2", "-neighbours", "best"},
		"-pairs and -neighbours need -share":                                                             {"-pairs", pairs},
	} {
		if _, stderr := simulate(t, 1, append(append(one, "-quiet"), args...)...); !strings.Contains(stderr, want) {
			t.Errorf("%v: %s\nwant %s", args, stderr, want)
		}
	}
}

// The generated workload on shared GPUs: all jobs end, and wait less for a part than for a GPU.
func TestShareGenerated(t *testing.T) {
	shared, alone := report(t, "-share", "2", "-load", "3"), report(t, "-load", "3", "-limit=false")
	if shared.Unfinished != 0 || shared.Parts != 2 || shared.GPUs != 64 || shared.LimitAvgJCT != 0 {
		t.Errorf("%d jobs never end, on %d GPUs of %d parts; clairvoyant %v s", shared.Unfinished, shared.GPUs, shared.Parts, shared.LimitAvgJCT)
	}
	if shared.AvgWait >= alone.AvgWait {
		t.Errorf("jobs wait %.0f s for parts, %.0f s for GPUs", shared.AvgWait, alone.AvgWait)
	}
}
