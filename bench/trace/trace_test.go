// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nomad-pal/nomad-pal/pal"
)

const philly = `[
 {"jobid": "app_1", "user": "ann", "vc": "vc1", "submitted_time": "2017-10-07 01:00:00", "attempts": [
   {"start_time": "2017-10-07 01:10:00", "end_time": "2017-10-07 01:20:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
   {"start_time": "2017-10-07 01:30:00", "end_time": "2017-10-07 01:40:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}, {"ip": "m2", "gpus": ["gpu3"]}]}]},
 {"jobid": "app_0", "user": "bob", "vc": "vc2", "submitted_time": "2017-10-07 00:59:00", "attempts": [
   {"start_time": "2017-10-07 01:00:00", "end_time": "None", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
 {"jobid": "app_2", "user": "bob", "vc": "vc2", "submitted_time": "2017-10-07 00:58:00", "attempts": [
   {"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 02:00:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
]`

func TestFormats(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Trace
	}{
		{"sia", "job_id,num_gpus,submit_time,duration,model\n0,4,10,4000.0,resnet50\n",
			Trace{Jobs: []Job{{ID: "0", Name: "resnet50", Class: pal.ClassA, GPUs: 4, SubmitS: 10, Iterations: 4000, IterTimeS: 0.17540429367763434}}}},
		{"philly", philly, Trace{Jobs: []Job{
			{ID: "app_2", Name: "bob", Tenant: "vc2", Class: pal.ClassA, GPUs: 1, Iterations: 3600, IterTimeS: 1},
			{ID: "app_1", Name: "ann", Tenant: "vc1", Class: pal.ClassA, GPUs: 2, SubmitS: 120, Iterations: 1200, IterTimeS: 1},
		}, Skipped: map[string]int{"never ran on a GPU": 1}}},
		{"helios", "job_id,user,vc,gpu_num,state,submit_time,duration\n7,u1,v1,8,COMPLETED,2020-04-01 00:04:03,60\n8,u1,v1,0,COMPLETED,2020-04-01 00:04:04,60\n9,u1,v1,1,CANCELLED,2020-04-01 00:04:05,0\n",
			Trace{Jobs: []Job{{ID: "7", Name: "u1", Tenant: "v1", Class: pal.ClassA, GPUs: 8, Iterations: 60, IterTimeS: 1}},
				Skipped: map[string]int{"no GPU": 1, "never ran": 1}}},
		{"alibaba 2020", "j1,worker,2,Terminated,100,160,600,30,150,V100\nj2,worker,1,Failed,100,,600,30,100,V100\n",
			Trace{Jobs: []Job{{ID: "j1/worker", Name: "worker", Class: pal.ClassA, GPUs: 4, Iterations: 60, IterTimeS: 1}},
				Skipped: map[string]int{"no GPU or no end": 1}}},
		{"alibaba 2023", "name,cpu_milli,num_gpu,qos,creation_time,deletion_time\np1,1000,1,LS,5,25\np2,1000,0,LS,5,25\n",
			Trace{Jobs: []Job{{ID: "p1", Name: "LS", Class: pal.ClassA, GPUs: 1, Iterations: 20, IterTimeS: 1}},
				Skipped: map[string]int{"no GPU or no end": 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Read("file", strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Name = "file"
			tc.want.Format, _, _ = strings.Cut(tc.name, " ")
			if d := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Job{}, "Line")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":              "f:1: unknown trace format",
		"[\n{\"jobid\"": "f:2: read job 1",
		"[\n{\"jobid\": \"a\", \"submitted_time\": \"soon\"}]": `f:2: job "a": submitted_time`,
		"{}": "f:1: not a list of jobs",
		"[{\"jobid\": \"a\", \"submitted_time\": \"2017-10-07 01:00:00\"}":                             "the list of jobs does not end",
		"job_id,user,gpu_num,submit_time,duration\n1,u,1,2020-04-01 00:00:00,10\n2,u,1,yesterday,10\n": `f:3: column "submit_time"`,
		"job_id,user,gpu_num,submit_time\n":                                                            `f:1: column "duration" is missing`,
		"job_id,num_gpus,submit_time,duration,model\n0,1.5,5,10,vgg19\n":                               `f:2: column "num_gpus"`,
		"job_id,num_gpus,submit_time,duration,model\n0,1,+Inf,10,vgg19\n":                              `f:2: column "submit_time": +Inf is not a number`,
		"job_id,num_gpus,submit_time,duration,model\n0,1\n":                                            "f: record on line 2: wrong number of fields",
		"name,num_gpu,creation_time,deletion_time\np,1,-1,5\n":                                         `f:2: column "creation_time": -1 is not`,
	} {
		if _, err := Read("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

func TestFit(t *testing.T) {
	tr, err := Read("f", strings.NewReader("job_id,num_gpus,submit_time,duration,model\n0,1,5,10,vgg19\n1,9,6,10,vgg19\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Fit(8); err == nil || err.Error() != `f:3: job "1" needs 9 GPUs, the cluster has 8` {
		t.Errorf("Sia: %v", err)
	}
	if tr, err = Read("f", strings.NewReader(philly)); err != nil {
		t.Fatal(err)
	}
	if err := tr.Fit(1); err != nil || len(tr.Jobs) != 1 || tr.Skipped["larger than the cluster"] != 1 {
		t.Errorf("Philly: %v, %+v", err, tr)
	}
	if tr.Jobs[0].Line != 8 {
		t.Errorf("the job ends on line %d, want 8", tr.Jobs[0].Line)
	}
}

// TestGenerators: the same seed gives the same workload, and it is what it
// says it is.
func TestGenerators(t *testing.T) {
	a, b, c := SiaPhilly(1, Shape{Jobs: 200}), SiaPhilly(1, Shape{Jobs: 200}), SiaPhilly(2, Shape{Jobs: 200})
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("seed 1 twice:\n%s", d)
	}
	if cmp.Equal(a.Jobs, c.Jobs) {
		t.Error("seeds 1 and 2 give the same")
	}
	sizes := map[int]bool{1: true, 4: true, 6: true, 8: true, 12: true, 16: true, 24: true, 32: true, 48: true}
	for i, j := range a.Jobs {
		if !sizes[j.GPUs] || !(j.WorkS() > 0) || i > 0 && j.SubmitS < a.Jobs[i-1].SubmitS {
			t.Errorf("job %+v", j)
		}
	}
	h := HeavyTail(1, 2000, 512, 0.8)
	work := 0.0
	for _, j := range h.Jobs {
		work += j.WorkS() * float64(j.GPUs)
	}
	if load := work / 512 / h.Jobs[len(h.Jobs)-1].SubmitS; load < 0.7 || load > 0.9 {
		t.Errorf("heavy-tail load %v, want about 0.8", load)
	}
	if !strings.Contains((Trace{Name: "x", Skipped: map[string]int{"b": 1, "a": 2}}).Summary(), "x: 0 jobs, 2 skipped (a), 1 skipped (b)") {
		t.Error("the summary does not count what was skipped")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(philly)
	f.Add("job_id,num_gpus,submit_time,duration,model\n0,4,10,4000.0,resnet50\n")
	f.Add("job_id,user,gpu_num,submit_time,duration\n1,u,1,2020-04-01 00:00:00,10\n")
	f.Add("j1,worker,2,Terminated,100,160,600,30,150,V100\n")
	f.Fuzz(func(t *testing.T, s string) {
		tr, err := Read("f", strings.NewReader(s))
		if err != nil {
			return
		}
		for _, j := range tr.Jobs {
			if j.GPUs < 1 || !(j.WorkS() >= 0) || !(j.SubmitS >= 0) {
				t.Errorf("job %+v", j)
			}
		}
	})
}
