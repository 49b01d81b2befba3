// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
)

func TestImport(t *testing.T) {
	full := []Sample{
		{GPU: "GPU-1", Model: "V100", Key: "k", App: pal.ClassA, Time: 2.5},
		{GPU: "GPU-2", Model: "V100", Key: "k", App: "resnet50", Time: 3, Noise: 0.01},
	}
	for _, tc := range []struct {
		name, data string
		im         Import
		want       []Sample
	}{
		{"CSV", "app,time,noise,note,gpu,model,key\na,2.5,,x,GPU-1,V100,k\nresnet50,3,0.01,,GPU-2,V100,k\n", Import{}, full},
		{"the artifact's CSV", "row,uuid,perf,perf_norm\n0,GPU-1,2.5,1\n1,GPU-1,2.6,1\n", Import{Model: "V100", App: "b"}, []Sample{
			{GPU: "GPU-1", Model: "V100", App: pal.ClassB, Time: 2.5}, {GPU: "GPU-1", Model: "V100", App: pal.ClassB, Time: 2.6}}},
		{"models are known", "gpu, app, time\nGPU-1, A, 2.5\n", Import{Models: map[string]string{"GPU-1": "H200"}}, []Sample{
			{GPU: "GPU-1", Model: "H200", App: pal.ClassA, Time: 2.5}}},
		{"JSON list", ` [{"gpu":"GPU-1","app":"A","time":2.5,"key":"k","model":"V100"},{"gpu":"GPU-2","app":"resnet50","time":3,"noise":0.01,"key":"k","model":"V100"}]`,
			Import{}, full},
		{"report", `{"format":"nomad-pal/measurement/1","results":[{"gpu":"GPU-1","model":"V100","key":"k","apps":[{"app":"A","ms":80,"ci":0.00196}]}]}`,
			Import{}, []Sample{{GPU: "GPU-1", Model: "V100", Key: "k", App: pal.ClassA, Time: 80, Noise: 0.001}}},
	} {
		got, err := tc.im.Read(tc.name, []byte(tc.data))
		if diff := cmp.Diff(tc.want, got, approx); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", tc.name, err, diff)
		}
	}
}

func TestImportErrors(t *testing.T) {
	known := Import{Models: map[string]string{"GPU-1": "H200"}}
	for _, tc := range []struct {
		data string
		im   Import
		want string
	}{
		{"", Import{}, `measurements "f.csv": there are none in it`},
		{"gpu,app,time\n", Import{}, "there are none in it"},
		{"gpu,app\nx,A\n", Import{}, `line 1: the header "gpu,app" has no columns gpu and time`},
		{"gpu,app,time\nGPU-1,A,2\nGPU-2,A,2\n", known, `line 3: GPU "GPU-2" is unknown`},
		{"gpu,app,time,model\nGPU-1,A,2,V100\n", known, `line 2: GPU "GPU-1" is a "V100" here, but is known as a "H200"`},
		{"gpu,app,time\nGPU-1,A,-2\n", known, `line 2: GPU "GPU-1", application "A": time -2 is not a positive number`},
		{"gpu,app,time\nGPU-1,A,fast\n", known, `line 2: time "fast" is not a number`},
		{"gpu,app,time,noise\nGPU-1,A,2,x\n", known, `line 2: noise "x" is not a number`},
		{"gpu,app,time\nGPU-1,A\n", known, "record on line 2: wrong number of fields"},
		{"gpu,app,time\nGPU-1,A,2\n", Import{}, `line 2: GPU "GPU-1", application "A": no model`},
		{"gpu,time\nGPU-1,2\n", known, `line 2: GPU "GPU-1", application "": application name "" is empty`},
		{`[{"gpu":"GPU-1","app":"A","time":0}]`, known, `entry 1: GPU "GPU-1", application "A": time 0 is not a positive number`},
		{`{"format":"x"}`, known, `format is "x", want "nomad-pal/measurement/1"`},
		{`{"format":"nomad-pal/measurement/1","results":[{"gpu":"GPU-2","apps":[{"app":"A","ms":1}]}]}`, known, `result 1: GPU "GPU-2" is unknown`},
	} {
		_, err := tc.im.Read("f.csv", []byte(tc.data))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v, want %q", tc.data, err, tc.want)
		}
	}
}
