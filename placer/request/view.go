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

// Options control how Nomad's state becomes a cluster, and set defaults for jobs.
type Options struct {
	Ledger ledger.Options
	// Apps maps pal_app to application classes. DefaultClass is for jobs that set neither pal_class
	// nor pal_app.
	Apps         map[string]pal.AppClass
	DefaultClass pal.AppClass
	// DefaultPreempt reports whether batch jobs of a namespace and class may be stopped if they do
	// not set pal_preempt, and which configuration key decides that. nil: they must not be stopped.
	DefaultPreempt func(namespace string, class pal.AppClass) (may bool, from string)
	// Learned returns the class learned for a job that sets none; nil: nothing is learned.
	Learned func(*api.Job) (pal.AppClass, bool)
	// Runs returns the recorded runs of the job's name with this many GPUs; nil: none.
	Runs func(job *api.Job, gpus int) queue.PastRuns
	// Slower returns [pal.Sharing.Slower] of a queued or running job; nil: nothing is known.
	Slower func(cluster.JobKey) [pal.NumClasses]float64
	// Children: the placer can register dispatched and periodic jobs.
	Children bool
	// OutlierThreshold is the PM score above which a GPU is an outlier; 0: there are no outliers.
	OutlierThreshold float64
}

// View is the ledger from the point of view of jobs: which GPUs each job may use.
type View struct {
	*ledger.Ledger
	opts Options
	// eligibility caches which device groups may serve a request, by [eligibilityKey].
	eligibility map[string]eligibility
	// lasting caches the lasting obstacles of requests.
	lasting map[string][]Obstacle
	// avoiding caches preferences that leave out nodes. A key consists of these nodes and the
	// eligible groups. The cache must return the same slices each time, because the queue compares
	// gangs by their slices.
	avoiding map[string][][]bool
	// models are the GPU models by the last part of their names; nil: not computed yet.
	models map[string][]string
}

// NewView returns a view over a new ledger: see [ledger.New].
func NewView(s *cluster.State, o Options, without ...cluster.JobKey) (*View, error) {
	o.Ledger.Occupant = o.occupants(s)
	l, err := ledger.New(s, o.Ledger, without...)
	if err != nil {
		return nil, err
	}
	return &View{Ledger: l, opts: o, eligibility: map[string]eligibility{}, lasting: map[string][]Obstacle{}, avoiding: map[string][][]bool{}}, nil
}

// Update is [ledger.Ledger.Update]; it also drops cached results that have become invalid.
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

// Clone returns an independent copy over a clone of its state. runs replaces [Options.Runs], for a
// clone of the queue.
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
