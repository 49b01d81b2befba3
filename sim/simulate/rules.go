// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/sim"
)

// queueFlags are the values of flags that set keys of the agent's queue configuration, by key.
type queueFlags map[string]string

// links matches a Markdown link.
var links = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)

// tried are the keys of the queue's configuration for which simulate has a flag.
var tried = []string{"order", "backfill", "max_wait", "migrate", "moves_per_hour", "locality_wait", "outlier_threshold", "job_priority", "fair_share"}

func queueKeys() []model.Key {
	return slices.DeleteFunc(model.Keys(), func(k model.Key) bool { return k.Block != "queue" || !slices.Contains(tried, k.Name) })
}

// add declares the flags with the agent's defaults. The help of each flag is the first sentence
// about the key in the reference.
func (q *queueFlags) add(f *flag.FlagSet) {
	d := model.DefaultConfig()
	*q = queueFlags{}
	for _, k := range queueKeys() {
		doc, _, _ := strings.Cut(k.Doc, ". ")
		if k.Name == "migrate" {
			doc = "Move gangs to better GPUs, if that gains more than twice the -restart-cost. With this option, all gangs may be moved (pal_migrate); without this option, only gangs that may be stopped (-preempt)"
		}
		usage := fmt.Sprintf("%s (default %s)", strings.ReplaceAll(links.ReplaceAllString(doc, "$1"), "`", ""), k.Get(d))
		set := func(s string) error {
			scratch := d
			if err := k.Set(&scratch, s); err != nil {
				return err
			}
			(*q)[k.Name] = s
			return nil
		}
		if k.Bool() {
			f.BoolFunc(k.Flag(), usage, set)
		} else {
			f.Func(k.Flag(), usage, set)
		}
	}
}

// over applies the given flags to the rules.
func (q queueFlags) over(to *model.Config) error {
	for _, k := range queueKeys() {
		if value, given := q[k.Name]; given {
			if err := k.Set(to, value); err != nil {
				return fmt.Errorf("-%s: %w", k.Flag(), err)
			}
		}
	}
	return nil
}

// settle computes the rules from the agent's defaults, its configuration and the flags, in this
// order.
func (o *options) settle() error {
	o.rules = model.DefaultConfig()
	if len(o.config) > 0 {
		f, err := agent.Load(o.config)
		if err != nil {
			return err
		}
		if o.rules, err = f.PlacerConfig(); err != nil {
			return fmt.Errorf("reading %s: %w", strings.Join(o.config, ", "), err)
		}
	}
	if err := o.queueFlags.over(&o.rules); err != nil {
		return err
	}
	if o.set["policy"] {
		o.rules.Placement = pal.PolicyName(o.policy)
	}
	if o.set["locality"] {
		o.rules.Locality = o.locality.Locality
	}
	if o.set["restart-cost"] {
		o.rules.RestartCost = o.restart
	}
	return o.checkPolicy()
}

func (o *options) baselines() []sim.Policy { return append(sim.Baselines(), o.Policies...) }

// baseline returns the baseline that -policy names; ok is false if -policy names no baseline.
func (o *options) baseline() (sim.Policy, bool) {
	all := o.baselines()
	i := slices.IndexFunc(all, func(p sim.Policy) bool { return p.Name == string(o.rules.Placement) })
	if i < 0 {
		return sim.Policy{}, false
	}
	p := all[i]
	if p.Nomad != nil {
		p.Nomad.RendezvousS = o.rendezvous.Seconds()
	}
	return p, true
}

// checkPolicy refuses an unknown policy, and flags that the policy would ignore.
func (o *options) checkPolicy() error {
	all := pal.Policies()
	for _, p := range o.baselines() {
		all = append(all, pal.PolicyName(p.Name))
	}
	if _, err := pal.ParseName("policy", string(o.rules.Placement), all...); err != nil {
		return err
	}
	p, ok := o.baseline()
	if o.set["rendezvous"] && p.Nomad == nil {
		return fmt.Errorf("-rendezvous cannot be combined with -policy %s: it is for plain Nomad only", o.rules.Placement)
	}
	if !ok {
		return nil
	}
	names := []string{"preempt", "elastic"}
	for _, k := range queueKeys() {
		names = append(names, k.Flag())
	}
	for _, name := range names {
		if o.set[name] {
			return fmt.Errorf("-%s cannot be combined with -policy %s, which has a queue of its own", name, p.Name)
		}
	}
	if o.set["estimates"] && p.Estimate != nil {
		return fmt.Errorf("-estimates cannot be combined with -policy %s, which has estimates of its own", p.Name)
	}
	return nil
}

// orderName returns the order of the queue; "" if the policy has no queue.
func (o *options) orderName() string {
	if p, ok := o.baseline(); ok {
		return string(p.Queue.Order)
	}
	return string(o.rules.Queue.Order)
}

// localityText writes the locality penalties in the form of -locality.
func (o *options) localityText() string {
	l := o.rules.Locality
	var tiers []string
	for _, t := range l.Tiers() {
		tiers = append(tiers, fmt.Sprintf("%s=%g", t, l[t][0]))
	}
	return strings.Join(tiers, ",")
}
