// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// played ignores the line numbers of jobs in the file.
var played = []cmp.Option{cmpopts.IgnoreFields(Job{}, "Line"), cmpopts.IgnoreFields(Trace{}, "LeftOut"), cmpopts.EquateEmpty()}

func TestErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":              "f:1: the file is empty",
		"# nothing\n\n": "f:3: the file is empty",
		"# by hand\n\njob_id,user,gpus,submit_time,duration\n# first\n1,u,1,2020-04-01 00:00:00,10\n2,u,1,yesterday,10\n": `f:6: column "submit_time"`,
		"job_id,gpus,submit_time,duration,model\n0,1.5,5,10,vgg19\n":                                                      `f:2: column "gpus"`,
		"job_id,gpus,submit_time,duration,model\n0,1,+Inf,10,vgg19\n":                                                     `f:2: column "submit_time": +Inf is not a finite number`,
		"job_id,gpus,submit_time,duration,model\n0,1\n":                                                                   "f:2: the row has 2 fields, but the header has 5",
		"job_id,gpus,submit_time,duration,model\n0,1,5,10,\"vgg19\n":                                                      `f:2: extraneous or missing " in quoted-field`,
		"job_id,gpus,start_time,submit_time,duration\np,1,-2,5,1\n":                                                       `f:2: column "start_time": -2 is less than 0`,
		"\x1f\x8bno gzip at all": `reading trace "f": unpack`,
	} {
		if _, err := Read("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

// A binary file is no reason for an error of several pages.
func TestUnknownFileShown(t *testing.T) {
	for name, text := range map[string]string{"one column": "\x01a", "columns": "\x01a,", "no header": "71,"} {
		if _, err := Read("f", strings.NewReader(strings.Repeat(text, 10_000))); err == nil || len(err.Error()) > 4_000 {
			t.Errorf("%s: got %.5000v", name, err)
		}
	}
}

// Tables are readable in all forms that spreadsheets write.
func TestTablesOfSpreadsheets(t *testing.T) {
	plain := "job_id,user,gpus,submit_time,duration\n1,bob,2,2024-01-01 00:00:00,3600\n"
	want, err := Read("f", strings.NewReader(plain))
	if err != nil || len(want.Jobs) != 1 {
		t.Fatal(want, err)
	}
	for name, text := range map[string]string{
		"byte order mark":        "\ufeff" + plain,
		"Windows line ends":      strings.ReplaceAll(plain, "\n", "\r\n"),
		"semicolons":             strings.ReplaceAll(plain, ",", ";"),
		"spaces":                 strings.ReplaceAll(plain, ",", " , "),
		"capitals":               strings.Replace(plain, "job_id,user,gpus", "Job_ID,User,GPUs", 1),
		"ISO 8601 times":         strings.Replace(plain, " 00:00:00", "T00:00:00Z", 1),
		"quotes after the mark":  "\ufeff" + strings.Replace(plain, "job_id", `"job_id"`, 1),
		"tabs":                   strings.ReplaceAll(plain, ",", "\t"),
		"bars":                   strings.ReplaceAll(plain, ",", "|"),
		"tabs and quotes":        strings.ReplaceAll(strings.ReplaceAll(plain, "bob", `"bob"`), ",", "\t"),
		"bars and quotes":        `"` + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(plain), ",", `"|"`), "\n", "\"\n\"") + "\"\n",
		"a separator at the end": strings.ReplaceAll(plain, "\n", ",\n"),
		"comments":               "# from the log\n\n" + plain + "# end\n",
		"empty rows":             plain + ",,,,\n\n",
		"packed":                 packed(t, "\ufeff"+plain),
		"all of it, and a blank": "\ufeff" + strings.ReplaceAll(strings.ReplaceAll(plain, ",", "; "), "\n", "\r\n") + "\r\n",
	} {
		got, err := Read("f", strings.NewReader(text))
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
	tr, err := Read("f", strings.NewReader("job_id,gpus,submit_time,duration\n0,1,5,10\n1,9,6,10\n"))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Fit(2, 4); len(tr.Jobs) != 1 || tr.Skipped()["larger than the cluster"] != 1 {
		t.Errorf("%+v", tr)
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
		tr, err := Read("f", strings.NewReader(s))
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
			if j.ID == "" || j.GPUs < 1 || gpus != j.GPUs || !(j.WorkS() >= 0) || math.IsInf(j.WorkS(), 0) || !(j.SubmitS >= 0) || j.EstimateS < 0 ||
				j.Class.Index() < 0 || j.LeastMembers > 0 && (j.Groups != nil || j.LeastMembers > j.GPUs/j.MemberGPUs) {
				t.Errorf("job %+v", j)
			}
		}
		tr = tr.NoWider(8)
		tr.Fit(4, 8)
		for _, j := range tr.Jobs {
			for _, g := range j.TaskGroups() {
				if g.GPUs > 8 {
					t.Errorf("job %+v is wider than a node", j)
				}
			}
		}
	})
}
