// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// ModelSpeeds returns the speeds of the cluster's models, in the order of the cluster. ModelSpeeds
// omits models that the profile does not contain, and parts of shared GPUs, whose speed depends on
// the other jobs on the GPU.
func (v *Ledger) ModelSpeeds() []palapi.ModelSpeed {
	if v.speeds == nil {
		v.speeds = v.readSpeeds()
	}
	return v.speeds
}

func (v *Ledger) readSpeeds() []palapi.ModelSpeed {
	var seen []string
	out := []palapi.ModelSpeed{}
	best := map[pal.AppClass]float64{}
	for i, d := range v.Devices {
		_, model := v.Cluster.Group(i)
		if !slices.Contains(seen, model) && d.Type != attr.SharedType {
			seen = append(seen, model)
			for _, class := range pal.AppClasses() {
				if r, ok := v.rate(d.Name, class); ok {
					out = append(out, palapi.ModelSpeed{Device: model, Class: class, Rate: r.Rate, Unit: attr.RateUnit(class), GPUs: r.GPUs})
					best[class] = max(best[class], r.Rate)
				}
			}
		}
	}
	for i := range out {
		out[i].Speed = out[i].Rate / best[out[i].Class]
	}
	return out
}

func (v *Ledger) rate(model string, class pal.AppClass) (profile.Rate, bool) {
	if v.opts.Profile == nil {
		return profile.Rate{}, false
	}
	return v.opts.Profile.Rate(model, class)
}
