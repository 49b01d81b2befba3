// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measured

import (
	"math"
	"testing"
)

// Whatever is imported is rows with sound numbers, or an error that names the source.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"gpu,app,time\nGPU-1,resnet50,1.5\n", "gpu,app,time,model,key,noise\na,b,1e308,c,d,NaN\n", "gpu,app,time\na,b,-1\n", "gpu,app,time\na,b,\n",
		`[{"gpu": "a", "app": "b", "time": 1}]`, `{"gpus": null}`, "[", "\xff", "gpu;app;time\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := Read("source", data, Defaults{})
		if err != nil {
			return
		}
		for _, r := range rows {
			if !(r.Time > 0) || math.IsInf(float64(r.Time), 0) || r.GPU == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}
