// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"
	"flag"
	"fmt"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// The values of -neighbours.
const (
	neighboursOurs   = "classes"
	neighboursRandom = "random"
)

// sharing is how GPUs are shared.
type sharing struct {
	parts      int
	pairsFile  string
	neighbours string
}

// mostParts is the maximum number of jobs on a GPU, because one MPS server accepts at most this
// number of clients.
const mostParts = 48

func (s *sharing) flags(f *flag.FlagSet) {
	f.IntVar(&s.parts, "share", 0, "split each GPU into this many parts; each member of a gang gets one part, on a GPU of its own; 0: members get whole GPUs")
	f.StringVar(&s.pairsFile, "pairs", "", "with -share: a `FILE` of how fast two applications run on one GPU: Gavel's pairs.csv, with throughputs.csv in its directory; default: random speeds around the means of their classes")
	f.StringVar(&s.neighbours, "neighbours", neighboursOurs, fmt.Sprintf("with -share: which jobs share a GPU: %s (as the agent, by application class) or %s", neighboursOurs, neighboursRandom))
}

func (o *options) checkSharing() error {
	s := o.sharing
	if s.parts == 0 {
		if s.pairsFile != "" || o.set["neighbours"] {
			return errors.New("-pairs and -neighbours need -share")
		}
		return nil
	}
	if s.parts < 2 || s.parts > mostParts {
		return fmt.Errorf("-share %d is not between 2 and %d", s.parts, mostParts)
	}
	if s.neighbours != neighboursOurs && s.neighbours != neighboursRandom {
		return fmt.Errorf("-neighbours %q is unknown (one of %s, %s)", s.neighbours, neighboursOurs, neighboursRandom)
	}
	for _, not := range []string{"from-nomad", "mtbf", "elastic", "task-gpus", "model-choice"} {
		if o.set[not] {
			return fmt.Errorf("-share cannot be combined with -%s", not)
		}
	}
	return nil
}

// share makes the jobs of the run share GPUs.
func (o *options) share(cfg *sim.Config, c *pal.Cluster) error {
	var names []string
	for _, m := range models(c) {
		names = append(names, trace.ModelName(m))
	}
	pairs, err := o.pairs(cfg.Jobs, names)
	if err != nil {
		return err
	}
	large := pairs.Large(names)
	cfg.Beside = sim.Beside(pairs, cfg.Jobs, c)
	cfg.Gang = func(j trace.Job) pal.Gang {
		if large[trace.AppOf(j)] {
			return sim.SharedGangOf(j, o.sharing.parts)
		}
		return sim.SharedGangOf(j, 1)
	}
	if o.sharing.neighbours == neighboursRandom {
		c.SetInterference(sim.RandomNeighbours(o.seed))
	}
	return nil
}

// pairs returns how fast the jobs' applications run beside each other on the GPU models.
func (o *options) pairs(jobs []trace.Job, models []string) (trace.Pairs, error) {
	classes := map[string]pal.AppClass{}
	for _, j := range jobs {
		classes[trace.AppOf(j)] = j.Class
	}
	if o.sharing.pairsFile == "" {
		return trace.MixedPairs(o.seed, models, classes), nil
	}
	pairs, err := trace.ReadPairs(o.sharing.pairsFile)
	if err != nil {
		return nil, err
	}
	for _, m := range models {
		if len(pairs[m]) == 0 {
			return nil, fmt.Errorf("%s has no pairs measured on GPU model %q; name the cluster's GPU models with -gpus, such as -gpus 16xV100", o.sharing.pairsFile, m)
		}
		apps := pairs.Apps(m)
		for _, j := range jobs {
			if app := trace.AppOf(j); !slices.Contains(apps, app) {
				return nil, fmt.Errorf("%s has no pairs of %q, which job %q runs", o.sharing.pairsFile, app, j.ID)
			}
		}
	}
	return pairs, nil
}
