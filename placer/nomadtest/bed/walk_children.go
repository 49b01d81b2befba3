// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// template turns a batch job into either a parameterized or a periodic job.
func (x *Walk) template(g *Gang) {
	if g.Change != nil || g.Runs == 0 {
		return
	}
	if x.rng.IntN(3) == 0 {
		x.Counts["submit: a periodic job"]++
		cron, overlap := []string{"* * * * *", "*/2 * * * *", "@hourly"}[x.rng.IntN(3)], x.rng.IntN(2) == 0
		// After a change of the clock, Nomad launches only one job for all missed times.
		g.Change = Periodic(cron, overlap && cron == "@hourly")
	} else {
		x.Counts["submit: a parameterized job"]++
		g.Change = Parameterized
	}
	if x.rng.IntN(3) == 0 {
		g.Meta["pal_array_parallel"] = fmt.Sprint(1 + x.rng.IntN(2))
	}
}

// someTemplate returns a random parameterized or periodic job that is not stopped and meets a
// condition.
func (x *Walk) someTemplate(so func(*api.Job) bool) (nomadtest.Key, bool) {
	var all []nomadtest.Key
	for _, k := range x.Nomad.Jobs() {
		if job := x.Nomad.Job(k); isTemplate(job) && !*job.Stop && so(job) {
			all = append(all, k)
		}
	}
	if len(all) == 0 {
		return nomadtest.Key{}, false
	}
	return all[x.rng.IntN(len(all))], true
}

// dispatch dispatches a random parameterized job one to three times.
func (x *Walk) dispatch() {
	k, ok := x.someTemplate(func(job *api.Job) bool { return job.ParameterizedJob != nil })
	if !ok {
		return
	}
	for n := range 1 + x.rng.IntN(3) {
		token := ""
		if x.rng.IntN(4) == 0 {
			token = fmt.Sprint("token ", x.rng.IntN(3))
		}
		var payload []byte
		if x.rng.IntN(10) == 0 { // the placer does not serve children with a payload
			payload = []byte("data")
		}
		r, _, err := x.Author.Jobs().Dispatch(k.ID, map[string]string{"seed": fmt.Sprint(n)}, payload, "", &api.WriteOptions{IdempotencyToken: token})
		x.try(err)
		x.Counts["dispatch: a child"]++
		if err == nil && len(payload) > 0 {
			x.Counts["dispatch: a child with a payload"]++
			x.left[Key(r.DispatchedJobID)] = true
		}
	}
}

// force launches a random periodic job at once.
func (x *Walk) force() {
	if k, ok := x.someTemplate(func(job *api.Job) bool { return job.Periodic != nil }); ok {
		_, _, err := x.Author.Jobs().PeriodicForce(k.ID, nil)
		x.try(err)
		x.Counts["force: a child"]++
	}
}

// endChild stops or purges a random dispatched or periodic job.
func (x *Walk) endChild() {
	children := slices.DeleteFunc(x.Nomad.Jobs(), func(k nomadtest.Key) bool { return *x.Nomad.Job(k).ParentID == "" })
	if len(children) == 0 {
		return
	}
	k := children[x.rng.IntN(len(children))]
	if x.rng.IntN(2) == 0 {
		x.try(x.Stop(k))
	} else {
		x.try(x.Purge(k))
	}
	x.Counts["end a child: done"]++
}

// stopTemplates stops all periodic jobs, so that they do not launch jobs forever.
func (x *Walk) stopTemplates() {
	for _, k := range x.Nomad.Jobs() {
		if job := x.Nomad.Job(k); job.Periodic != nil && !*job.Stop {
			x.try(x.Stop(k))
		}
	}
}
