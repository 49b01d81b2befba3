// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"maps"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
)

// Options are settings for how the view reads Nomad's state, and the defaults for jobs.
type Options struct {
	Ledger ledger.Options
	// Apps maps the names of applications in pal_class to application classes. DefaultClass is the
	// class of jobs without pal_class.
	Apps         map[string]pal.AppClass
	DefaultClass pal.AppClass
	// DefaultPreempt decides for batch jobs without pal_preempt, by namespace and class, whether
	// the placer may stop them; nil means no. from is the configuration key that decides.
	DefaultPreempt func(namespace string, class pal.AppClass) (may bool, from string)
	// Runs returns the recorded runs of jobs with the same name and number of GPUs; nil: none.
	Runs func(job *api.Job, gpus int) queue.PastRuns
	// Slower returns [pal.Sharing.Slower] for a queued or running job; nil: unknown for all jobs.
	Slower func(cluster.JobKey) [pal.NumClasses]float64
	// Children reports whether the placer can register runs of parameterized and periodic jobs.
	Children bool
	// OutlierThreshold is the PM score above which a GPU is an outlier; 0: there are no outliers.
	OutlierThreshold float64
}

// View is a ledger that also knows which GPUs each job may use.
type View struct {
	*ledger.Ledger
	opts Options
	// eligibility caches, by [eligibilityKey], which device groups may serve a request.
	eligibility map[string]eligibility
	// lasting caches the lasting obstacles of requests.
	lasting map[string][]palapi.Obstacle
	// avoiding caches the preferences that [View.Avoid] makes. A key consists of the nodes to avoid
	// and the eligible device groups. The cache must return the same slices each time, because the
	// queue compares gangs by the identity of their slices.
	avoiding map[string][][]bool
	// models maps the last part of a GPU model's name to the full names; nil: not computed yet.
	models map[string][]string
}

// NewView returns a view over a new ledger: see [ledger.New].
func NewView(s *cluster.State, o Options, without ...cluster.JobKey) (*View, error) {
	o.Ledger.Occupant = o.occupants(s)
	l, err := ledger.New(s, o.Ledger, without...)
	if err != nil {
		return nil, err
	}
	return &View{Ledger: l, opts: o, eligibility: map[string]eligibility{}, lasting: map[string][]palapi.Obstacle{}, avoiding: map[string][][]bool{}}, nil
}

// Update calls [ledger.Ledger.Update], and drops cached results that are no longer valid.
func (v *View) Update(s *cluster.State, o Options) bool {
	epoch := v.Epoch()
	o.Ledger.Occupant = o.occupants(s)
	if !v.Ledger.Update(s, o.Ledger) {
		return false
	}
	v.opts = o
	if v.Epoch() != epoch {
		clear(v.eligibility)
		clear(v.lasting)
		clear(v.avoiding)
		v.models = nil
	}
	return true
}

// Clone returns an independent copy of the view, given a clone of the view's state. runs replaces
// [Options.Runs], because a clone of the queue has its own past runs.
func (v *View) Clone(of *cluster.State, runs func(*api.Job, int) queue.PastRuns) *View {
	o := *v
	o.opts.Runs = runs
	o.Ledger = v.Ledger.Clone(of)
	o.eligibility = maps.Clone(v.eligibility)
	o.lasting = maps.Clone(v.lasting)
	o.avoiding = maps.Clone(v.avoiding)
	for key, e := range o.eligibility {
		e.values = maps.Clone(e.values)
		o.eligibility[key] = e
	}
	return &o
}
