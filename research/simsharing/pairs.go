// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/research/published"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Pairs has, by GPU model, the speed of one application beside another on one GPU, relative to its
// speed alone. 0 means that the GPU's memory is too small for both.
type Pairs map[string]map[Pair]float64

// Pair is an application and its neighbour.
type Pair struct{ Of, Beside string }

// AppOf is the application of a job: the part of its name before "×". Jobs without a name count as
// one application per class.
func AppOf(j trace.Job) string {
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
// all neighbours add up, as if the applications took turns on the GPU. Nobody measured more than
// two applications together.
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
	rows, err := published.Table(path)
	if err != nil {
		return nil, err
	}
	alone, err := published.GavelRates(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	ps := Pairs{}
	for i, r := range rows {
		if r["gpus"] != "1" {
			continue
		}
		model := strings.ToUpper(r["gpu"])
		if ps[model] == nil {
			ps[model] = map[Pair]float64{}
		}
		for _, p := range []struct{ of, beside, rate string }{{"job_a", "job_b", "steps_per_s_a"}, {"job_b", "job_a", "steps_per_s_b"}} {
			rate, err := strconv.ParseFloat(r[p.rate], 64)
			if err != nil || !(rate >= 0) || math.IsInf(rate, 1) {
				return nil, fmt.Errorf("%s:%d: column %s: %q is not a rate", path, i+2, p.rate, r[p.rate])
			}
			of := alone[published.OfGPUs(r[p.of], 1)][model]
			if of <= 0 {
				return nil, fmt.Errorf("%s:%d: throughputs.csv has no rate of %s alone on a %s", path, i+2, r[p.of], model)
			}
			ps[model][Pair{r[p.of], r[p.beside]}] = min(1, rate/of)
		}
	}
	if err == nil && len(ps) == 0 {
		err = fmt.Errorf("%s: no pair on one GPU", path)
	}
	return ps, err
}
