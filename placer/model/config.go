// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// Config is the configuration of a placer.
type Config struct {
	// Placement is the policy that chooses the GPUs of a gang.
	Placement pal.PolicyName
	// Queue is the policy of the queue. The field Queue.Placement is set from Config.Placement.
	Queue    queue.Options
	Locality pal.Locality
	// Apps maps names of applications in `pal_class` to application classes. DefaultClass is the application class
	// of jobs that name no class.
	Apps         map[string]pal.AppClass
	DefaultClass pal.AppClass
	// DefaultPreempt lists the application classes whose batch jobs may be stopped, unless the job
	// or its tenant decides otherwise.
	DefaultPreempt []pal.AppClass
	// RackMeta is the key in a node's meta whose value names the node's rack.
	RackMeta string
	// Calibration contains the rules that determine PM scores and variability classes.
	Calibration profile.Options
	// Children reports whether the placer can register dispatched and periodic jobs.
	Children bool
	// GangReadyTimeout is how long a started gang can be incomplete before the placer requeues it.
	// The time counts only while Nomad has no pending evaluation for the gang.
	GangReadyTimeout time.Duration
	// Retries is how often the placer retries a gang on other GPUs after failures that the gang
	// itself caused.
	Retries int
	// RestartCost is the run time that a gang loses when it is stopped and restarted.
	RestartCost time.Duration
	// Windows keep nodes free, either for maintenance or for certain jobs.
	Windows []window.Window
	// Resync is the time between full reads of Nomad's state. Between two full reads, the placer
	// follows Nomad's events.
	Resync time.Duration
}

// DefaultConfig returns the configuration of an agent whose configuration files set no keys.
func DefaultConfig() Config {
	return Config{
		Placement: pal.PAL,
		Queue:     queue.Default(),
		Locality:  pal.TwoTier(pal.DefaultPenalty),
		Apps: map[string]pal.AppClass{
			"resnet50": pal.ClassA, "sgemm": pal.ClassA,
			"bert": pal.ClassB, "gpt2": pal.ClassB, "dcgan": pal.ClassB,
			"vgg19":    pal.ClassC,
			"pagerank": pal.ClassD, "pointnet": pal.ClassD,
		},
		DefaultClass:     pal.ClassB,
		RackMeta:         "rack",
		Calibration:      profile.DefaultOptions(),
		GangReadyTimeout: 5 * time.Second,
		Retries:          2,
		RestartCost:      time.Minute,
		Resync:           5 * time.Minute,
	}
}

// MayStop reports whether the placer may stop a namespace's batch jobs of a class, unless they set
// pal_preempt. from is the configuration key that allows this, or "" if the placer must not stop
// these jobs.
func (c Config) MayStop(namespace string, class pal.AppClass) (may bool, from string) {
	may, from = slices.Contains(c.DefaultPreempt, class), "default_preempt"
	for name := c.Queue.TenantOf(namespace); name != ""; name = name[:max(0, strings.LastIndexByte(name, '/'))] {
		said := c.Queue.Tenants[name].DefaultPreempt
		if said != nil {
			may, from = *said, fmt.Sprintf("default_preempt of tenant %q", name)
			break
		}
	}
	if !may {
		return false, ""
	}
	return true, from
}

// Warnings describes those parts of a valid configuration that no longer have an effect.
func (c Config) Warnings(now time.Time) (out []string) {
	for _, w := range c.Windows {
		_, _, ok := w.At(now)
		if !ok {
			out = append(out, fmt.Sprintf("window %q never opens again", w.Name))
		}
	}
	return out
}

// Validate returns an error for values that are invalid only in combination. The parser does not
// find these values, because it checks one key at a time.
func (c Config) Validate() error {
	if err := c.Locality.Validate(); err != nil {
		return err
	}
	for i, w := range c.Windows {
		if err := w.Check(); err != nil {
			return err
		}
		if slices.ContainsFunc(c.Windows[:i], func(o window.Window) bool { return o.Name == w.Name }) {
			return fmt.Errorf("window %q is defined twice", w.Name)
		}
	}
	return nil
}
