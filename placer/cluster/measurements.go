// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Measurements returns the raw measurements that the nodes publish. known maps the ids of all GPUs,
// measured or not, to their models. Measurements of a GPU count only if the node that owns the GPU
// publishes them (see owner.go). Measurements leaves out unreadable attributes and impossible
// values, and names them in the error.
func (s *State) Measurements() (samples []profile.Sample, known map[string]string, err error) {
	known = map[string]string{}
	var problems []error
	for _, n := range s.GPUNodes() {
		for _, d := range GPUDevices(n) {
			own := map[string]bool{}
			for _, in := range d.Instances {
				gpu := attr.GPUOf(in.ID)
				known[gpu], own[gpu] = attr.ModelOf(d.Type, d.Name), true
			}
			ms, err := attr.ParseMeasurements(TextOf(d, attr.Raw))
			if err != nil {
				problems = append(problems, fmt.Errorf("node %q: attribute %s: %w", n.Name, attr.Raw, err))
				continue
			}
			others := len(ms)
			ms = slices.DeleteFunc(ms, func(m attr.Measurement) bool { return !own[m.GPU] })
			others -= len(ms)
			if others > 0 && d.Type != attr.SharedType { // each shared GPU has its own group
				problems = append(problems, fmt.Errorf("node %q: left out %d measurements of GPUs of model %q that the node does not have", n.Name, others, d.Name))
			}
			rates, err := attr.ParseMeasurements(TextOf(d, attr.Rates))
			if err != nil {
				problems = append(problems, fmt.Errorf("node %q: attribute %s: %w", n.Name, attr.Rates, err))
			}
			samples = append(samples, withRates(profile.SamplesOf(attr.ModelOf(d.Type, d.Name), ms), rates)...)
		}
	}
	samples, bad := profile.Consistent(samples)
	for _, text := range bad {
		problems = append(problems, errors.New(text))
	}
	return samples, known, atMost(maxWarnings, problems)
}

// withRates adds the measured rates that a device group publishes to the group's samples.
func withRates(samples []profile.Sample, rates []attr.Measurement) []profile.Sample {
	of := map[string]attr.Measurement{}
	for _, m := range rates {
		of[m.GPU] = m
	}
	for i := range samples {
		samples[i].Rate = of[samples[i].GPU].Times[samples[i].App]
	}
	return samples
}

// atMost joins the first n errors into one.
func atMost(n int, errs []error) error {
	more := len(errs) - n
	if more > 0 {
		errs = append(errs[:n], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// MergeSamples combines imported with published measurements. An imported measurement replaces the
// published measurement of the same GPU and application. If the imported measurement has no rate,
// the published rate stays. known maps the ids of the cluster's GPUs to their models, which
// override the models in the samples.
func MergeSamples(published, imported []profile.Sample, known map[string]string) []profile.Sample {
	type gpuApp struct{ gpu, app string }
	over := map[gpuApp]bool{}
	for _, s := range imported {
		over[gpuApp{s.GPU, string(s.App)}] = true
	}
	rates := map[gpuApp]float64{}
	out := slices.DeleteFunc(slices.Clone(published), func(s profile.Sample) bool {
		k := gpuApp{s.GPU, string(s.App)}
		if over[k] {
			rates[k] = s.Rate
		}
		return over[k]
	})
	for _, s := range imported {
		s.Rate = cmp.Or(s.Rate, rates[gpuApp{s.GPU, string(s.App)}])
		if model, ok := known[s.GPU]; ok {
			s.Model = model
		}
		out = append(out, s)
	}
	return out
}
