// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

// cluster returns samples of n GPUs for four classes.
func cluster(n int) []Sample {
	rng := rand.New(rand.NewPCG(1, 0))
	var out []Sample
	for i := range n {
		for _, app := range pal.AppClasses() {
			out = append(out, Sample{GPU: fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i), Model: model, Key: "k", App: app,
				Time: 80 * (1 + 0.02*rng.NormFloat64()), Noise: 0.001})
		}
	}
	return out
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1000, 80_000} {
		samples := cluster(n)
		prev, err := Build(samples, DefaultOptions(), nil)
		if err != nil {
			b.Fatal(err)
		}
		for i := range samples {
			samples[i].Time *= 1.0001
		}
		b.Run(fmt.Sprintf("gpus=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := Build(samples, DefaultOptions(), prev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeAndParse(b *testing.B) {
	p, err := Build(cluster(80_000), DefaultOptions(), nil)
	if err != nil {
		b.Fatal(err)
	}
	shards, err := p.Shards(0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(shards)), "variables")
	for range b.N {
		if _, err := Parse(p.Encode()); err != nil {
			b.Fatal(err)
		}
	}
}
