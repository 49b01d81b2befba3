// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

const (
	// dropSigmas is the maximum distance from the median at which a GPU counts in the reference, in
	// robust standard deviations.
	dropSigmas = 5
	// A group is one class if its spread is below minSpread (1 %), or below noiseSpread (six) times
	// the noise of a GPU. A group is also one class if its standard deviation is below noiseSigmas
	// times the noise, and if its tails are short (see isSingleClass). singleSlack keeps a group
	// near a limit from changing back and forth.
	minSpread   = 0.01
	noiseSpread = 6
	noiseSigmas = 2
	singleSlack = 0.2
	// immediate is the score above which a GPU gets the last class without a second session.
	immediate = 1.10
	// medianError is the standard error of the median of normal values, divided by the standard
	// error of their mean.
	medianError = 1.2533
	// provisionalMax is the slowest class that a GPU can get if the reference is provisional and
	// the GPU is not an outlier.
	provisionalMax = 3
	// maxRatio limits how many times faster or slower a GPU can be than the median of its group. A
	// time beyond this ratio is a measurement or input error. Scores have six decimals, so that no
	// score within this ratio is rounded to 0.
	maxRatio = 1000
)

// Build calibrates the samples. prev is the profile in use; nil means that there is none. The new
// version follows prev's version, and hysteresis depends on prev's classes. If nothing changed,
// Build returns prev itself. Each error names the GPU of the sample.
//
// Phases:
//
//  1. Combine repetitions into one time per GPU and application (combine).
//  2. Compute the reference of each group: the median of the GPUs that are not far off (reference).
//  3. Divide each time by the reference, which gives the scores (pmScore).
//  4. Check whether the scores differ by more than noise (isSingleClass).
//  5. Choose bins and classes, which depend on the GPUs' previous classes (classify).
//  6. Compute the rates of the models (ratesOf).
//
// All lists are sorted, so the order of the samples does not matter. The cost is O(n·log n) for the
// n samples of a group.
func Build(samples []Sample, o Options, prev *Profile) (*Profile, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	groups, err := groupSamples(samples)
	if err != nil {
		return nil, err
	}
	p := &Profile{Format: Format, Version: 1, Created: o.Created, Options: o, Groups: []Group{}, GPUs: []GPU{}}
	p.Options.Edges = append([]float64(nil), o.Edges...)
	p.Options.Created, p.Options.Known = "", nil
	gpus := map[string]*GPU{}
	for _, g := range groups {
		implausible := g.implausible()
		for _, gpu := range slices.Sorted(maps.Keys(implausible)) {
			return nil, fmt.Errorf("GPU %q: %w", gpu, implausible[gpu])
		}
		if err := p.addGroup(g, prev, gpus); err != nil {
			return nil, err
		}
	}
	for id, model := range o.Known {
		if gpus[id] == nil {
			gpus[id] = &GPU{ID: id, Model: model}
		}
	}
	for _, g := range gpus {
		p.GPUs = append(p.GPUs, *g)
	}
	sort.Slice(p.GPUs, func(i, j int) bool { return p.GPUs[i].ID < p.GPUs[j].ID })
	p.Rates = ratesOf(samples, prev)
	p.index()
	return p.versioned(prev), nil
}

// versioned gives the profile the next version after prev, or returns prev if they are equal. So a
// new version always means a change.
func (p *Profile) versioned(prev *Profile) *Profile {
	if prev == nil {
		return p
	}
	if p.sameAs(prev) {
		return prev
	}
	p.Version = prev.Version + 1
	return p
}

// sameAs compares everything except version and creation time.
func (p *Profile) sameAs(q *Profile) bool {
	return p.Options.equal(q.Options) &&
		slices.EqualFunc(p.Groups, q.Groups, Group.equal) &&
		slices.Equal(p.Rates, q.Rates) &&
		slices.EqualFunc(p.GPUs, q.GPUs, func(a, b GPU) bool {
			return a.ID == b.ID && a.Model == b.Model && slices.Equal(a.Entries, b.Entries)
		})
}

// reading is one time of one GPU, combined from its repetitions.
type reading struct {
	gpu         string
	time, noise float64
}

// measuredGroup is a group of comparable GPUs with its measurements.
type measuredGroup struct {
	id       groupID
	readings []reading // one per GPU
}

// groupSamples checks the samples and sorts them into groups.
func groupSamples(samples []Sample) ([]measuredGroup, error) {
	reps := map[groupID]map[string][]Sample{}
	for i, s := range samples {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("sample %d (GPU %q, application %q): %w", i+1, s.GPU, s.App, err)
		}
		id := groupID{s.Model, s.App, s.Key}
		byGPU := reps[id]
		if byGPU == nil {
			byGPU = map[string][]Sample{}
			reps[id] = byGPU
		}
		byGPU[s.GPU] = append(byGPU[s.GPU], s)
	}
	groups := make([]measuredGroup, 0, len(reps))
	for id, byGPU := range reps {
		rs := make([]reading, 0, len(byGPU))
		for gpu, ss := range byGPU {
			rs = append(rs, combine(gpu, ss))
		}
		sort.Slice(rs, func(i, j int) bool { return rs[i].gpu < rs[j].gpu })
		groups = append(groups, measuredGroup{id, rs})
	}
	slices.SortFunc(groups, func(a, b measuredGroup) int { return a.id.compare(b.id) })
	return groups, nil
}

// implausible returns an error for each GPU whose time is impossible in the group. Each time is
// compared with the lower or the upper median of the group.
func (c measuredGroup) implausible() map[string]error {
	times := make([]float64, len(c.readings))
	for i, r := range c.readings {
		times[i] = r.time
	}
	asc := sorted(times)
	low, high := asc[(len(asc)-1)/2], asc[len(asc)/2]
	out := map[string]error{}
	for _, r := range c.readings {
		m := low
		if r.time <= low {
			m = high
		}
		if r.time >= high/maxRatio && r.time <= low*maxRatio {
			continue
		}
		out[r.gpu] = fmt.Errorf("application %q: time %v is more than a factor of %d away from the median %v of comparable times", c.id.app, r.time, maxRatio, m)
	}
	return out
}

func (s Sample) check() error {
	switch {
	case s.GPU == "":
		return fmt.Errorf("no GPU id")
	case s.Model == "":
		return fmt.Errorf("no model")
	case s.App == "" || strings.ContainsAny(string(s.App), " =;,"):
		return fmt.Errorf("application name %q is empty or contains a space, '=', ';' or ','", s.App)
	case len(s.GPU) > attr.MaxName || len(s.Model) > attr.MaxName || len(s.App) > attr.MaxName || len(s.Key) > attr.MaxName:
		return fmt.Errorf("a name is longer than %d bytes", attr.MaxName)
	case !positive(s.Time):
		return fmt.Errorf("time %v is not a positive number", s.Time)
	case attr.CheckValue(s.Time) != nil:
		return fmt.Errorf("time %w", attr.CheckValue(s.Time))
	case s.Rate != 0 && (!positive(s.Rate) || attr.CheckValue(s.Rate) != nil):
		return fmt.Errorf("rate %v is not a positive number", s.Rate)
	case !(s.Noise >= 0) || math.IsInf(s.Noise, 0):
		return fmt.Errorf("noise %v is neither 0 nor a positive number", s.Noise)
	}
	return nil
}

// combine takes the median of repetitions. With three or more repetitions, the noise is computed
// from their scatter. With fewer repetitions, the noise is the largest that the samples state.
func combine(gpu string, reps []Sample) reading {
	times := make([]float64, len(reps))
	r := reading{gpu: gpu}
	for i, s := range reps {
		times[i] = s.Time
		r.noise = math.Max(r.noise, s.Noise)
	}
	r.time = Median(times)
	if len(reps) >= 3 {
		r.noise = medianError * repetitionSigma(times, r.time) / math.Sqrt(float64(len(times))) / r.time
	}
	return r
}

// reference returns the median time without the GPUs that are far off, and the number of GPUs
// excluded. With fewer than minGPUs GPUs, it returns the lower median.
func reference(rs []reading, minGPUs int) (ref float64, dropped int) {
	times := make([]float64, len(rs))
	for i, r := range rs {
		times[i] = r.time
	}
	asc := sorted(times)
	if len(asc) < minGPUs {
		return asc[(len(asc)-1)/2], 0
	}
	m := Median(asc)
	limit := dropSigmas * RobustSigma(asc, m)
	var kept []float64
	for _, t := range asc {
		// If more than half of the times are equal, the limit is 0, and no time is excluded.
		if limit == 0 || math.Abs(t-m) <= limit {
			kept = append(kept, t)
		}
	}
	return Median(kept), len(asc) - len(kept)
}

// addGroup calibrates one group and adds its entries to gpus. A GPU with two models or two keys
// is an error, because the samples do not show which one is right.
func (p *Profile) addGroup(c measuredGroup, prev *Profile, gpus map[string]*GPU) error {
	g := Group{Model: c.id.model, App: c.id.app, Key: c.id.key, Measured: len(c.readings)}
	g.Reference, g.Dropped = reference(c.readings, p.Options.MinGPUs)
	g.Provisional = g.Measured < p.Options.MinGPUs
	scores := make([]float64, g.Measured)
	for i, r := range c.readings {
		scores[i] = pmScore(r.time, g.Reference)
	}
	g.Noise, g.Spread = groupNoise(c, prev), spread(scores, p.Options.Outlier)
	g.SingleClass = g.isSingleClass(RobustSigma(scores, 1), prev)
	entries := p.classify(&g, c.readings, scores, prev)
	p.Groups = append(p.Groups, g)
	for i, r := range c.readings {
		gpu := gpus[r.gpu]
		if gpu == nil {
			gpu = &GPU{ID: r.gpu, Model: g.Model, Entries: make([]Entry, 0, pal.NumClasses)}
			gpus[r.gpu] = gpu
		}
		if gpu.Model != g.Model {
			return fmt.Errorf("GPU %q has samples of two models, %q and %q", r.gpu, gpu.Model, g.Model)
		}
		// Groups are sorted by app, so the entries are also sorted by app.
		n := len(gpu.Entries)
		if n > 0 && gpu.Entries[n-1].App == g.App {
			return fmt.Errorf("GPU %q has application %q under the keys %q and %q, which cannot be compared",
				r.gpu, g.App, gpu.Entries[n-1].Key, g.Key)
		}
		gpu.Entries = append(gpu.Entries, entries[i])
	}
	return nil
}

// pmScore returns the time relative to the reference, rounded to six decimals, which is far below
// any noise.
func pmScore(time, reference float64) float64 { return math.Round(1e6*time/reference) / 1e6 }

// spread returns the difference between the 99th and the 1st percentile of the scores. It ignores
// outliers.
func spread(scores []float64, outlier float64) float64 {
	var asc []float64
	for _, s := range sorted(scores) {
		if s < outlier {
			asc = append(asc, s)
		}
	}
	if len(asc) == 0 {
		return 0
	}
	return Quantile(asc, 0.99) - Quantile(asc, 0.01)
}

// groupNoise returns the median noise of the GPUs that report their noise. If no GPU reports its
// noise, groupNoise returns the noise in the previous profile.
func groupNoise(c measuredGroup, prev *Profile) float64 {
	var known []float64
	for _, r := range c.readings {
		if r.noise > 0 {
			known = append(known, r.noise)
		}
	}
	if len(known) > 0 {
		return Median(known)
	}
	if prev != nil {
		if i, ok := prev.byGroup[c.id]; ok {
			return prev.Groups[i].Noise
		}
	}
	return 0
}

// noiseFloor returns the spread below which the group's scores are only noise.
func (g *Group) noiseFloor() float64 { return math.Max(minSpread, noiseSpread*g.Noise) }

// isSingleClass reports whether the scores of the group differ too little for several classes. One
// of two conditions must hold: the spread is below the noise floor, or the tails are short and
// sigma is close to the noise of a GPU. The parameter sigma is the robust standard deviation of the
// scores. Because of singleSlack, a group near a limit keeps its previous state.
func (g *Group) isSingleClass(sigma float64, prev *Profile) bool {
	slack := 1.0
	if prev != nil {
		if i, ok := prev.byGroup[g.id()]; ok {
			slack = 1 - singleSlack
			if prev.Groups[i].SingleClass {
				slack = 1 + singleSlack
			}
		}
	}
	return g.Spread < slack*g.noiseFloor() || sigma < slack*noiseSigmas*g.Noise && g.Spread < slack*2*noiseSpread*g.Noise
}
