// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
)

// rated are samples of one model, one for each GPU, each with a rate (0: none).
func rated(model string, rates ...float64) (out []Sample) {
	for i, r := range rates {
		out = append(out, Sample{GPU: fmt.Sprint(model, i), Model: model, App: pal.ClassA, Time: 10, Rate: r})
	}
	return out
}

func build(t *testing.T, prev *Profile, samples ...Sample) *Profile {
	t.Helper()
	p, err := Build(samples, DefaultOptions(), prev)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Rates, again.Rates); diff != "" {
		t.Error("read again:", diff)
	}
	return p
}

// A model's rate is that of its median GPU, and stays known while its GPUs are away.
func TestRates(t *testing.T) {
	first := build(t, nil, append(rated("A100", 100, 110, 400, 0), rated("T4", 20)...)...)
	want := []Rate{{"A100", pal.ClassA, 110, 3}, {"T4", pal.ClassA, 20, 1}}
	if diff := cmp.Diff(want, first.Rates); diff != "" {
		t.Error(diff)
	}
	away := build(t, first, rated("A100", 100, 110)...)
	want = []Rate{{"A100", pal.ClassA, 105, 2}, {"T4", pal.ClassA, 20, 1}}
	if diff := cmp.Diff(want, away.Rates); diff != "" {
		t.Error("without T4s:", diff)
	}
	if same := build(t, away, rated("A100", 100, 110)...); same != away {
		t.Error("the same rates give another version")
	}
	if faster := build(t, away, rated("A100", 100, 120)...); faster.Version != away.Version+1 {
		t.Error("other rates give the same version")
	}
	if _, ok := first.Rate("A100", pal.ClassB); ok {
		t.Error("class B has a rate")
	}
	if got, want := first.Speeds(pal.ClassA)["T4"], 20.0/110; math.Abs(got-want) > 1e-9 {
		t.Errorf("speed of T4 is %v, want %v", got, want)
	}
}

// An exported profile includes the rates, and another cluster can import them.
func TestRatesMove(t *testing.T) {
	here := build(t, nil, append(rated("A100", 100, 100), rated("T4", 20, 20)...)...)
	there := build(t, nil, here.Samples()...)
	if diff := cmp.Diff(here.Rates, there.Rates); diff != "" {
		t.Error(diff)
	}
}

func TestRatesThatAreNone(t *testing.T) {
	for _, rate := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := Build(rated("A100", rate), DefaultOptions(), nil); err == nil || !strings.Contains(err.Error(), "rate") {
			t.Errorf("%v: %v", rate, err)
		}
	}
	for _, rates := range [][]Rate{{{"b", "A", 1, 1}, {"a", "A", 1, 1}}, {{"a", "A", 1, 1}, {"a", "A", 1, 1}}, {{"a", "A", 0, 1}}, {{"a", "A", 1, 0}}} {
		p := build(t, nil, rated("A100", 1)...)
		p.Rates = rates
		if _, err := Parse(p.Encode()); err == nil || !strings.Contains(err.Error(), "rate") {
			t.Errorf("%v: %v", rates, err)
		}
	}
}

// Models come and go, but the profile does not grow without limit.
func TestRatesOfManyModels(t *testing.T) {
	p := build(t, nil, rated("A100", 1)...)
	for i := range maxRates + 10 {
		p.Rates = append(p.Rates, Rate{fmt.Sprintf("B%05d", i), "A", 1, 1})
	}
	p = build(t, p, rated("A100", 2)...)
	if len(p.Rates) > maxRates {
		t.Errorf("%d rates", len(p.Rates))
	}
}
