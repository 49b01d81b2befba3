// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/sim"
)

// settings are keys of the agent's block queue, with the values that -set gives them.
type settings map[string]string

func (s settings) String() string { return "" }

// Set takes KEY=VALUE.
func (s settings) Set(text string) error {
	name, value, _ := strings.Cut(text, "=")
	keys := queueKeys()
	i := slices.IndexFunc(keys, func(k model.Key) bool { return k.Name == name })
	if i < 0 {
		names := make([]string, len(keys))
		for i, k := range keys {
			names[i] = k.Name
		}
		return fmt.Errorf("the block queue has no key %q; it has %s", name, strings.Join(names, ", "))
	}
	scratch := model.DefaultConfig()
	if err := keys[i].Set(&scratch, value); err != nil {
		return err
	}
	s[name] = value
	return nil
}

func queueKeys() []model.Key {
	return slices.DeleteFunc(model.Keys(), func(k model.Key) bool { return k.Block != "queue" })
}

// over applies the settings to the rules.
func (s settings) over(to *model.Config) error {
	for _, k := range queueKeys() {
		value, given := s[k.Name]
		if given {
			if err := k.Set(to, value); err != nil {
				return fmt.Errorf("-set %s: %w", k.Name, err)
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
	if err := o.settings.over(&o.rules); err != nil {
		return err
	}
	if o.set["policy"] {
		o.rules.Placement = pal.PolicyName(o.policy)
	}
	return o.checkPolicy()
}

// rendezvous is the time after which an incomplete gang gives up and starts again, under plain Nomad.
const rendezvous = 30 * time.Minute

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
		p.Nomad.RendezvousS = rendezvous.Seconds()
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
	if !ok {
		return nil
	}
	for _, name := range []string{"preempt", "set"} {
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

// localityText writes the locality penalties, as in node=1,cluster=1.7.
func (o *options) localityText() string {
	l := o.rules.Locality
	var tiers []string
	for _, t := range l.Tiers() {
		tiers = append(tiers, fmt.Sprintf("%s=%g", t, l[t][0]))
	}
	return strings.Join(tiers, ",")
}
