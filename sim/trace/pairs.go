// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Pairs has, by GPU model, the speed of one application beside another on one GPU, relative to its
// speed alone. 0 means that they do not fit in the GPU's memory together.
type Pairs map[string]map[Pair]float64

// Pair is an application and its neighbour.
type Pair struct{ Of, Beside string }

// AppOf is the application of a job: the part of its name before "×". Jobs without a name count as
// one application per class.
func AppOf(j Job) string {
	app, _, _ := strings.Cut(j.Name, "×")
	if app == "" && j.Class != "" {
		return "class " + string(j.Class)
	}
	return app
}

// Apps returns the applications with pairs on the GPU model, sorted.
func (ps Pairs) Apps(model string) []string {
	apps := map[string]bool{}
	for p := range ps[model] {
		apps[p.Of] = true
	}
	return slices.Sorted(maps.Keys(apps))
}

// Rate returns the speed of an application beside others, relative to its speed alone. The costs of
// all neighbours add up, as if the applications took turns on the GPU. There are no measurements of
// more than two applications together.
func (ps Pairs) Rate(model, app string, others []string) float64 {
	longer := 1.0
	for _, o := range others {
		r := ps[model][Pair{app, o}]
		if r <= 0 {
			return 0
		}
		longer += 1/r - 1
	}
	return 1 / longer
}

// Large returns the applications that leave too little memory for another application on a GPU of
// one of the models. Any two other applications fit together.
func (ps Pairs) Large(models []string) map[string]bool {
	large := map[string]bool{}
	for _, model := range models {
		for {
			misfits := map[string]int{}
			for p, r := range ps[model] {
				if r <= 0 && !large[p.Of] && !large[p.Beside] {
					misfits[p.Of]++
					if p.Of == p.Beside {
						misfits[p.Of] += len(ps[model]) // the application does not fit into half of the memory
					}
				}
			}
			if len(misfits) == 0 {
				break
			}
			apps := slices.Sorted(maps.Keys(misfits))
			large[slices.MaxFunc(apps, func(a, b string) int { return misfits[a] - misfits[b] })] = true
		}
	}
	return large
}

// ReadPairs reads measured pairs: Gavel's table (gpu, job_a, job_b, gpus, steps_per_s_a,
// steps_per_s_b). The same directory must have throughputs.csv, with the rates of the jobs alone.
// ReadPairs ignores pairs on several GPUs, because their rates in Gavel's table are all 0, even for
// small jobs.
func ReadPairs(path string) (Pairs, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open pairs: %w", err)
	}
	defer f.Close()
	alone, err := ratesBeside(path)
	if err != nil {
		return nil, err
	}
	ps := Pairs{}
	err = eachOf(path, f, [][]string{{"gpu", "job_a", "job_b", "gpus", "steps_per_s_a", "steps_per_s_b"}}, func(get func(string) string) error {
		if get("gpus") != "1" {
			return nil
		}
		model := strings.ToUpper(get("gpu"))
		if ps[model] == nil {
			ps[model] = map[Pair]float64{}
		}
		for _, p := range []struct{ of, beside, rate string }{{"job_a", "job_b", "steps_per_s_a"}, {"job_b", "job_a", "steps_per_s_b"}} {
			rate, err := strconv.ParseFloat(get(p.rate), 64)
			if err != nil || !(rate >= 0) || math.IsInf(rate, 1) {
				return fmt.Errorf("column %s: %q is not a rate", p.rate, get(p.rate))
			}
			of := alone[ofGPUs(get(p.of), 1)][model]
			if of <= 0 {
				return fmt.Errorf("%s has no rate of %s alone on a %s", gavelRates, get(p.of), model)
			}
			ps[model][Pair{get(p.of), get(p.beside)}] = min(1, rate/of)
		}
		return nil
	})
	if err == nil && len(ps) == 0 {
		err = fmt.Errorf("%s: no pair on one GPU", path)
	}
	return ps, err
}

// Properties of Gavel's measured pairs on a V100 that [MixedPairs] copies. They are the standard
// deviation of pairs of the same classes, and the share of applications that leave too little
// memory for another application.
const (
	pairsDiffer = 0.16
	largeApps   = 2. / 26
)

// MixedPairs generates pairs of the applications on each GPU model: on average as fast as
// pal.Interference says for their classes, and varying as much as measured pairs.
func MixedPairs(seed uint64, models []string, classes map[string]pal.AppClass) Pairs {
	ps := Pairs{}
	rng := rand.New(rand.NewPCG(seed, 0x9a15))
	apps := slices.Sorted(maps.Keys(classes))
	large := map[string]bool{}
	for _, a := range apps {
		large[a] = rng.Float64() < largeApps
	}
	for _, model := range models {
		ps[model] = map[Pair]float64{}
		for _, a := range apps {
			for _, b := range apps {
				rate := 1/(1+pal.Interference(classes[a], classes[b])) + pairsDiffer*rng.NormFloat64()
				if rate = min(1, max(0.1, rate)); large[a] || large[b] {
					rate = 0
				}
				ps[model][Pair{a, b}] = rate
			}
		}
	}
	return ps
}
