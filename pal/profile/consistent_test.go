// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

func TestConsistent(t *testing.T) {
	good := []Sample{{GPU: "a", Model: "m", Key: "k", App: "A", Time: 1}, {GPU: "a", Model: "m", Key: "k", App: "A", Time: 1.1}, {GPU: "b", Model: "n", App: "A", Time: 1}, {GPU: "c", Model: "m", Key: "k", App: "A", Time: 1}}
	kept, problems := Consistent(append([]Sample{
		{GPU: "moved", Model: "m", Key: "k", App: "A", Time: 1}, {GPU: "moved", Model: "m", Key: "l", App: "A", Time: 1}, {GPU: "moved", Model: "m", Key: "k", App: "B", Time: 1},
		{GPU: "odd", Model: "m", App: "A", Time: 1}, {GPU: "odd", Model: "n", App: "B", Time: 1},
		{GPU: "zero", Model: "m", App: "A"}, {GPU: "tiny", Model: "m", Key: "k", App: "A", Time: 1e-9},
	}, good...))
	if diff := cmp.Diff(good, kept); diff != "" {
		t.Errorf("kept (-want +got)\n%s", diff)
	}
	want := []string{
		`GPU "moved": application "A" has the keys "k" and "l"`,
		`GPU "odd": it has two models, "m" and "n"`,
		`GPU "tiny": application "A": time 1e-09 is more than a factor of 1000 away from the median 1 of comparable times`,
		`GPU "zero": application "A": time 0 is not a positive number`,
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
}

// Build accepts the samples that Consistent keeps, and all samples if Consistent leaves none out.
func TestConsistentIsWhatBuildTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
		var samples []Sample
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			samples = append(samples, Sample{GPU: pick("gpu", "1", "2", "3"), Model: pick("model", "m", "m", "m", "n"), Key: pick("key", "k", "k", "k", "l"),
				App: "A", Time: rapid.SampledFrom([]float64{1, 2, 2, 0, 1500, 3e-4, 1e-9, 1e12}).Draw(t, "time")})
		}
		kept, problems := Consistent(samples)
		if _, err := Build(kept, DefaultOptions(), nil); err != nil {
			t.Fatalf("Build refuses what Consistent keeps: %v", err)
		}
		if _, err := Build(samples, DefaultOptions(), nil); (err == nil) != (len(problems) == 0) {
			t.Fatalf("Build returns %v, Consistent %q", err, problems)
		}
	})
}

// Absurd numbers from one node overflow no sum, and the other GPUs are still calibrated and
// stored.
func TestAbsurdNumbersAreLeftOut(t *testing.T) {
	var samples []Sample
	for i := range 8 {
		samples = append(samples, Sample{GPU: fmt.Sprint("good", i), Model: "m", App: "A", Time: 1 + float64(i)/100})
	}
	samples = append(samples,
		Sample{GPU: "huge1", Model: "n", App: "A", Time: 1e308}, Sample{GPU: "huge1", Model: "n", App: "A", Time: 1.7e308},
		Sample{GPU: "tiny", Model: "n", App: "A", Time: 1e-308}, Sample{GPU: "long", Model: "n", App: "A", Key: strings.Repeat("k", 1000), Time: 1},
		Sample{GPU: "edge1", Model: "o", App: "A", Time: attr.MaxValue}, Sample{GPU: "edge2", Model: "p", App: "A", Time: attr.MinValue})
	kept, problems := Consistent(samples)
	if len(kept) != 10 || len(problems) != 3 {
		t.Errorf("%d kept; %q", len(kept), problems)
	}
	p, err := Build(kept, DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	shards, err := p.Shards(60 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(shards); err != nil {
		t.Error(err)
	}
}

// If several times become implausible one after the other, each costs one pass over its own
// group, not over the cluster.
func TestLeaveOutFarOneByOne(t *testing.T) {
	samples := []Sample{{GPU: "good", Model: "m", App: "A", Time: 1}}
	for i := range 9 {
		samples = append(samples, Sample{GPU: fmt.Sprint(i), Model: "n", App: "A", Time: math.Pow(1001, float64(i-4))}, Sample{GPU: fmt.Sprint(i), Model: "m", App: "B", Time: 1})
	}
	kept, problems := Consistent(samples)
	if _, err := Build(kept, DefaultOptions(), nil); err != nil || len(kept) == 0 || kept[0].GPU != "good" {
		t.Errorf("%v: kept %v, problems %q", err, kept, problems)
	}
}
