// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// readImported reads imported measurements. If there are new imported measurements, the next cycle
// rebuilds the profile. readImported leaves out measurements that cannot be parsed, because bad
// measurements must not stop the queue.
func (p *core) readImported(ctx context.Context) error {
	samples, err := store.In(p.nomad).MeasurementsBut("").Read(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case store.Unreadable(err):
		p.log.Warn("cannot read some imported measurements; leaving them out", "error", err)
	case err != nil:
		p.log.Warn("cannot read the imported measurements; using those that were read last", "error", err)
		return nil
	}
	if !slices.Equal(samples, p.m.Imported) {
		p.log.Info("imported measurements", "samples", len(samples))
		p.m.Imported, p.m.BuiltFrom = samples, math.MaxUint64
	}
	return nil
}

// Calibration contains the data from which the cluster's GPUs can be calibrated now.
type Calibration struct {
	// Published contains the measurements that the nodes publish. Imported contains the
	// measurements that `profile import` stored.
	Published, Imported []profile.Sample
	// Known maps the id of each existing GPU to its model.
	Known map[string]string
	// Profile is the current profile, or nil if there is none.
	Profile *profile.Profile
}

// ReadCalibration reads the data for a calibration from Nomad. If but is not "", ReadCalibration
// leaves out the measurements that were imported under this source name. ReadCalibration also
// leaves out data that cannot be parsed, and names this data in problem.
func ReadCalibration(ctx context.Context, c *nomad.Client, but string) (cal *Calibration, problem, err error) {
	nodes, err := c.ReadNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	cal = &Calibration{}
	cal.Published, cal.Known, problem = nodes.Measurements()
	var odd, worse error
	cal.Imported, odd = store.In(c).MeasurementsBut(but).Read(ctx)
	cal.Profile, worse = store.In(c).Profile().Read(ctx)
	for _, err := range []error{odd, worse} {
		if err != nil && !store.Unreadable(err) {
			return nil, nil, err
		}
	}
	return cal, errors.Join(problem, odd, worse), nil
}

// Build builds a profile. Build uses samples as additional imported measurements.
func (cal *Calibration) Build(o profile.Options, samples ...profile.Sample) (*profile.Profile, error) {
	imported := append(slices.Clone(cal.Imported), samples...)
	o.Known = cal.Known
	merged := cluster.MergeSamples(cal.Published, imported, cal.Known)
	if len(merged) == 0 {
		return nil, errors.New("nothing is measured, because no node publishes measurements, and none were imported")
	}
	p, err := profile.Build(merged, o, cal.Profile)
	if err != nil {
		return nil, fmt.Errorf("calibrating: %w", err)
	}
	return p, nil
}
