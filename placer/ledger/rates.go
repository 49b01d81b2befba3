// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// ModelRate is how fast GPUs of a model are: the median of their measured rates, in the unit of
// [attr.RateUnit], and how many GPUs told theirs.
type ModelRate struct {
	Rate float64
	GPUs int
}

// sameRates reports whether two forms of a node tell the same rates.
func sameRates(a, b *api.Node) bool {
	return slices.EqualFunc(cluster.GPUDevices(a), cluster.GPUDevices(b), func(x, y *api.NodeDeviceResource) bool {
		return cluster.TextOf(x, attr.Rates) == cluster.TextOf(y, attr.Rates)
	})
}

// Rates are those of the models that told some, by name of the device group and application class.
// Parts of shared GPUs are left out: how fast one is depends on the others.
func (v *Ledger) Rates() map[string]map[pal.AppClass]ModelRate {
	if v.rates == nil {
		v.rates = v.readRates()
	}
	return v.rates
}

func (v *Ledger) readRates() map[string]map[pal.AppClass]ModelRate {
	told := map[string]map[pal.AppClass][]float64{}
	for i, d := range v.Devices {
		text := cluster.TextOf(d, attr.Rates)
		if text == "" || d.Type == attr.SharedType {
			continue
		}
		ms, err := attr.ParseMeasurements(text)
		if err != nil {
			continue // those GPUs count as not measured
		}
		_, model := v.Cluster.Group(i)
		if told[model] == nil {
			told[model] = map[pal.AppClass][]float64{}
		}
		own := cluster.InstanceIDs(d)
		for _, m := range ms {
			for class, rate := range m.Times {
				if class.Index() >= 0 && slices.Contains(own, m.GPU) {
					told[model][class] = append(told[model][class], rate)
				}
			}
		}
	}
	rates := map[string]map[pal.AppClass]ModelRate{}
	for model, of := range told {
		rates[model] = map[pal.AppClass]ModelRate{}
		for class, all := range of {
			rates[model][class] = ModelRate{profile.Median(all), len(all)}
		}
	}
	return rates
}
