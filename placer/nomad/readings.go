// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/classify"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// JobGPUs returns the ids of the GPUs that a job's running allocations use. The keys are node ids,
// and each list is sorted.
func (c *Client) JobGPUs(ctx context.Context, k cluster.JobKey) (map[string][]string, error) {
	as, err := c.JobAllocs(ctx, k)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, a := range as {
		if a.Client != api.AllocClientStatusRunning {
			continue
		}
		var p cluster.AllocPayload // the list of a job's allocations has no resources
		if _, err := c.api.Raw().Query("/v1/allocation/"+url.PathEscape(a.ID), &p, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("reading allocation %q: %w", a.ID, err)
		}
		gpus := p.AsAlloc().GPUs
		if len(gpus) > 0 {
			out[p.NodeID] = append(out[p.NodeID], gpus...)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out, nil
}

// GPUReading contains the statistics that the device plugin read from a GPU, and the time of the
// reading.
type GPUReading struct {
	GPU string
	At  time.Time
	classify.Reading
}

// GPUReadings returns the last statistics of the given GPUs of a node, in the order of gpus.
// GPUReadings leaves out GPUs without statistics.
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
			s := g.InstanceStats[id]
			if s != nil && s.Stats != nil {
				out = append(out, GPUReading{id, s.Timestamp, readingOf(s.Stats.Attributes)})
			}
		}
	}
	return out, nil
}

// readingOf converts the plugin's statistics to a reading. readingOf finds the statistics by their
// names. A statistic that is missing or "N/A" counts as unknown.
func readingOf(attributes map[string]*api.StatValue) classify.Reading {
	percent := func(name string) *float64 { return scaled(attributes[name], 100) }
	r := classify.Reading{
		Utilization: percent(attr.StatUtilization),
		PowerCap:    percent("Power cap time"),
		Compute:     percent("Tensor active"),
		Memory:      percent("DRAM active"),
	}
	v := attributes[attr.StatPower]
	if v != nil && v.IntDenominatorVal != nil && *v.IntDenominatorVal > 0 {
		r.Power = scaled(v, float64(*v.IntDenominatorVal))
	}
	return r
}

// mostReading is the largest valid reading, as a fraction. Readings can exceed 1, because the power
// of a GPU can slightly exceed its limit.
const mostReading = 2

// scaled returns a statistic divided by scale. scaled returns nil if the statistic is missing or
// the result is not a valid reading.
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
	x /= scale
	if !(x >= 0 && x <= mostReading) {
		return nil
	}
	return &x
}
