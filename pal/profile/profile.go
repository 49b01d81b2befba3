// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

const (
	// MaxClass is the last variability class. Unmeasured GPUs also have this class.
	MaxClass = 5
	// Format names the JSON form of a [Profile].
	Format = "nomad-pal/profile/1"
	// MeasurementFormat names the report that nomad-device-pal measure writes
	// and nomad-pal profile reads.
	MeasurementFormat = "nomad-pal/measurement/1"
)

// Sample is one measured time of one GPU. If a GPU has several samples for one application, their
// median is used.
type Sample struct {
	GPU   string // instance id
	Model string // device group name; times of different models never mix
	// Key is the comparability key: kernel, power limit, ECC mode, driver branch. Times of
	// different keys never mix.
	Key string
	// App is the application class, or the name of an application that was timed itself
	// ("resnet50") and has its own scores.
	App pal.AppClass
	// Time is the time for a fixed piece of work; larger is slower. All samples with the same Key
	// and App must have the same unit.
	Time float64
	// Noise is the relative standard deviation of repeated measurements of Time; 0 if unknown.
	Noise float64
	// Rate is the work per second, in a unit that is the same for all models; 0 if unknown.
	Rate float64
}

// SamplesOf converts the published raw values (see [attr.Raw]) of GPUs of one model to samples.
func SamplesOf(model string, ms []attr.Measurement) []Sample {
	var out []Sample
	for _, m := range ms {
		for _, app := range slices.Sorted(maps.Keys(m.Times)) {
			out = append(out, Sample{GPU: m.GPU, Model: model, Key: m.Key, App: app, Time: m.Times[app]})
		}
	}
	return out
}

// Options are the rules of a calibration. Options are part of the profile, so that scores of GPUs
// measured later are binned by the same rules.
type Options struct {
	// Edges are the upper ends of all classes except the last class, in ascending order. There are
	// at most MaxClass−1 edges.
	Edges []float64 `json:"edges" hcl:"edges,optional"`
	// Hysteresis is the distance between a GPU's score and the edge of its class that must be exceeded
	// in two sessions before the GPU changes class.
	Hysteresis float64 `json:"hysteresis" hcl:"hysteresis,optional"`
	// Outlier is the lowest score that makes a GPU an outlier, even after a single session.
	Outlier float64 `json:"outlier" hcl:"outlier,optional"`
	// MinGPUs is the number of GPUs below which a reference is only provisional.
	MinGPUs int `json:"min_gpus" hcl:"min_gpus,optional"`
	// Created is the time of the calibration in RFC 3339; Build stores it unchanged.
	Created string `json:"-"`
	// Known contains the model of each existing GPU, by the GPU's id. The profile also lists the
	// GPUs that have no sample, with an empty list of entries. For GPUs without a sample, Lookup
	// returns the last class.
	Known map[string]string `json:"-"`
}

// DefaultOptions returns five classes with fixed edges, a hysteresis of 0.5 % and outliers from
// score 1.5. References of fewer than 8 GPUs are provisional.
func DefaultOptions() Options {
	return Options{
		Edges:      []float64{0.99, 1.01, 1.03, 1.06},
		Hysteresis: 0.005, Outlier: 1.5, MinGPUs: 8,
	}
}

func (o Options) check() error {
	if len(o.Edges) == 0 || len(o.Edges) >= MaxClass {
		return fmt.Errorf("edges: %d given, want 1 to %d", len(o.Edges), MaxClass-1)
	}
	for i, e := range o.Edges {
		if !positive(e) || i > 0 && e <= o.Edges[i-1] {
			return fmt.Errorf("edges: %v are not positive and ascending", o.Edges)
		}
	}
	switch {
	case !(o.Hysteresis >= 0 && o.Hysteresis < 0.1):
		return fmt.Errorf("hysteresis: %v is not in 0…0.1", o.Hysteresis)
	case !(o.Outlier > o.Edges[len(o.Edges)-1]) || math.IsInf(o.Outlier, 0):
		return fmt.Errorf("outlier: %v is not above the last edge %v", o.Outlier, o.Edges[len(o.Edges)-1])
	case o.MinGPUs < 1:
		return fmt.Errorf("min_gpus: %d is less than 1", o.MinGPUs)
	}
	return nil
}

// Profile is the calibration of a set of GPUs. Treat it as read-only.
type Profile struct {
	Format  string  `json:"format"`
	Version int     `json:"version"` // 1 for the first; grows by one with each change
	Created string  `json:"created,omitempty"`
	Options Options `json:"options"`
	Groups  []Group `json:"groups"`          // by model, app, key
	GPUs    []GPU   `json:"gpus"`            // by id
	Rates   []Rate  `json:"rates,omitempty"` // by model, app
	// byID and byGroup index GPUs and Groups. Build and Parse set both.
	byID    map[string]int
	byGroup map[groupID]int
}

// Group contains what the GPUs of one model, application and comparability key have in common.
type Group struct {
	Model string       `json:"model"` // GPU model
	App   pal.AppClass `json:"app"`   // application class, or an application that was timed
	// Key is the comparability key: only times with the same key are compared.
	Key string `json:"key,omitempty"`
	// Reference is the time of the median GPU, in the unit of the samples.
	Reference float64 `json:"reference"`
	// Measured is the number of GPUs in the group. Dropped is how many of these GPUs differ so much
	// that they do not count in the reference.
	Measured int `json:"measured"`
	Dropped  int `json:"dropped,omitempty"`
	// Provisional is set if fewer than min_gpus GPUs were measured. If Provisional is set, only
	// outliers are in classes 4 and 5.
	Provisional bool `json:"provisional,omitempty"`
	// SingleClass is set if the scores differ by no more than noise. All GPUs then share class 1,
	// except GPUs that are slower than noise can explain. Spread is the 99th percentile minus the
	// 1st percentile of the scores without outliers.
	SingleClass bool    `json:"single_class,omitempty"`
	Spread      float64 `json:"spread"`
	Noise       float64 `json:"noise,omitempty"` // median relative noise of the GPUs
	// Values are the PM scores of the classes, fastest first.
	Values []float64 `json:"values"`
}

// GPU is one GPU's entries, by application name.
type GPU struct {
	ID      string  `json:"id"`
	Model   string  `json:"model"`
	Entries []Entry `json:"entries,omitempty"` // by app; none for a GPU never measured
}

// Entry has the calibrated values of one GPU for one application.
type Entry struct {
	App   pal.AppClass `json:"app"`
	Key   string       `json:"key,omitempty"`
	Time  float64      `json:"time"` // the median of the samples
	Score pal.PMScore  `json:"score"`
	// Class is the variability class, from 1 (fastest) to MaxClass.
	Class int `json:"class"`
	// Value is the PM score of the class. The value of an outlier is its own score.
	Value pal.PMScore `json:"value"`
	// Outlier is set if the score is at least Options.Outlier.
	Outlier bool `json:"outlier,omitempty"`
	// Pending is the class that one session has indicated, with a score beyond the hysteresis. If a
	// second session goes in the same direction, the class changes. 0 means no class.
	Pending int `json:"pending,omitempty"`
	// Unmeasured is set if the GPU has no measurement. If Unmeasured is set, Score is 0 and Class
	// is MaxClass.
	Unmeasured bool `json:"-"`
}

func (o Options) equal(p Options) bool {
	return slices.Equal(o.Edges, p.Edges) && o.Hysteresis == p.Hysteresis &&
		o.Outlier == p.Outlier && o.MinGPUs == p.MinGPUs
}

func (g Group) equal(h Group) bool {
	return g.id() == h.id() && g.Reference == h.Reference && g.Measured == h.Measured && g.Dropped == h.Dropped &&
		g.Provisional == h.Provisional && g.SingleClass == h.SingleClass && g.Spread == h.Spread && g.Noise == h.Noise &&
		slices.Equal(g.Values, h.Values)
}

type groupID struct {
	model string
	app   pal.AppClass
	key   string
}

func (g Group) id() groupID { return groupID{g.Model, g.App, g.Key} }

func (a groupID) compare(b groupID) int {
	return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.app, b.app), cmp.Compare(a.key, b.key))
}

func (p *Profile) index() {
	p.byID = make(map[string]int, len(p.GPUs))
	for i, g := range p.GPUs {
		p.byID[g.ID] = i
	}
	p.byGroup = make(map[groupID]int, len(p.Groups))
	for i := range p.Groups {
		p.byGroup[p.Groups[i].id()] = i
	}
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
