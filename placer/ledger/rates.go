// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// ModelSpeed describes how fast the GPUs of a model run an application class.
type ModelSpeed struct {
	// Device is the name of the device group.
	Device string       `json:"device"`
	Class  pal.AppClass `json:"app_class"`
	// Rate is the median of the rates measured on GPUs of the model. Unit is its unit. GPUs is the
	// number of measured GPUs.
	Rate float64 `json:"rate"`
	Unit string  `json:"unit"`
	GPUs int     `json:"gpus"`
	// Speed is Rate divided by the rate of the cluster's fastest model. If Speed is 0.5, work takes
	// twice as long as on the fastest model.
	Speed float64 `json:"speed"`
}

// ModelSpeeds returns the speeds of the cluster's models, in the order of the cluster. ModelSpeeds
// omits models that the profile does not contain, and parts of shared GPUs, whose speed depends on
// the other jobs on the GPU.
func (v *Ledger) ModelSpeeds() []ModelSpeed {
	if v.speeds == nil {
		v.speeds = v.readSpeeds()
	}
	return v.speeds
}

func (v *Ledger) readSpeeds() []ModelSpeed {
	var seen []string
	out := []ModelSpeed{}
	best := map[pal.AppClass]float64{}
	for i, d := range v.Devices {
		_, model := v.Cluster.Group(i)
		if !slices.Contains(seen, model) && d.Type != attr.SharedType {
			seen = append(seen, model)
			for _, class := range pal.AppClasses() {
				if r, ok := v.rate(d.Name, class); ok {
					out = append(out, ModelSpeed{model, class, r.Rate, attr.RateUnit(class), r.GPUs, 0})
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
