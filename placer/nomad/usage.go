// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/classify"
)

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
		sort.Strings(ids)
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
		return nil, fmt.Errorf("reading the statistics of node %q: %w", node, err)
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

// classesPath is where learned classes lie, one variable per job.
const classesPath = "nomad-pal/classes"

// Classified is a job's remembered class and what it was judged by.
type Classified struct {
	Job      JobKey
	Verdict  classify.Verdict
	Features classify.Features
}

// WriteClass remembers a job's application class, for its next runs and as part
// of the history that later jobs are judged by.
func (c *Client) WriteClass(ctx context.Context, k Classified) error {
	items := map[string]string{"namespace": k.Job.Namespace, "job": k.Job.ID, "class": string(k.Verdict.Class), "reason": k.Verdict.Reason,
		"readings": strconv.Itoa(k.Features.Readings)}
	for name, x := range featuresOf(&k.Features) {
		if !math.IsNaN(*x) {
			items[name] = strconv.FormatFloat(*x, 'g', 6, 64)
		}
	}
	return c.WriteVariable(ctx, classPath(k.Job), items)
}

// featuresOf are the numbers of the features by their names in a variable.
func featuresOf(f *classify.Features) map[string]*float64 {
	return map[string]*float64{"power_cap": &f.PowerCap, "power": &f.Power, "compute": &f.Compute, "memory": &f.Memory}
}

func classPath(k JobKey) string { return classesPath + "/" + k.Namespace + "/" + variablePart(k.ID) }

// ReadClass gives a job's remembered class; ok is false where there is none.
func (c *Client) ReadClass(ctx context.Context, k JobKey) (v Classified, ok bool, err error) {
	items, err := c.ReadVariable(ctx, classPath(k))
	if err != nil || items == nil {
		return v, false, err
	}
	v, err = parseClassified(items)
	return v, err == nil, err
}

// ReadClasses gives all remembered classes, by the paths of their variables.
// Those that cannot be understood are left out and named in the error.
func (c *Client) ReadClasses(ctx context.Context) ([]Classified, error) {
	vars, err := c.ListVariables(ctx, classesPath+"/")
	if err != nil {
		return nil, err
	}
	var out []Classified
	var bad []error
	for _, meta := range vars {
		items, err := c.ReadVariable(ctx, meta.Path)
		if err != nil {
			return nil, err
		}
		if items == nil {
			continue // gone meanwhile
		}
		v, err := parseClassified(items)
		if err != nil {
			bad = append(bad, fmt.Errorf("variable %q: %w", meta.Path, err))
			continue
		}
		out = append(out, v)
	}
	return out, errors.Join(bad...)
}

// History is what jobs are judged by.
func History(known []Classified) []classify.Features {
	out := make([]classify.Features, len(known))
	for i, k := range known {
		out[i] = k.Features
	}
	return out
}

func parseClassified(items map[string]string) (Classified, error) {
	class, err := pal.ParseAppClass(items["class"])
	if err != nil {
		return Classified{}, fmt.Errorf("the remembered class of job %q: %w", items["job"], err)
	}
	v := Classified{Job: JobKey{Namespace: items["namespace"], ID: items["job"]}, Verdict: classify.Verdict{Class: class, Reason: items["reason"]}}
	if v.Features.Readings, err = strconv.Atoi(items["readings"]); err != nil {
		return Classified{}, fmt.Errorf("the readings of job %q: %q is not a number", items["job"], items["readings"])
	}
	for name, to := range featuresOf(&v.Features) {
		*to = math.NaN()
		text, ok := items[name]
		if !ok {
			continue
		}
		if *to, err = strconv.ParseFloat(text, 64); err != nil {
			return Classified{}, fmt.Errorf("%s of job %q: %q is not a number", name, items["job"], text)
		}
	}
	return v, nil
}

// longestPart is the length from which an id is cut: a variable's path has 128
// characters at most.
const longestPart = 60

// variablePart makes a job id part of a variable's path, which holds letters,
// digits and few signs only. Different ids give different parts.
func variablePart(id string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || slices.Contains([]rune("-_"), r)
	}
	out := make([]byte, 0, len(id))
	for _, r := range id {
		if safe(r) {
			out = append(out, string(r)...)
			continue
		}
		out = append(out, fmt.Sprintf("~%x~", r)...)
	}
	if len(out) > longestPart {
		sum := sha256.Sum256([]byte(id))
		return fmt.Sprintf("%s~~%x", out[:longestPart-20], sum[:8])
	}
	return string(out)
}
