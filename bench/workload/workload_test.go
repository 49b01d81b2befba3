// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package workload

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// The column duration is a number of iterations, not a time.
func TestReadSia(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.csv")
	read := func(rows string) (trace.Trace, error) {
		if err := os.WriteFile(path, []byte("job_id,num_gpus,submit_time,duration,model\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadSia(path)
	}
	got, err := read("1,4,10,4000.0,resnet50\n2,1,10,10,vgg19\n")
	if err != nil || len(got.Jobs) != 2 {
		t.Fatal(got, err)
	}
	if j := got.Jobs[0]; j.WorkS() != 701.6171747105373 || j.Name != "resnet50" || j.Class != pal.ClassA || j.GPUs != 4 || j.SubmitS != 10 || j.Line != 2 {
		t.Errorf("%+v", j)
	}
	for rows, want := range map[string]string{
		"1,4,10,4000,gpt9\n":                   `w.csv:2: model "gpt9" is unknown`,
		"1,4,10,4000,vgg19\n2,4,9,1,vgg19\n":   "w.csv:3: the job was submitted before",
		"1,0,10,4000,vgg19\n":                  "w.csv:2: [1 0 10 4000 vgg19] has no GPU",
		"1,1,10,+Inf,vgg19\n":                  "a time that is not a number",
		"1,1,10,NaN,vgg19\n":                   "a time that is not a number",
		"1,1,10,vgg19\n":                       "wrong number of fields",
		"1,one,10,4000,vgg19\n":                `w.csv:2: strconv.Atoi: parsing "one"`,
		"1,1,10,4000,vgg19\n\"2,1,1,1,vgg19\n": "w.csv: ",
	} {
		if _, err := read(rows); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", rows, err, want)
		}
	}
}

// The same seed generates the same workload.
func TestMixed(t *testing.T) {
	models := []string{"V100", "K80"}
	apps := []App{{"lm", pal.ClassB, pal.Speeds{"V100": 1, "K80": 0.25}}, {"a3c", pal.ClassD, pal.Speeds{"V100": 1, "K80": 0.5}}}
	shape := trace.Shape{Jobs: 50, MaxGPUs: 16}
	a, b := Mixed(1, shape, models, apps), Mixed(1, shape, models, apps)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a.Jobs, Mixed(2, shape, models, apps).Jobs) {
		t.Error("the workload does not depend on the seed alone")
	}
}
