// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
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

const openbDefaultSample = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,1000,1,2,1000,,LS,Running,5,25,10
p2,1000,1,1,460,,BE,Pending,6,90,
p3,1000,1,0,0,,LS,Running,5,25,6
p4,1000,1,2,1000,,LS,Failed,10,20,10
`

func TestFormats(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Trace
	}{
		{"sia", "job_id,num_gpus,submit_time,duration,model\n0,4,10,4000.0,resnet50\n",
			Trace{Jobs: []Job{{ID: "0", Name: "resnet50", Class: pal.ClassA, GPUs: 4, SubmitS: 10, Priority: 50, Iterations: 4000, IterTimeS: 0.17540429367763434}}}},
		{"philly", philly, Trace{Jobs: []Job{
			{ID: "app_2", Name: "bob", Tenant: "vc2", Class: pal.ClassA, GPUs: 1, Iterations: 3600, IterTimeS: 1},
			{ID: "app_1", Name: "ann", Tenant: "vc1", Class: pal.ClassA, GPUs: 2, SubmitS: 120, Iterations: 1200, IterTimeS: 1},
		}, Skipped: map[string]int{"never ran on a GPU": 1}}},
		{"helios", "job_id,user,vc,gpu_num,state,submit_time,duration\n7,u1,v1,8,COMPLETED,2020-04-01 00:04:03,60\n8,u1,v1,0,COMPLETED,2020-04-01 00:04:04,60\n9,u1,v1,1,CANCELLED,2020-04-01 00:04:05,0\n",
			Trace{Jobs: []Job{{ID: "7", Name: "u1", Tenant: "v1", Class: pal.ClassA, GPUs: 8, Iterations: 60, IterTimeS: 1}},
				Skipped: map[string]int{"no GPU": 1, "never ran": 1}}},
		{"alibaba 2020", "j1,worker,2,Terminated,100,160,600,30,150,V100\nj2,worker,1,Failed,100,,600,30,100,V100\n",
			Trace{Jobs: []Job{{ID: "j1/worker", Name: "worker", Class: pal.ClassA, GPUs: 4, MemberGPUs: 2, Iterations: 60, IterTimeS: 1}},
				Skipped: map[string]int{"no GPU or no end": 1}}},
		{"alibaba 2023", "name,cpu_milli,num_gpu,qos,creation_time,deletion_time\np1,1000,1,LS,5,25\np2,1000,0,LS,5,25\n",
			Trace{Jobs: []Job{{ID: "p1", Name: "LS", Class: pal.ClassA, GPUs: 1, MemberGPUs: 1, Iterations: 20, IterTimeS: 1}},
				Skipped: map[string]int{"no GPU or no end": 1}}},
		{"alibaba 2023, pods that waited or never started", openbDefaultSample,
			Trace{Jobs: []Job{
				{ID: "p1", Name: "LS", Class: pal.ClassA, GPUs: 2, MemberGPUs: 2, Iterations: 15, IterTimeS: 1},
				{ID: "p4", Name: "LS", Class: pal.ClassA, GPUs: 2, MemberGPUs: 2, SubmitS: 5, Iterations: 10, IterTimeS: 1},
			}, Skipped: map[string]int{"never started": 1, "no GPU or no end": 1}}},
		{"acme", "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n" +
			"7,u1,1,8,128,Other,FAILED,2023-03-01 08:00:00+08:00,2023-03-01 08:00:30+08:00,2023-03-01 08:02:30+08:00,120,30,960.0\n" +
			"8,u2,8,64.0,960,Other,CANCELLED,2023-03-01 00:01:00+00:00,2023-03-01 00:01:12+00:00,2023-03-01 00:02:22+00:00,82,12.0,5248.0\n" +
			"9,u2,0,,4,Other,CANCELLED,2023-03-01 00:01:00+00:00,,,82,12.0,0\n" +
			"10,u2,1,1,4,Other,CANCELLED,2023-03-01 00:01:00+00:00,,2023-03-01 00:02:22+00:00,82,82,82\n",
			Trace{Jobs: []Job{
				{ID: "7", Name: "u1", Tenant: "u1", Class: pal.ClassA, GPUs: 8, Iterations: 120, IterTimeS: 1},
				{ID: "8", Name: "u2", Tenant: "u2", Class: pal.ClassA, GPUs: 64, SubmitS: 60, Iterations: 70, IterTimeS: 1},
			}, Skipped: map[string]int{"no GPU": 1, "never ran": 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := read("file", strings.NewReader(tc.text), nil)
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

// TestListsWithoutTimes: the multigpu lists hold the pods of the default list and
// more, none with its times.
func TestListsWithoutTimes(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "openb_pod_list_multigpu20.csv")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(list, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1000,1,2,1000\np2,1000,1,1,460\np3,1000,1,0,0\np4,1000,1,2,1000\n"+
		"p5,1000,1,2,1000\np6,1000,1,2,1000\np7,1000,1,2,1000\np8,1000,1,8,1000\n")
	if _, err := ReadFile(list); err == nil || !strings.Contains(err.Error(), "openb_pod_list_default.csv") {
		t.Errorf("without the default list: %v, want it named", err)
	}
	write(filepath.Join(dir, "openb_pod_list_default.csv"), openbDefaultSample)
	got, err := ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	pod := func(id string, submit, work float64) Job {
		return Job{ID: id, Name: "LS", Class: pal.ClassA, GPUs: 2, MemberGPUs: 2, SubmitS: submit, Iterations: work, IterTimeS: 1}
	}
	want := Trace{Name: list, Format: "alibaba", Jobs: []Job{pod("p1", 0, 15), pod("p5", 0, 15), pod("p7", 0, 15), pod("p4", 5, 10), pod("p6", 5, 10)},
		Skipped: map[string]int{"no GPU or never started": 2, "no pod of its size has times": 1}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Job{}, "Line")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestTenants: a trace by virtual cluster, and its gangs as tasks.
func TestTenants(t *testing.T) {
	tr, err := read("f", strings.NewReader(philly), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"vc2", "vc1"}, tr.Tenants()); d != "" {
		t.Errorf("by GPU time (-want +got):\n%s", d)
	}
	one := tr.Of("vc1")
	if len(one.Jobs) != 1 || one.Jobs[0].ID != "app_1" || one.Jobs[0].SubmitS != 0 || one.Name != "f, vc1" {
		t.Errorf("vc1: %+v", one)
	}
	for gpus, want := range map[int]int{2: 2, 8: 8, 9: 8, 10: 5, 11: 8, 12: 6, 16: 8, 20: 5} {
		tr.Jobs[1].GPUs = gpus
		if in := tr.InTasks(8); in.Jobs[0].MemberGPUs != 1 || in.Jobs[1].MemberGPUs != want || tr.Jobs[1].MemberGPUs != 0 {
			t.Errorf("%d GPUs in tasks of up to 8: of %d, want %d", gpus, in.Jobs[1].MemberGPUs, want)
		}
	}
}

// TestPhillyInALongFile: the line of each job is found, not counted: a log of
// many lines is read in time that grows with its length.
func TestPhillyInALongFile(t *testing.T) {
	const jobs = 20_000
	text := "[" + strings.Repeat(strings.Repeat("\n", 50)+`{"jobid":"a","submitted_time":"2017-10-07 01:00:00"},`, jobs)
	d, err := read("f", strings.NewReader(text+`{"jobid":"b","submitted_time":"2017-10-07 01:00:00","attempts":[`+
		`{"start_time":"2017-10-07 01:00:00","end_time":"2017-10-07 02:00:00","detail":[{"gpus":["gpu0"]}]}]}]`), nil)
	if err != nil || len(d.Jobs) != 1 || d.Jobs[0].Line != 50*jobs+1 {
		t.Errorf("%v, %+v", err, d.Jobs)
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
		"j1,worker,1e300,Terminated,100,160,600,30,150,V100\n":                                         "f:1: 1e+300 instances",
		"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,1,1,1000\n":                                 "f:1: the list has no times",
		"name,num_gpu,creation_time,deletion_time\np,1,-1,5\n":                                         `f:2: column "creation_time": -1 is not`,
	} {
		if _, err := read("f", strings.NewReader(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

// A table is read however a spreadsheet writes it.
func TestTablesOfSpreadsheets(t *testing.T) {
	plain := "job_id,user,gpu_num,submit_time,duration\n1,bob,2,2024-01-01 00:00:00,3600\n"
	want, err := read("f", strings.NewReader(plain), nil)
	if err != nil || len(want.Jobs) != 1 {
		t.Fatal(want, err)
	}
	for name, text := range map[string]string{
		"mark of UTF-8":          "\ufeff" + plain,
		"lines of Windows":       strings.ReplaceAll(plain, "\n", "\r\n"),
		"semicolons":             strings.ReplaceAll(plain, ",", ";"),
		"spaces":                 strings.ReplaceAll(plain, ",", " , "),
		"capitals":               strings.Replace(plain, "job_id,user,gpu_num", "Job_ID,User,GPU_num", 1),
		"times of ISO 8601":      strings.Replace(plain, " 00:00:00", "T00:00:00Z", 1),
		"quotes after the mark":  "\ufeff" + strings.Replace(plain, "job_id", `"job_id"`, 1),
		"all of it, and a blank": "\ufeff" + strings.ReplaceAll(strings.ReplaceAll(plain, ",", "; "), "\n", "\r\n") + "\r\n",
	} {
		got, err := read("f", strings.NewReader(text), nil)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}

func TestFit(t *testing.T) {
	tr, err := read("f", strings.NewReader("job_id,num_gpus,submit_time,duration,model\n0,1,5,10,vgg19\n1,9,6,10,vgg19\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Fit(8); err == nil || err.Error() != `f:3: job "1" needs 9 GPUs, the cluster has 8` {
		t.Errorf("Sia: %v", err)
	}
	if tr, err = read("f", strings.NewReader(philly), nil); err != nil {
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
}

func FuzzRead(f *testing.F) {
	f.Add(philly)
	f.Add("job_id,num_gpus,submit_time,duration,model\n0,4,10,4000.0,resnet50\n")
	f.Add("job_id,user,gpu_num,submit_time,duration\n1,u,1,2020-04-01 00:00:00,10\n")
	f.Add(openbDefaultSample)
	f.Add("j1,worker,2,Terminated,100,160,600,30,150,V100\n")
	f.Fuzz(func(t *testing.T, s string) {
		tr, err := read("f", strings.NewReader(s), nil)
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

// TestSiaOrder: what comes after what, deadlines and arrays, in columns of our own.
func TestSiaOrder(t *testing.T) {
	const text = "job_id,num_gpus,submit_time,duration,model,after,deadline,array,parallel,priority\n1,1,0,10,vgg19,,3600,,,80\n2,1,0,10,vgg19,1 0,,sweep,4,\n"
	tr, err := ReadSia("file", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	type order struct {
		After     []string
		DeadlineS float64
		Array     string
		Parallel  int
		Priority  int
	}
	var got []order
	for _, j := range tr.Jobs {
		got = append(got, order{j.After, j.DeadlineS, j.Array, j.Parallel, j.Priority})
	}
	if d := cmp.Diff([]order{{DeadlineS: 3600, Priority: 80}, {After: []string{"1", "0"}, Array: "sweep", Parallel: 4, Priority: 50}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for column, text := range map[string]string{"deadline": "1,1,0,10,vgg19,,soon,,,\n", "parallel": "1,1,0,10,vgg19,,,sweep,0,\n", "priority": "1,1,0,10,vgg19,,,,,high\n"} {
		_, err := ReadSia("file", strings.NewReader("job_id,num_gpus,submit_time,duration,model,after,deadline,array,parallel,priority\n"+text))
		if err == nil || !strings.Contains(err.Error(), `file:2: column "`+column+`"`) {
			t.Errorf("%s: %v", column, err)
		}
	}
}

// Elastic gangs have the GPU time that they had, at any number of members if twice as
// many are twice as fast, and at the trace's number in any case.
func TestElastic(t *testing.T) {
	was := HeavyTail(1, 500, 128, 0.8).InTasks(2)
	is := was.Elastic(1, Elastic{Share: 0.5, Least: 0.5, Most: 2, Efficiency: 0.8, GPUs: 128})
	elastic, gangs := 0, 0
	for i, j := range is.Jobs {
		w := was.Jobs[i]
		if w.GPUs > max(1, w.MemberGPUs) && w.GPUs%max(1, w.MemberGPUs) == 0 {
			gangs++
		}
		if j.LeastMembers == 0 {
			if !reflect.DeepEqual(j, w) {
				t.Fatalf("%+v became %+v", w, j)
			}
			continue
		}
		elastic++
		per := max(1, j.MemberGPUs)
		if j.GPUs > 128 || j.GPUs < w.GPUs || j.GPUs > 2*w.GPUs || j.LeastMembers != max(1, int(math.Round(float64(w.GPUs/per)*0.5))) {
			t.Errorf("%d GPUs became %d to %d members of %d", w.GPUs, j.LeastMembers, j.GPUs/per, per)
		}
		faster := 1.0
		if j.GPUs == 2*w.GPUs {
			faster = 1.6
		} else if j.GPUs != w.GPUs {
			continue
		}
		if math.Abs(w.WorkS()/j.WorkS()-faster) > 1e-9 {
			t.Errorf("%g s on %d GPUs became %g s on %d", w.WorkS(), w.GPUs, j.WorkS(), j.GPUs)
		}
	}
	if share := float64(elastic) / float64(gangs); math.Abs(share-0.5) > 0.1 {
		t.Errorf("%d of %d gangs are elastic", elastic, gangs)
	}
}
