// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measured

import (
	"bytes"
	"math"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Any input gives rows with valid numbers, or an error that names the source. Rows survive being
// written and read again.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"gpu,app,time\nGPU-1,resnet50,1.5\n", "gpu,app,time,model,key,noise\na,b,1e308,c,d,NaN\n", "gpu,app,time\na,b,-1\n", "gpu,app,time\na,b,\n",
		`[{"gpu": "a", "app": "b", "time": 1}]`, `[{"gpu": "a", "app": "b", "time": 1, "model": " x "}]`, `[{"gpu": "#a", "app": "b", "time": 1}]`, `[{"gpu": "a", "app": "b", "time": 1, "model": "x\r\n"}]`,
		`[{"gpu": "a", "app": "b", "time": 1, "model": "x\r\ny"}]`, "gpu,app,time\n\"#a\",b,1\n", `{"gpus": null}`, "[", "\xff", "gpu;app;time\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := Read("source", data, "")
		if err != nil {
			return
		}
		var samples []profile.Sample
		for _, r := range rows {
			if !(r.Time > 0) || math.IsInf(float64(r.Time), 0) || r.GPU == "" {
				t.Errorf("%+v", r)
			}
			samples = append(samples, r.Sample)
		}
		var table bytes.Buffer
		if err := WriteCSV(&table, samples); err != nil {
			t.Fatal(err)
		}
		again, err := ReadCSV("table", &table, "")
		if err != nil && len(rows) > 0 || len(again) != len(rows) {
			t.Fatalf("%d rows of %d: %v", len(again), len(rows), err)
		}
		for i := range again {
			if again[i].Sample != samples[i] {
				t.Errorf("%+v was read again as %+v", samples[i], again[i].Sample)
			}
		}
	})
}
