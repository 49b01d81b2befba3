// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/sim"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/agent"
)

// queueFlags are the flags that stand for keys of the agent's configuration.
type queueFlags struct {
	order                            string
	backfill, passing, migrate, near bool
	fairShare                        bool
	avoid                            float64
	pass, quantum, firstGuess        time.Duration
	movesPerHour                     int
	calibration                      string
}

// add declares the flags with the agent's defaults.
func (q *queueFlags) add(f *flag.FlagSet, d placer.Config) {
	f.StringVar(&q.order, "order", string(d.Queue.Order), "queue: fifo, priority, las, srtf, adaptive, round-robin (with -faithful fifo)")
	f.BoolVar(&q.backfill, "backfill", d.Queue.Backfill, "let gangs pass a head that does not fit, within the bound of -pass")
	f.BoolVar(&q.migrate, "migrate", d.Queue.Migrate, "move running gangs where that pays; on the command line: any gang may be moved")
	f.BoolVar(&q.passing, "passing", d.Queue.Passing, "let gangs pass the head wherever they fit")
	f.BoolVar(&q.near, "near", d.Queue.Near, "let gangs wait a while for GPUs closer together")
	f.BoolVar(&q.fairShare, "fair-share", d.Queue.FairShare, "the tenant with the fewest running GPUs for its weight goes first")
	f.Float64Var(&q.avoid, "avoid", d.Queue.Avoid, "keep gangs off GPUs with a PM score above this; 0: none")
	f.DurationVar(&q.pass, "pass", d.Queue.Pass, "how long a gang may be passed before nothing starts ahead of it; 0: the default of the queue")
	f.DurationVar(&q.quantum, "quantum", d.Queue.Quantum, "GPU time of the first level of las, time slice of round-robin; 0: the default of the queue")
	f.DurationVar(&q.firstGuess, "first-guess", d.Queue.FirstGuess, "how long a gang of which nothing is known is expected to run; 0: the default of the queue")
	f.IntVar(&q.movesPerHour, "moves-per-hour", d.MovesPerHour, "how many gangs are moved in an hour at most")
	f.StringVar(&q.calibration, "calibration", string(d.Calibration.Method), "how PM scores become classes: edges (as the agent), kmeans (as the PAL artifact) or kmeans-silhouette")
}

// over lays the flags that were given over the rules.
func (q *queueFlags) over(to *placer.Config, given map[string]bool) {
	for name, set := range map[string]func(){
		"order":          func() { to.Queue.Order = queue.Order(q.order) },
		"backfill":       func() { to.Queue.Backfill = q.backfill },
		"migrate":        func() { to.Queue.Migrate = q.migrate },
		"passing":        func() { to.Queue.Passing = q.passing },
		"near":           func() { to.Queue.Near = q.near },
		"fair-share":     func() { to.Queue.FairShare = q.fairShare },
		"avoid":          func() { to.Queue.Avoid = q.avoid },
		"pass":           func() { to.Queue.Pass = q.pass },
		"quantum":        func() { to.Queue.Quantum = q.quantum },
		"first-guess":    func() { to.Queue.FirstGuess = q.firstGuess },
		"moves-per-hour": func() { to.MovesPerHour = q.movesPerHour },
		"calibration":    func() { to.Calibration.Method = profile.Method(q.calibration) },
	} {
		if given[name] {
			set()
		}
	}
}

// settle works out the rules: the agent's defaults, its configuration, the flags.
func (o *options) settle() error {
	o.rules = placer.DefaultConfig()
	if len(o.config) > 0 {
		if o.faithful {
			return errors.New("-config does not go with -faithful")
		}
		f, err := agent.Load(o.config)
		if err != nil {
			return err
		}
		if o.rules, err = f.Rules(); err != nil {
			return fmt.Errorf("read %s: %w", strings.Join(o.config, ", "), err)
		}
	}
	if o.faithful {
		o.rules.Queue.Order = queue.FIFO
	}
	o.queueFlags.over(&o.rules, o.set)
	for name, set := range map[string]func(){
		"policy":       func() { o.rules.Placement = pal.PolicyName(o.policy) },
		"locality":     func() { o.rules.Locality = o.locality.Locality },
		"restart-cost": func() { o.rules.RestartCost = o.restart },
	} {
		if o.set[name] {
			set()
		}
	}
	if !slices.Contains([]profile.Method{profile.Edges, profile.KMeans, profile.KMeansSilhouette}, o.rules.Calibration.Method) {
		return fmt.Errorf("-calibration %q is unknown (one of edges, kmeans, kmeans-silhouette)", o.rules.Calibration.Method)
	}
	return o.checkBaseline()
}

// baseline is the baseline that -policy names.
func (o *options) baseline() (sim.Policy, bool) {
	if o.faithful {
		return sim.Policy{}, false
	}
	p, ok := sim.PolicyOf(string(o.rules.Placement))
	if ok && p.Nomad() && o.set["rendezvous"] {
		p = p.GivesUp(o.rendezvous)
	}
	return p, ok
}

// checkBaseline refuses what a baseline would not heed.
func (o *options) checkBaseline() error {
	p, ok := o.baseline()
	if !ok {
		return nil
	}
	for _, name := range []string{"order", "backfill", "migrate", "passing", "near", "fair-share", "avoid", "pass", "quantum",
		"first-guess", "moves-per-hour", "preempt"} {
		if o.set[name] {
			return fmt.Errorf("-%s does not go with -policy %s, which has a queue of its own", name, p.Name)
		}
	}
	if o.set["rendezvous"] && !p.Nomad() {
		return fmt.Errorf("-rendezvous does not go with -policy %s: it is of plain Nomad", p.Name)
	}
	return nil
}

// orderName is the order of the queue, "" where the policy has none to name.
func (o *options) orderName() string {
	if p, ok := o.baseline(); ok {
		return string(p.Queue.Order)
	}
	return string(o.rules.Queue.Order)
}

// localityText writes the locality penalties as -locality takes them.
func (o *options) localityText() string {
	l := o.rules.Locality
	var tiers []string
	for _, t := range l.Tiers() {
		tiers = append(tiers, fmt.Sprintf("%s=%g", t, l[t][0]))
	}
	return strings.Join(tiers, ",")
}
