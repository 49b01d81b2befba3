// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile_test

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Eight GPUs did the same work. Their times become PM scores (time over the
// median time) and variability classes.
func ExampleBuild() {
	var samples []profile.Sample
	for i, ms := range []float64{98, 99.5, 100, 100, 100, 102, 105, 260} {
		samples = append(samples, profile.Sample{
			GPU: fmt.Sprintf("GPU-%d", i), Model: "nvidia/gpu/H200", App: pal.ClassA, Time: ms,
		})
	}
	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
	if err != nil {
		panic(err)
	}
	for _, gpu := range p.GPUs {
		e, _ := p.Lookup(gpu.ID, pal.ClassA)
		fmt.Printf("%s: PM score %.3f, class %d, outlier %v\n", gpu.ID, e.Score, e.Class, e.Outlier)
	}
	// Output:
	// GPU-0: PM score 0.980, class 1, outlier false
	// GPU-1: PM score 0.995, class 2, outlier false
	// GPU-2: PM score 1.000, class 2, outlier false
	// GPU-3: PM score 1.000, class 2, outlier false
	// GPU-4: PM score 1.000, class 2, outlier false
	// GPU-5: PM score 1.020, class 3, outlier false
	// GPU-6: PM score 1.050, class 4, outlier false
	// GPU-7: PM score 2.600, class 5, outlier true
}
