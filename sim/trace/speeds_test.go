// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A trace of Gavel gets run times and speeds from the rates in its directory: those on one node,
// for the same number of GPUs or the next lower one.
func TestGavel(t *testing.T) {
	const list = "job_id,submit_s,job,gpus,steps\n7,100,lm/80,1,600\n8,160,lm/80,4,600\n"
	dir := write(t, map[string]string{
		"jobs.csv": list,
		"throughputs.csv": "gpu,consolidated,job,gpus,steps_per_s\nv100,yes,lm/80,1,2\nk80,yes,lm/80,1,0.5\n" +
			"v100,yes,lm/80,2,4\nk80,yes,lm/80,2,0.5\nv100,no,lm/80,4,50\n",
	})
	tr, err := ReadFile(filepath.Join(dir, "jobs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Job{
		{ID: "7", Name: "lm/80×1", GPUs: 1, SubmitS: 0, Iterations: 300, Speeds: pal.Speeds{"V100": 1, "K80": 0.25}},
		{ID: "8", Name: "lm/80×4", GPUs: 4, SubmitS: 60, Iterations: 150, Speeds: pal.Speeds{"V100": 1, "K80": 0.125}},
	} {
		want.Line, want.Class, want.MemberGPUs, want.IterTimeS, want.Priority = i+2, pal.ClassB, want.GPUs, 1, defaultPriority
		if got := tr.Jobs[i]; !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs.csv"), []byte(list+"9,200,gan,1,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(filepath.Join(dir, "jobs.csv")); err == nil || !strings.Contains(err.Error(), "jobs.csv:4: throughputs.csv has no rate of gan on 1 GPUs or fewer") {
		t.Errorf("a job without rates: %v", err)
	}
}

// On a cluster without its fastest model, a job takes longer. A job that names no model of the
// cluster is left out; a job without speeds is unchanged.
func TestOnModels(t *testing.T) {
	of := pal.Speeds{"A100": 1, "V100": 0.5, "K80": 0.1}
	all := Trace{Jobs: []Job{
		{ID: "said", IterTimeS: 1, Iterations: 60, EstimateS: 80, Speeds: of},
		{ID: "one", IterTimeS: 1, Iterations: 60, Speeds: pal.Speeds{"A100": 1, "V100": 0.5}, After: []string{"none"}},
		{ID: "none", IterTimeS: 1, Iterations: 60, Speeds: pal.Speeds{"A100": 1, "H100": 2}},
		{ID: "silent", IterTimeS: 1, Iterations: 60},
	}}
	got := all.OnModels([]string{"nvidia/gpu/V100", "nvidia/gpu/K80"})
	want := []Job{
		{ID: "said", IterTimeS: 2, Iterations: 60, EstimateS: 160, Speeds: pal.Speeds{"nvidia/gpu/V100": 1, "nvidia/gpu/K80": 0.2}},
		{ID: "one", IterTimeS: 2, Iterations: 60, After: []string{}, Notes: []string{noteForeign}},
		{ID: "silent", IterTimeS: 1, Iterations: 60},
	}
	if !reflect.DeepEqual(got.Jobs, want) {
		t.Errorf("got  %+v\nwant %+v", got.Jobs, want)
	}
	if skipped := got.Skipped(); skipped["runs on none of the cluster's GPU models"] != 1 || all.Jobs[0].EstimateS != 80 {
		t.Errorf("%v are left out; the trace is now %+v", skipped, all.Jobs[0])
	}
}

// From Sia's table, ReadSpeeds uses the largest batch that ran on all kinds of GPU; our table has
// one rate.
func TestReadSpeeds(t *testing.T) {
	dir := write(t, map[string]string{
		"sia.csv":  "gpu_type,model,local_batch,step_s\nrtx,bert,4,1\nrtx,bert,8,2\nrtx,bert,16,9\na100,bert,8,0.5\na100,bert,4,0.5\na100,bert,32,1\n",
		"ours.csv": "model,gpu_model,rate\nllm,NVIDIA H100,300\nllm,Tesla T4,30\n",
	})
	for file, want := range map[string]App{
		"sia.csv":  {"bert", pal.ClassA, pal.Speeds{"a100": 1, "rtx": 0.25}},
		"ours.csv": {"llm", pal.ClassA, pal.Speeds{"NVIDIA H100": 1, "Tesla T4": 0.1}},
	} {
		_, apps, err := ReadSpeeds(filepath.Join(dir, file))
		if err != nil || !reflect.DeepEqual(apps, []App{want}) {
			t.Errorf("%s: got %+v, %v; want %+v", file, apps, err, want)
		}
	}
}

// The same seed generates the same workload. Its applications differ as measured ones do: the one
// that gains most by a newer GPU gains several times as much as the one that gains least.
func TestMixed(t *testing.T) {
	models := []string{"V100", "P100", "K80"}
	apps, err := Applications(models)
	if err != nil {
		t.Fatal(err)
	}
	least, most := 1.0, 0.0
	for _, a := range apps {
		least, most = min(least, a.Speeds["K80"]), max(most, a.Speeds["K80"])
	}
	if most < 2*least {
		t.Errorf("on a K80, speeds are %v to %v", least, most)
	}
	shape := Shape{Jobs: 50, MaxGPUs: 16}
	a, b := Mixed(1, shape, models, apps), Mixed(1, shape, models, apps)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a.Jobs, Mixed(2, shape, models, apps).Jobs) {
		t.Error("the workload does not depend on the seed alone")
	}
}
