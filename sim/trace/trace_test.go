// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"compress/gzip"
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

// played ignores the line numbers of jobs in the file.
var played = []cmp.Option{cmpopts.IgnoreFields(Job{}, "Line"), cmpopts.IgnoreFields(Trace{}, "LeftOut"), cmpopts.EquateEmpty()}

const openbDefaultSample = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,1000,1,2,1000,,LS,Running,5,25,10
p2,1000,1,1,460,,BE,Pending,6,90,
p3,1000,1,0,0,,LS,Running,5,25,6
p4,1000,1,2,1000,,LS,Failed,10,20,10
`

// TestListsWithoutTimes: the multigpu lists have the pods of the default list and more, all
// without times.
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
		return Job{ID: id, Name: "LS", Class: pal.ClassA, GPUs: 2, MemberGPUs: 2, SubmitS: submit, Priority: 50, Iterations: work, IterTimeS: 1}
	}
	want := Trace{Name: list, Format: "alibaba", Jobs: []Job{pod("p1", 0, 15), pod("p5", 0, 15), pod("p7", 0, 15), pod("p4", 5, 10), pod("p6", 5, 10)}}
	if d := cmp.Diff(want, got, played...); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"no GPU": 1, "never started": 1, "no pod of its size has times": 1}, got.Skipped()); d != "" {
		t.Errorf("left out (-want +got):\n%s", d)
	}
}

// TestTenants: the jobs of one virtual cluster of a trace, with gangs as tasks.
func TestTenants(t *testing.T) {
	tr, err := read("f", strings.NewReader(philly))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"vc2", "vc1"}, tr.Tenants()); d != "" {
		t.Errorf("tenants by GPU time (-want +got):\n%s", d)
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

// TestPhillyInALongFile: the line of each job is found by search, so reading a long log takes
// time proportional to its length.
func TestPhillyInALongFile(t *testing.T) {
	const jobs = 20_000
	text := "[" + strings.Repeat(strings.Repeat("\n", 50)+`{"jobid":"a","submitted_time":"2017-10-07 01:00:00"},`, jobs)
	d, err := read("f", strings.NewReader(text+`{"jobid":"b","submitted_time":"2017-10-07 01:00:00","attempts":[`+
		`{"start_time":"2017-10-07 01:00:00","end_time":"2017-10-07 02:00:00","detail":[{"gpus":["gpu0"]}]}]}]`))
	if err != nil || len(d.Jobs) != 1 || d.Jobs[0].Line != 50*jobs+1 {
		t.Errorf("%v, %+v", err, d.Jobs)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":              "f:1: the file is empty",
		"# nothing\n\n": "f:3: the file is empty",
		"[\n{\"jobid\"": "f:2: read job 1",
		"[{\"jobid\": \"a\", \"submitted_time\": \"2017-10-07 01:00:00\"}":                                                   "the list of jobs does not end",
		"# by hand\n\njob_id,user,gpu_num,submit_time,duration\n# first\n1,u,1,2020-04-01 00:00:00,10\n2,u,1,yesterday,10\n": `f:6: column "submit_time"`,
		"job_id,num_gpus,submit_time,duration,model\n0,1.5,5,10,vgg19\n":                                                     `f:2: column "num_gpus"`,
		"job_id,num_gpus,submit_time,duration,model\n0,1,+Inf,10,vgg19\n":                                                    `f:2: column "submit_time": +Inf is not a finite number`,
		"job_id,num_gpus,submit_time,duration,model\n0,1\n":                                                                  "f:2: the row has 2 fields, the header 5",
		"job_id,num_gpus,submit_time,duration,model\n0,1,5,10,\"vgg19\n":                                                     `f:2: extraneous or missing " in quoted-field`,
		"name,num_gpu,creation_time,deletion_time\np,1,-2,5\n":                                                               `f:2: column "creation_time": -2 is less than 0`,
		"\xff\xfej\x00o\x00b\x00": `read trace "f": the file is UTF-16; save it as UTF-8`,
		"PK\x03\x04rest":          `read trace "f": the file is a spreadsheet or a zip archive; save the table as CSV`,
		"\x1f\x8bno gzip at all":  `read trace "f": unpack`,
	} {
		if _, err := read("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

// Tables are readable in all forms that spreadsheets write.
func TestTablesOfSpreadsheets(t *testing.T) {
	plain := "job_id,user,gpu_num,submit_time,duration\n1,bob,2,2024-01-01 00:00:00,3600\n"
	want, err := read("f", strings.NewReader(plain))
	if err != nil || len(want.Jobs) != 1 {
		t.Fatal(want, err)
	}
	for name, text := range map[string]string{
		"byte order mark":        "\ufeff" + plain,
		"Windows line ends":      strings.ReplaceAll(plain, "\n", "\r\n"),
		"semicolons":             strings.ReplaceAll(plain, ",", ";"),
		"spaces":                 strings.ReplaceAll(plain, ",", " , "),
		"capitals":               strings.Replace(plain, "job_id,user,gpu_num", "Job_ID,User,GPU_num", 1),
		"ISO 8601 times":         strings.Replace(plain, " 00:00:00", "T00:00:00Z", 1),
		"quotes after the mark":  "\ufeff" + strings.Replace(plain, "job_id", `"job_id"`, 1),
		"tabs":                   strings.ReplaceAll(plain, ",", "\t"),
		"bars":                   strings.ReplaceAll(plain, ",", "|"),
		"tabs and quotes":        strings.ReplaceAll(strings.ReplaceAll(plain, "bob", `"bob"`), ",", "\t"),
		"bars and quotes":        `"` + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(plain), ",", `"|"`), "\n", "\"\n\"") + "\"\n",
		"a separator at the end": strings.ReplaceAll(plain, "\n", ",\n"),
		"Excel's first line":     "sep=;\n" + strings.ReplaceAll(plain, ",", ";"),
		"comments":               "# from the log\n\n" + plain + "# end\n",
		"empty rows":             plain + ",,,,\n\n",
		"packed":                 packed(t, "\ufeff"+plain),
		"all of it, and a blank": "\ufeff" + strings.ReplaceAll(strings.ReplaceAll(plain, ",", "; "), "\n", "\r\n") + "\r\n",
	} {
		got, err := read("f", strings.NewReader(text))
		if d := cmp.Diff(want, got, played...); err != nil || d != "" {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFit(t *testing.T) {
	tr, err := read("f", strings.NewReader("job_id,num_gpus,submit_time,duration,model\n0,1,5,10,vgg19\n1,9,6,10,vgg19\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Fit(2, 4); err == nil || err.Error() != `f:3: job "1" needs 9 GPUs, the cluster has 8` {
		t.Errorf("Sia: %v", err)
	}
	if tr, err = read("f", strings.NewReader(philly)); err != nil {
		t.Fatal(err)
	}
	if err := tr.Fit(1, 1); err != nil || len(tr.Jobs) != 1 || tr.Skipped()["larger than the cluster"] != 1 {
		t.Errorf("Philly: %v, %+v", err, tr)
	}
	if tr.Jobs[0].Line != 8 {
		t.Errorf("the job ends on line %d, want 8", tr.Jobs[0].Line)
	}
}

// TestGenerators: the same seed gives the same workload, and it has the properties that it should
// have.
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

// FuzzRead: any trace that can be read can be played. Each table in testdata is a seed.
func FuzzRead(f *testing.F) {
	f.Add(philly)
	f.Add(openbDefaultSample)
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		f.Fatal("no tables", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, story := range strings.Split(string(text), "read\n")[1:] {
			table, _, _ := strings.Cut(story, "----\n")
			f.Add(table)
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		tr, err := read("f", strings.NewReader(s))
		if err != nil {
			return
		}
		for _, j := range tr.Jobs {
			gpus := 0
			for _, g := range j.TaskGroups() {
				if g.Members < 1 || g.GPUs < 1 {
					t.Errorf("group %v of job %+v", g, j)
				}
				gpus += g.Members * g.GPUs
			}
			if j.ID == "" || j.GPUs < 1 || gpus != j.GPUs || !(j.WorkS() >= 0) || math.IsInf(j.WorkS(), 0) || !(j.SubmitS >= 0) || j.EstimateS < 0 || j.DeadlineS < 0 ||
				j.Class.Index() < 0 || j.LeastMembers > 0 && (j.Groups != nil || j.LeastMembers > j.GPUs/j.MemberGPUs) {
				t.Errorf("job %+v", j)
			}
		}
		if tr = tr.NoWider(8); tr.Fit(4, 8) == nil {
			for _, j := range tr.Jobs {
				for _, g := range j.TaskGroups() {
					if g.GPUs > 8 {
						t.Errorf("job %+v is wider than a node", j)
					}
				}
			}
		}
	})
}

// At the trace's number of members, a gang that Elastic makes elastic has the same GPU time as
// before.
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
