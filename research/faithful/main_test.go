// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func faithful(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

// TestFaithfulCommand: the command reproduces the artifact's own figures.
func TestFaithfulCommand(t *testing.T) {
	dir := os.Getenv("PAL_DATA")
	if dir == "" {
		t.Skip("PAL_DATA is not set: parity with the artifact's own results is not checked")
	}
	f, err := os.Open(filepath.Join(dir, "golden", "results.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	profile := "A=" + dir + "/var_longhorn_resnet.csv,B=" + dir + "/var_longhorn_bert.csv,C=" + dir +
		"/var_longhorn_bert.csv,D=" + dir + "/var_longhorn_pagerank.csv"
	policies := map[string]string{"PAL": "pal", "PMFirst": "pm-first", "Default-Packed-S": "packed-sticky",
		"Default-Packed-NS": "packed-nonsticky", "Default-Random-S": "random-sticky", "Default-Random-NS": "random-nonsticky"}
	checked := 0
	for _, r := range rows[1:] {
		if r[12] == "" { // runs without utilization are repetitions
			continue
		}
		trace := filepath.Join(dir, "sia_"+strings.Replace(r[0], "-", "_", 1))
		out := faithful(t, "-trace", trace, "-profile", profile, "-policy", policies[r[2]],
			"-order", strings.ToLower(r[3]), "-locality", r[4])
		var got struct {
			Avg  float64 `json:"avg_jct_s"`
			Geo  float64 `json:"geomean_jct_s"`
			Make float64 `json:"makespan_s"`
			Util float64 `json:"utilization"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		for i, v := range map[int]float64{6: got.Avg, 7: got.Geo, 10: got.Make, 12: got.Util} {
			want, _ := strconv.ParseFloat(r[i], 64)
			if math.Abs(v-want) > 1e-5*want {
				t.Errorf("%s %s %s: %s = %v, the artifact has %v", r[0], r[2], r[3], rows[0][i], v, want)
			}
		}
		checked++
	}
	if checked < 24 {
		t.Errorf("only %d runs in the artifact's results", checked)
	}
}

// small is a trace and measurements that need no PAL_DATA.
func small(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	trace := write("t.csv", "job_id,num_gpus,submit_time,duration,model\n0,4,10,4000,resnet50\n1,2,20,3000,vgg19\n2,4,400,2500,resnet50\n")
	rows := write("p.csv", "uuid,perf\na,100\nb,101\nc,130\n")
	return []string{"-trace", trace, "-profile", "A=" + rows + ",B=" + rows + ",C=" + rows + ",D=" + rows, "-nodes", "2"}
}

// TestEveryPolicy: under each policy and order of the artifact, and one of ours, every job ends,
// and a second run gives the same result.
func TestEveryPolicy(t *testing.T) {
	args := small(t)
	for _, policy := range []string{"pal", "pm-first", "packed-sticky", "packed-nonsticky", "random-sticky", "random-nonsticky"} {
		for _, order := range []string{"fifo", "las", "srtf"} {
			check(t, append([]string{"-policy", policy, "-order", order}, args...))
		}
	}
	check(t, append([]string{"-order", "adaptive", "-preempt"}, args...))
}

func check(t *testing.T, args []string) {
	t.Helper()
	out := faithful(t, args...)
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Jobs) != 3 || r.Jobs[2].Finish < 400 || !(r.AvgJCT > 0) {
		t.Errorf("%v: %d jobs, average JCT %v", args[:4], len(r.Jobs), r.AvgJCT)
	}
	if again := faithful(t, args...); again != out {
		t.Errorf("%v: the second run gives another result", args[:4])
	}
}

// TestCompare: the ratios agree with those of single runs.
func TestCompare(t *testing.T) {
	args := small(t)
	single := func(more ...string) (r report) {
		if err := json.Unmarshal([]byte(faithful(t, append(args, more...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	fifo, preempting := single(), single("-order", "adaptive", "-preempt")
	want := fmt.Sprintf("%.3f", preempting.AvgJCT/fifo.AvgJCT)
	out := faithful(t, append(args, "-order", "adaptive", "-compare")...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 {
		t.Fatalf("want a head, a trace and a mean, got:\n%s", out)
	}
	for _, l := range lines[1:] {
		if f := strings.Fields(l); f[len(f)-2] != want {
			t.Errorf("average with preemption: want %s in\n%s", want, out)
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"policy":          {[]string{"-policy", "spread"}, `the artifact does not have the policy "spread"`},
		"order":           {[]string{"-order", "best"}, `queue order "best" is unknown`},
		"track":           {[]string{"-track", "2-9"}, `-track "2-9" is not a range FROM-TO within 0-2`},
		"too few GPUs":    {[]string{"-gpus-per-node", "1"}, "needs 4 GPUs, but the cluster has 2"},
		"no comparison":   {[]string{"-compare"}, `does not work with "fifo"`},
		"a missing class": {[]string{"-profile", "D="}, `"D=" is not CLASS=FILE`},
	} {
		err := run(append(small(t), tc.args...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, tc.want)
		}
	}
}
