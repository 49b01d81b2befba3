// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// rating is what the plugin knows about the speed of this node's GPUs.
type rating struct {
	reference string
	version   int                                       // version of the profile; 0 without one
	entries   map[string]map[pal.AppClass]profile.Entry // profile entries by GPU
}

// rate scores the devices by the profile. Without a profile, rate scores the devices against the
// median of this node's GPUs with the same key and model.
func rate(devices []gpu.Device, p *profile.Profile, prev *profile.Profile) (rating, *profile.Profile, error) {
	r := rating{reference: attr.ReferenceNone, entries: map[string]map[pal.AppClass]profile.Entry{}}
	var samples []profile.Sample
	for _, d := range devices {
		if len(d.Times) > 0 {
			samples = append(samples, profile.SamplesOf(d.Model, []attr.Measurement{measurementOf(d)})...)
		}
	}
	var err error
	switch {
	case p != nil:
		r.reference, r.version = attr.ReferenceProfile, p.Version
	case len(samples) > 0:
		if p, err = profile.Build(samples, profile.DefaultOptions(), prev); err != nil {
			return r, prev, fmt.Errorf("calibrating this node's GPUs: %w", err)
		}
		r.reference, prev = attr.ReferenceNode, p
	default:
		return r, prev, nil
	}
	for _, d := range devices {
		r.entries[d.ID] = entriesOf(d, p)
	}
	return r, prev, nil
}

// measurementOf returns a device's measured times.
func measurementOf(d gpu.Device) attr.Measurement {
	return attr.Measurement{GPU: d.ID, Key: d.Key, Times: d.Times}
}

// entriesOf returns a GPU's entries in the profile. A measured time that the profile can rate
// replaces the entry of the profile, because the measured time is newer.
func entriesOf(d gpu.Device, p *profile.Profile) map[pal.AppClass]profile.Entry {
	scored := p.Score(d.Model, measurementOf(d))
	out := make(map[pal.AppClass]profile.Entry, pal.NumClasses)
	for _, c := range pal.AppClasses() {
		if e, ok := scored[c]; ok && !e.Unmeasured {
			out[c] = e
			continue
		}
		out[c], _ = p.Lookup(d.ID, c)
	}
	return out
}

// class returns the variability class of a GPU. An unmeasured or degraded GPU is in the last class,
// which is the slowest.
func (r rating) class(id string, c pal.AppClass, degraded bool) int {
	e, ok := r.entries[id][c]
	if !ok || e.Unmeasured || degraded {
		return profile.MaxClass
	}
	return e.Class
}

// scores returns the PM scores in the published form.
func (r rating) scores(ids []string) []attr.Measurement {
	var out []attr.Measurement
	for _, id := range ids {
		m := attr.Measurement{GPU: id, Times: map[pal.AppClass]float64{}}
		for c, e := range r.entries[id] {
			if !e.Unmeasured {
				m.Times[c] = float64(e.Score)
			}
		}
		if len(m.Times) > 0 {
			out = append(out, m)
		}
	}
	return out
}
