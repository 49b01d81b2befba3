// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Key is a configuration key for placement. All code that handles keys one by one uses the list
// [Keys]. Examples are the agent's configuration files, the configuration that the agent publishes
// for commands, the simulator's flags, and the reference in docs.
type Key struct {
	Block string // "" or "queue"
	Name  string
	// Doc describes in Markdown what the key does, and what a change of its value costs.
	Doc string
	// field returns a pointer to the value in a Config, of type *bool, *int, *float64,
	// *time.Duration or *string. field is nil if text is set.
	field func(*Config) any
	text  *text
	// zero is true if 0 is a valid value for a float64 or a duration. For an int, 0 is always
	// valid.
	zero bool
}

// text parses and formats values of types that field does not support.
type text struct {
	set func(c *Config, value string) error
	get func(c *Config) string
}

// Path returns the name of the key with its block, as in "queue.order".
func (k Key) Path() string { return strings.TrimPrefix(k.Block+"."+k.Name, ".") }

// Set sets the key to a value. The value has the same form as in a configuration file, but without
// quotes.
func (k Key) Set(c *Config, value string) error {
	if k.text != nil {
		return k.text.set(c, value)
	}
	switch to := k.field(c).(type) {
	case *bool:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		*to = b
	case *int:
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is neither 0 nor a positive integer", value)
		}
		*to = n
	case *float64:
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f >= 0) || f == 0 && !k.zero {
			if k.zero {
				return fmt.Errorf("%q is neither 0 nor a positive number", value)
			}
			return fmt.Errorf("%q is not a positive number", value)
		}
		*to = f
	case *time.Duration:
		if zero, err := time.ParseDuration(value); err == nil && zero == 0 && k.zero {
			*to = 0
			return nil
		}
		d, err := rewrite.ParseSpan(value)
		if err != nil && k.zero {
			return fmt.Errorf("%q is %w; 0 is allowed, too", value, err)
		}
		if err != nil {
			return fmt.Errorf("%q is %w", value, err)
		}
		*to = d
	case *string:
		*to = value
	}
	return nil
}

// Get returns the value in the same form as in a configuration file, but without quotes.
func (k Key) Get(c Config) string {
	if k.text != nil {
		return k.text.get(&c)
	}
	switch from := k.field(&c).(type) {
	case *bool:
		return strconv.FormatBool(*from)
	case *int:
		return strconv.Itoa(*from)
	case *float64:
		return strconv.FormatFloat(*from, 'g', -1, 64)
	case *time.Duration:
		return palapi.ShortDuration(*from)
	case *string:
		return *from
	}
	return ""
}

// Literal returns the value as it must be written in a configuration file. Values that are not
// booleans or numbers have quotes.
func (k Key) Literal(c Config) string {
	if k.text == nil {
		switch k.field(&c).(type) {
		case *bool, *int, *float64:
			return k.Get(c)
		}
	}
	return strconv.Quote(k.Get(c))
}

// Keys returns all keys, in the order in which the reference lists them.
func Keys() []Key {
	return append(topKeys(), queueKeys()...)
}

func topKeys() []Key {
	return []Key{
		{Name: "placement", text: parsed(pal.ParsePolicy, func(c *Config) *pal.PolicyName { return &c.Placement }),
			Doc: "The [policy](../design/concepts.md#jobs) that chooses GPUs: `pal`, `pm-first`, `packed`, `spread` or `random`. The last three ignore variability, and serve for comparison"},
		{Name: "default_class", text: parsed(pal.ParseAppClass, func(c *Config) *pal.AppClass { return &c.DefaultClass }),
			Doc: "Application class, A to D, of jobs without `pal_class`. With A, they would compete with jobs that really need the fastest GPUs"},
		{Name: "default_preempt", text: &text{set: setClasses, get: func(c *Config) string { return strings.Join(classNames(c.DefaultPreempt), ", ") }},
			Doc: "Application classes, such as `\"C, D\"`, whose batch jobs may be stopped. `pal_preempt` and the setting of the job's tenant take precedence. A stopped job runs again from its last checkpoint, or from the start if it has no checkpoint"},
		{Name: "rack_meta", field: func(c *Config) any { return &c.RackMeta },
			Doc: "Node meta key whose value is the node's rack. The tier `rack` needs this key. nomad-pal also constrains small jobs to the racks of their GPUs, so that Nomad finds the nodes faster"},
		{Name: "gang_ready_timeout", field: func(c *Config) any { return &c.GangReadyTimeout },
			Doc: "How long a placed gang may be incomplete. nomad-pal then requeues the gang, unless Nomad has a pending evaluation of its job. If Nomad needs longer to schedule a gang, choose a higher value, or nomad-pal requeues healthy gangs"},
		{Name: "retries", field: func(c *Config) any { return &c.Retries },
			Doc: "How many times nomad-pal retries, on other GPUs, a gang that failed by itself. Then it gives the gang up. The count starts again after a run of 24 hours"},
	}
}

// queueKey returns a key that belongs to the block queue. field returns a pointer to the key's
// value.
func queueKey[T any](name string, field func(*Config) *T, doc string) Key {
	return Key{Block: "queue", Name: name, field: func(c *Config) any { return field(c) }, Doc: doc}
}

func queueKeys() []Key {
	backfill := parsed(queue.ParseBackfill, func(c *Config) *queue.Backfill { return &c.Queue.Backfill })
	backfill.get = func(c *Config) string { return string(cmp.Or(c.Queue.Backfill, queue.BackfillNone)) }
	return []Key{
		{Block: "queue", Name: "order", text: parsed(queue.ParseOrder, func(c *Config) *queue.Order { return &c.Queue.Order }),
			Doc: "`fifo`, `las` (least GPU time attained first), `srtf` (shortest expected remaining time), `adaptive` (least expected remaining GPU time, by hints and history). Jobs of a higher priority go first in any order (`job_priority`)"},
		{Block: "queue", Name: "backfill", text: backfill,
			Doc: "Which gangs may start when the first gang of the queue does not fit. `\"none\"`: none, so some GPUs are idle. `\"reserved\"`: gangs that do not delay the first gang, and gangs that may be stopped. `\"best-effort\"`: all gangs that fit, however long the first gang waits"},
		queueKey("max_wait", func(c *Config) *time.Duration { return &c.Queue.MaxWait },
			"Total wait after which a gang without an estimate is overdue. A gang with `pal_duration` or `max_run_duration` is overdue after twice the shorter of the two, but not before an hour. Overdue gangs go first, in order of submission, within the limit of `overdue_share`"),
		{Block: "queue", Name: "overdue_share", field: func(c *Config) any { return &c.Queue.OverdueShare },
			Doc: "The part of the cluster's GPU time that serves overdue gangs. While overdue gangs wait, they get at least this part, so no gang starves. In an overload, they get no more, so that other gangs run, too"},
		queueKey("preempt", func(c *Config) *bool { return &c.Queue.Preempt },
			"Preempt gangs that allow this (`pal_preempt`, `default_preempt`), to make room for gangs ahead of them in the queue. nomad-pal never preempts other gangs"),
		queueKey("migrate", func(c *Config) *bool { return &c.Queue.Migrate },
			"Move gangs with `pal_migrate = true` to better GPUs, if the move gains more than twice the `restart_cost`"),
		{Block: "queue", Name: "restart_cost", zero: true, field: func(c *Config) any { return &c.RestartCost }, Doc: "Run time that a gang loses when it is stopped and started again, or that an elastic gang loses when its size changes"},
		queueKey("locality_wait", func(c *Config) *bool { return &c.Queue.LocalityWait },
			"A gang waits for much faster or closer GPUs when they are expected soon"),
		{Block: "queue", Name: "outlier_threshold", zero: true, field: func(c *Config) any { return &c.Queue.OutlierThreshold },
			Doc: "GPUs with a PM score above this threshold are outliers. nomad-pal gives outliers only to gangs that could not run otherwise. With 0, no GPU is an outlier"},
		queueKey("refuse_bad_neighbours", func(c *Config) *bool { return &c.Queue.Placement.RefuseBad },
			"A part of a [shared GPU](../tasks/share-gpus.md#neighbours) stays free when its neighbours would lose more work than the new job would do. The job waits for a better part until it is overdue. The rule needs known costs: those of V100s, or costs learned from finished runs"),
		queueKey("quantum", func(c *Config) *time.Duration { return &c.Queue.Quantum },
			"GPU time of the first level of `las`. At least `1s`"),
		queueKey("default_runtime", func(c *Config) *time.Duration { return &c.Queue.DefaultRuntime },
			"Expected run time of a job without `pal_duration`, `max_run_duration` and earlier runs of its name. When jobs without an estimate usually run longer, nomad-pal [raises this value](hints.md#run-times). It expects a job that has run longer than expected to run for as long again"),
		queueKey("job_priority", func(c *Config) *bool { return &c.Queue.JobPriority },
			"Jobs with a higher Nomad `priority` go first in every `order`. With `fair_share`, they go first only within their tenant. For them, nomad-pal stops jobs of a lower priority that allow it. Overdue gangs still get their `overdue_share`. Any user can choose any priority up to the servers' `job_max_priority` (100)"),
		queueKey("fair_share", func(c *Config) *bool { return &c.Queue.FairShare },
			"The tenant that has used the least GPU time relative to its weight goes first. Older use counts less (`usage_half_life`), and each GPU in use counts as one additional GPU hour"),
		{Block: "queue", Name: "usage_half_life", zero: true, field: func(c *Config) any { return &c.Queue.HalfLife },
			Doc: "After this time, used GPU time counts half in `fair_share`, as with Slurm's `PriorityDecayHalfLife`. With 0, only GPUs in use count"},
	}
}

// setClasses parses default_preempt.
func setClasses(c *Config, value string) error {
	var classes []pal.AppClass
	for _, name := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' }) {
		class, err := pal.ParseAppClass(name)
		if err != nil {
			return err
		}
		classes = append(classes, class)
	}
	c.DefaultPreempt = classes
	return nil
}

func classNames(classes []pal.AppClass) (names []string) {
	for _, class := range classes {
		names = append(names, string(class))
	}
	return names
}

// parsed returns the functions that parse and format a field whose value is one of several names.
func parsed[T ~string](parse func(string) (T, error), field func(*Config) *T) *text {
	return &text{
		set: func(c *Config, value string) error {
			v, err := parse(value)
			if err == nil {
				*field(c) = v
			}
			return err
		},
		get: func(c *Config) string { return string(*field(c)) },
	}
}
