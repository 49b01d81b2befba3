// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/classify"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Measurements are the raw measurements that the nodes publish and the GPUs
// that exist, id to model, measured or not. A node speaks for its own GPUs alone
// (see owner.go). A node whose attribute cannot be read, and a GPU of which it says
// what cannot be, is left out and named in the error.
func (s *State) Measurements() (samples []profile.Sample, known map[string]string, err error) {
	known = map[string]string{}
	var problems []error
	for _, n := range s.gpuNodes() {
		for _, d := range GPUDevices(n) {
			own := map[string]bool{}
			for _, in := range d.Instances {
				known[in.ID], own[in.ID] = d.Name, true
			}
			ms, err := attr.ParseMeasurements(TextOf(d, attr.Raw))
			if err != nil {
				problems = append(problems, fmt.Errorf("node %q: attribute %s: %w", n.Name, attr.Raw, err))
				continue
			}
			others := len(ms)
			ms = slices.DeleteFunc(ms, func(m attr.Measurement) bool { return !own[m.GPU] })
			if others -= len(ms); others > 0 {
				problems = append(problems, fmt.Errorf("node %q: %d measurements of GPUs of model %q that it does not have are left out", n.Name, others, d.Name))
			}
			samples = append(samples, profile.SamplesOf(d.Name, ms)...)
		}
	}
	samples, bad := profile.Consistent(samples)
	for _, text := range bad {
		problems = append(problems, errors.New(text))
	}
	return samples, known, atMost(maxWarnings, problems)
}

// atMost is so many errors as one.
func atMost(n int, errs []error) error {
	if more := len(errs) - n; more > 0 {
		errs = append(errs[:n], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// MergeSamples puts imported measurements over published ones: for a GPU and
// application that was imported, what its node publishes does not count. known
// are the cluster's GPUs, id to model; it completes and overrules the model of
// a sample.
func MergeSamples(published, imported []profile.Sample, known map[string]string) []profile.Sample {
	type gpuApp struct{ gpu, app string }
	over := map[gpuApp]bool{}
	for _, s := range imported {
		over[gpuApp{s.GPU, string(s.App)}] = true
	}
	out := slices.DeleteFunc(slices.Clone(published), func(s profile.Sample) bool { return over[gpuApp{s.GPU, string(s.App)}] })
	for _, s := range imported {
		if model, ok := known[s.GPU]; ok {
			s.Model = model
		}
		out = append(out, s)
	}
	return out
}

// JobGPUs are the GPUs of a job's running allocations, by node id; ids sorted.
func (c *Client) JobGPUs(ctx context.Context, k JobKey) (map[string][]string, error) {
	as, err := c.JobAllocs(ctx, k)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, a := range as {
		if a.Client != api.AllocClientStatusRunning {
			continue
		}
		var p allocPayload // the list of one job's allocations tells no resources
		if _, err := c.api.Raw().Query("/v1/allocation/"+url.PathEscape(a.ID), &p, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("reading allocation %q: %w", a.ID, err)
		}
		if gpus := p.alloc().GPUs; len(gpus) > 0 {
			out[p.NodeID] = append(out[p.NodeID], gpus...)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out, nil
}

// GPUReading is what the device plugin's statistics said of a GPU at a time.
type GPUReading struct {
	GPU string
	At  time.Time
	classify.Reading
}

// GPUReadings are the last statistics of these GPUs of a node, in the order of
// the ids. A GPU without statistics is left out.
func (c *Client) GPUReadings(ctx context.Context, node string, gpus []string) ([]GPUReading, error) {
	stats, err := c.api.Nodes().Stats(node, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("reading the statistics of node %q: %w", node, Denied(err, ReadNodes))
	}
	var out []GPUReading
	for _, id := range gpus {
		for _, g := range stats.DeviceStats {
			if g == nil {
				continue
			}
			if s := g.InstanceStats[id]; s != nil && s.Stats != nil {
				out = append(out, GPUReading{id, s.Timestamp, readingOf(s.Stats.Attributes)})
			}
		}
	}
	return out, nil
}

// readingOf reads the plugin's statistics by name; a name that is missing, or
// "N/A", is not known.
func readingOf(attributes map[string]*api.StatValue) classify.Reading {
	percent := func(name string) *float64 { return scaled(attributes[name], 100) }
	r := classify.Reading{
		Utilisation: percent("GPU utilization"),
		PowerCap:    percent("Power cap time"),
		Compute:     percent("Tensor active"),
		Memory:      percent("DRAM active"),
	}
	if v := attributes["Power usage"]; v != nil && v.IntDenominatorVal != nil && *v.IntDenominatorVal > 0 {
		r.Power = scaled(v, float64(*v.IntDenominatorVal))
	}
	return r
}

// mostReading bounds a share: power may be somewhat above its limit, and nothing is
// twice what is possible.
const mostReading = 2

// scaled is a statistic's number over the scale; nil where it has none, or none
// that can be a share.
func scaled(v *api.StatValue, scale float64) *float64 {
	var x float64
	switch {
	case v == nil:
		return nil
	case v.FloatNumeratorVal != nil:
		x = *v.FloatNumeratorVal
	case v.IntNumeratorVal != nil:
		x = float64(*v.IntNumeratorVal)
	default:
		return nil
	}
	if x /= scale; !(x >= 0 && x <= mostReading) {
		return nil
	}
	return &x
}
