// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Rate is how fast the GPUs of a model run an application: the median of their measured rates.
type Rate struct {
	Model string       `json:"model"`
	App   pal.AppClass `json:"app"`
	Rate  float64      `json:"rate"` // in the unit of [attr.RateUnit]
	GPUs  int          `json:"gpus"` // number of GPUs with a measured rate
}

func (r Rate) compare(o Rate) int {
	return cmp.Or(cmp.Compare(r.Model, o.Model), cmp.Compare(r.App, o.App))
}

// Rate returns the rate of a model for an application, if it is known.
func (p *Profile) Rate(model string, app pal.AppClass) (r Rate, ok bool) {
	i, ok := slices.BinarySearchFunc(p.Rates, Rate{Model: model, App: app}, Rate.compare)
	if !ok {
		return Rate{}, false
	}
	return p.Rates[i], true
}

// maxRates limits the number of rates, because rates of models without GPUs are kept.
const maxRates = 1000

// ratesOf computes rates from the samples that have a rate. Models without samples keep their
// previous rates, because speeds must not change while nodes are away.
func ratesOf(samples []Sample, prev *Profile) (out []Rate) {
	type of struct {
		model string
		app   pal.AppClass
	}
	told := map[of]map[string][]float64{} // rates by GPU
	for _, s := range samples {
		if s.Rate == 0 {
			continue
		}
		k := of{s.Model, s.App}
		if told[k] == nil {
			told[k] = map[string][]float64{}
		}
		told[k][s.GPU] = append(told[k][s.GPU], s.Rate)
	}
	for k, gpus := range told {
		var each []float64
		for _, rates := range gpus {
			each = append(each, Median(rates))
		}
		out = append(out, Rate{k.model, k.app, Median(each), len(each)})
	}
	if prev != nil {
		for _, r := range prev.Rates {
			if len(out) < maxRates && told[of{r.Model, r.App}] == nil {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, Rate.compare)
	return out
}

// checkRates checks that the rates are positive, sorted and unique. Lookups rely on this.
func (p *Profile) checkRates() error {
	for i, r := range p.Rates {
		name := fmt.Sprintf("rate %d (model %q, app %q)", i+1, r.Model, r.App)
		if i > 0 && p.Rates[i-1].compare(r) >= 0 {
			return fmt.Errorf("%s is out of order, or occurs twice", name)
		}
		if !positive(r.Rate) || r.GPUs < 1 {
			return fmt.Errorf("%s: rate %v of %d GPUs is not a positive number", name, r.Rate, r.GPUs)
		}
	}
	return nil
}

// Samples returns the times in a profile, by GPU and application. The rate of a sample is the rate
// of its model divided by the PM score of the GPU.
func (p *Profile) Samples() (out []Sample) {
	for _, g := range p.GPUs {
		for _, e := range g.Entries {
			s := Sample{GPU: g.ID, Model: g.Model, Key: e.Key, App: e.App, Time: e.Time}
			if r, ok := p.Rate(g.Model, e.App); ok {
				s.Rate = r.Rate / float64(e.Score)
			}
			out = append(out, s)
		}
	}
	return out
}

// Speeds returns how fast each model is for an application; 1 is the fastest.
func (p *Profile) Speeds(app pal.AppClass) pal.Speeds {
	rates := map[string]float64{}
	for _, r := range p.Rates {
		if r.App == app {
			rates[r.Model] = r.Rate
		}
	}
	return pal.SpeedsOf(rates)
}
