// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"maps"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
)

// Options say how Nomad's state becomes a cluster, and what jobs leave to the configuration.
type Options struct {
	Ledger ledger.Options
	// Apps maps `pal_app` to application classes; DefaultClass is for jobs that
	// say nothing.
	Apps         map[string]pal.AppClass
	DefaultClass pal.AppClass
	// DefaultPreempt reports whether batch jobs of a namespace and class may be stopped that do not say
	// so themselves, and where that is said; nil: none may.
	DefaultPreempt func(namespace string, class pal.AppClass) (may bool, from string)
	// Learned gives the class that was learned for jobs that say nothing; nil:
	// nothing is.
	Learned func(*api.Job) (pal.AppClass, bool)
	// Runs are the remembered runs of the job's name with this many GPUs; nil: none.
	Runs func(job *api.Job, gpus int) queue.PastRuns
	// Slower is [pal.Sharing.Slower] of a job that is queued or runs; nil: nothing is known.
	Slower func(cluster.JobKey) [pal.NumClasses]float64
	// Children: dispatched and periodic jobs can be registered.
	Children bool
	// OutlierThreshold is the PM score above which a GPU is an outlier; 0: none is.
	OutlierThreshold float64
}

// View is the ledger as jobs see it that ask for GPUs: which of them each may use.
type View struct {
	*ledger.Ledger
	opts Options
	// eligibility caches which device groups may serve an ask, by its text.
	eligibility map[string]eligibility
	// lasting caches what lastingly keeps asks from nodes.
	lasting map[string][]Obstacle
	// avoiding caches preferences that leave out nodes, by those and what is
	// eligible: the queue tells kinds of gangs by their slices.
	avoiding map[string][][]bool
	// models are the GPU models by the last part of their names; nil: to be worked out.
	models map[string][]string
}

// NewView is a view over a new ledger: see [ledger.New].
func NewView(s *cluster.State, o Options, without ...cluster.JobKey) (*View, error) {
	o.Ledger.Occupant = o.occupants(s)
	l, err := ledger.New(s, o.Ledger, without...)
	if err != nil {
		return nil, err
	}
	return &View{Ledger: l, opts: o, eligibility: map[string]eligibility{}, lasting: map[string][]Obstacle{}, avoiding: map[string][][]bool{}}, nil
}

// Update is [ledger.Ledger.Update], with what is known of asks.
func (v *View) Update(s *cluster.State, o Options) bool {
	epoch := v.Epoch()
	o.Ledger.Occupant = o.occupants(s)
	if !v.Ledger.Update(s, o.Ledger) {
		return false
	}
	if v.opts = o; v.Epoch() != epoch {
		clear(v.eligibility)
		clear(v.lasting)
		clear(v.avoiding)
		v.models = nil
	}
	return true
}

// Clone is a copy that changes by itself, over a clone of its state, with the runs (see [Options])
// of a clone of the queue.
func (v *View) Clone(of *cluster.State, runs func(*api.Job, int) queue.PastRuns) *View {
	o := *v
	o.opts.Runs = runs
	o.Ledger = v.Ledger.Clone(of)
	o.eligibility, o.lasting, o.avoiding = maps.Clone(v.eligibility), maps.Clone(v.lasting), maps.Clone(v.avoiding)
	for key, e := range o.eligibility {
		e.values = maps.Clone(e.values)
		o.eligibility[key] = e
	}
	return &o
}
