// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package published

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
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

func describe(t trace.Trace) (lines []string) {
	for _, j := range t.Jobs {
		lines = append(lines, fmt.Sprintf("%s: %s of %q, %v, at %v for %v s", j.ID, j.Name, j.Tenant, j.TaskGroups(), j.SubmitS, j.WorkS()))
	}
	return append(lines, fmt.Sprint(t.Skipped()))
}

const openbDefault = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,1000,1,2,1000,,LS,Running,5,25,10
p2,1000,1,1,460,,BE,Pending,6,90,
p3,1000,1,0,0,,LS,Running,5,25,6
p4,1000,1,2,1000,,LS,Failed,10,20,10
`

func TestReadFile(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		// The job ran twice. It gets the GPUs of its last run.
		"Helios": {`job_id,user,vc,jobname,gpu_num,state,submit_time,start_time,end_time,duration
1,ann,v,x,8,COMPLETED,2020-04-01 00:04:03,2020-04-01 00:05:03,2020-04-01 00:06:03,60
4,ann,v,x,1,CANCELLED,2020-04-01 00:04:05,None,2020-04-01 00:06:03,0
9,ann,v,x,1,COMPLETED,2020-04-01 00:04:05,2020-04-01 00:06:03,,600
1,ann,v,x,4,COMPLETED,2020-04-01 00:04:03,2020-04-01 00:07:03,2020-04-01 00:08:13,70
`, []string{`1: x of "v", [4 × 1 GPUs], at 0 for 130 s`, `9: x of "v", [1 × 1 GPUs], at 2 for 600 s`, "map[never started:1]"}},
		"Acme": {`job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
7,u1,1,8,128,Other,FAILED,2023-03-01 08:00:00+08:00,2023-03-01 08:00:30+08:00,2023-03-01 08:02:30+08:00,150,30,960.0
8,u2,8,64.0,960,Other,CANCELLED,2023-03-01 00:01:00+00:00,2023-03-01 00:01:12+00:00,2023-03-01 00:02:22+00:00,82,12.0,5248.0
9,u2,0,,4,Other,CANCELLED,2023-03-01 00:01:00+00:00,,,82,12.0,0
`, []string{`7: u1 of "u1", [1 × 8 GPUs], at 0 for 120 s`, `8: u2 of "u2", [8 × 8 GPUs], at 60 for 70 s`, "map[never started:1]"}},
		// The table has no header.
		"Alibaba 2020": {`j1,ps,1.0,Terminated,100.0,3700.0,600.0,30,,
j1,worker,4.0,Terminated,100.0,3700.0,600.0,30,150.0,V100
j1,evaluator,1.0,Terminated,100.0,3600.0,600.0,30,50.0,V100
j4,tensorflow,,Waiting,,,600.0,30,50.0,MISC
j5,tensorflow,2,Terminated,190,250,600,30,200,V100
j5,tensorflow,2,Terminated,290,350,600,30,200,V100
`, []string{`j1: worker of "", [4 × 2 GPUs 1 × 1 GPUs], at 0 for 3600 s`, `j5: tensorflow of "", [2 × 2 GPUs], at 90 for 120 s`, "map[still waiting:1]"}},
		"Alibaba 2023": {openbDefault, []string{`p1: LS of "", [1 × 2 GPUs], at 0 for 15 s`, `p4: LS of "", [1 × 2 GPUs], at 5 for 10 s`, "map[never started:1 no GPU:1]"}},
		"Philly": {`[{"status":"Pass","vc":"v","jobid":"1","user":"ann","submitted_time":"2017-10-07 01:00:00","attempts":[
 {"start_time":"2017-10-07 01:10:00","end_time":"2017-10-07 01:20:00","detail":[{"ip":"m1","gpus":["gpu0","gpu1"]}]},
 {"start_time":"2017-10-07 01:30:00","end_time":"2017-10-07 01:40:00","detail":[{"ip":"m1","gpus":["gpu0"]},{"ip":"m2","gpus":["gpu3"]}]}]},
{"status":"Pass","jobid":"2","submitted_time":"2017-10-07 00:59:00","attempts":[
 {"start_time":"2017-10-07 01:10:00","end_time":"None","detail":[{"ip":"m1","gpus":["gpu0"]}]}]},
{"status":"Killed","jobid":"3","submitted_time":null,"attempts":[]},
{"status":"Failed","jobid":"6","user":"bob","submitted_time":"2017-10-07 00:58:00","attempts":[
 {"start_time":"2017-10-07 01:00:00","end_time":"2017-10-07 02:00:00","detail":[{"ip":"m1","gpus":["gpu0"]}]}]}]`,
			[]string{`6: bob of "bob", [1 × 1 GPUs], at 0 for 3600 s`, `1: ann of "v", [2 × 1 GPUs], at 120 for 1200 s`, "map[never started:1 no end:1]"}},
		"the artifact's": {"job_id,num_gpus,submit_time,duration,model\n1,2,10,10,vgg19\n", []string{`1: vgg19 of "", [2 × 1 GPUs], at 10 for 3.00610341 s`, "map[]"}},
		"one's own":      {"job_id,gpus,submit_time,duration\n1,2,10,10\n", []string{`1:  of "", [2 × 1 GPUs], at 0 for 10 s`, "map[]"}},
	} {
		got, err := ReadFile(filepath.Join(write(t, map[string]string{"f": tc.text}), "f"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d := cmp.Diff(tc.want, describe(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is read")
	}
}

// The multigpu lists have the pods of the default list and more, all without times.
func TestListsWithoutTimes(t *testing.T) {
	const list = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos\np1,1000,1,2,1000,\np2,1000,1,1,460,\np3,1000,1,0,0,\np4,1000,1,2,1000,\n" +
		"p5,1000,1,2,1000,\np6,1000,1,2,1000,\np7,1000,1,2,1000,\np8,1000,1,8,1000,\n"
	if _, err := ReadFile(filepath.Join(write(t, map[string]string{"list.csv": list}), "list.csv")); err == nil || !strings.Contains(err.Error(), "openb_pod_list_default.csv") {
		t.Errorf("without the default list: %v, want it named", err)
	}
	got, err := ReadFile(filepath.Join(write(t, map[string]string{"list.csv": list, "openb_pod_list_default.csv": openbDefault}), "list.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, pod := range []string{"p1: %s 0 for 15 s", "p5: %s 0 for 15 s", "p7: %s 0 for 15 s", "p4: %s 5 for 10 s", "p6: %s 5 for 10 s"} {
		want = append(want, fmt.Sprintf(pod, `LS of "", [1 × 2 GPUs], at`))
	}
	want = append(want, "map[no GPU:3]")
	if d := cmp.Diff(want, describe(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A trace of Gavel gets run times and speeds from the rates in its directory: those on one node,
// for the same number of GPUs or the next lower one.
func TestGavel(t *testing.T) {
	const list = "job_id,submit_s,job,gpus,steps\n7,100,lm/80,1,600\n8,160,lm/80,4,600\n"
	dir := write(t, map[string]string{
		"jobs.csv": list, "more.csv": list + "9,200,gan,1,5\n",
		"throughputs.csv": "gpu,consolidated,job,gpus,steps_per_s\nv100,yes,lm/80,1,2\nk80,yes,lm/80,1,0.5\n" +
			"v100,yes,lm/80,2,4\nk80,yes,lm/80,2,0.5\nv100,no,lm/80,4,50\n",
	})
	tr, err := ReadFile(filepath.Join(dir, "jobs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []trace.Job{
		{ID: "7", Name: "lm/80×1", GPUs: 1, SubmitS: 0, Iterations: 300, Speeds: pal.Speeds{"V100": 1, "K80": 0.25}},
		{ID: "8", Name: "lm/80×4", GPUs: 4, SubmitS: 60, Iterations: 150, Speeds: pal.Speeds{"V100": 1, "K80": 0.125}},
	} {
		want.Line, want.Class, want.MemberGPUs, want.IterTimeS, want.Priority = i+2, pal.ClassB, want.GPUs, 1, 50
		if got := tr.Jobs[i]; !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "more.csv")); err == nil || !strings.Contains(err.Error(), "more.csv:4: throughputs.csv has no rate of gan on 1 GPUs or fewer") {
		t.Errorf("a job without rates: %v", err)
	}
	other := write(t, map[string]string{"jobs.csv": list, "throughputs.csv": "gpu,consolidated,job,gpus,steps_per_s\nv100,true,lm/80,1,2\n"})
	if _, err := ReadFile(filepath.Join(other, "jobs.csv")); err == nil || !strings.Contains(err.Error(), `throughputs.csv:2: column consolidated: "true" is neither yes nor no`) {
		t.Errorf("neither on one node nor on several: %v", err)
	}
}
