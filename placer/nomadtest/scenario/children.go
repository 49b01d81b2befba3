// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// template returns a parameterized job.
func template() *api.Job {
	job := gang("a", 1)
	job.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "optional", MetaRequired: []string{"seed"}, MetaOptional: []string{"rate"}}
	job.Meta = map[string]string{"rate": "1", "of": "all"}
	return job
}

// dispatch dispatches a job and returns its ID. If Nomad refuses, dispatch prints the error and
// returns "".
func (x *Script) dispatch(meta map[string]string, token string) string {
	r, _, err := x.API().Jobs().DispatchOpts(&api.DispatchOptions{JobID: x.id("a"), Meta: meta}, &api.WriteOptions{IdempotencyToken: token})
	if err != nil {
		x.refused(err)
		return ""
	}
	x.called(r.DispatchedJobID, "child")
	return r.DispatchedJobID
}

// called gives a job a name for the output. The name is the same in each run.
func (x *Script) called(id, what string) {
	if x.names == nil {
		x.names = map[string]string{}
	}
	if x.names[id] == "" {
		x.names[id] = fmt.Sprintf("%s %d", what, len(x.names)+1)
	}
}

// child prints the properties and then the state of a dispatched or periodic job.
func (x *Script) child(id string) {
	job := x.now(id)
	form := numbers.ReplaceAllString(strings.TrimPrefix(identity8.ReplaceAllString(x.short(id), "-ID"), "a"), "N")
	var meta []string
	for k, v := range job.Meta {
		meta = append(meta, k+"="+v)
	}
	slices.Sort(meta)
	fmt.Fprintf(&x.out, "%s is a%s, named as its id: %v, of %q, dispatched %v, parameterized %v, periodic %v, priority %d, meta %v\n",
		x.named(id), form, *job.Name == id, x.short(*job.ParentID), job.Dispatched, job.ParameterizedJob != nil, job.Periodic != nil, *job.Priority, meta)
	x.show(id)
}

// dispatched shows the jobs that are dispatched from a parameterized job.
func dispatched(x *Script) {
	x.register(x.pinned(template(), "GPU-0-0", "GPU-0-1"))
	x.show("a")
	one := x.dispatch(map[string]string{"seed": "1", "rate": "2"}, "")
	x.child(one)
	x.say("with a token, twice")
	x.child(x.dispatch(map[string]string{"seed": "2"}, "once"))
	x.child(x.dispatch(map[string]string{"seed": "3"}, "once"))
	x.say("without a required metadata key, and with one that is not permitted")
	x.dispatch(nil, "")
	x.dispatch(map[string]string{"seed": "1", "other": "1"}, "")
	x.say("a child over HTTP")
	x.register(x.now(one))
	x.show(one)
	x.say("a child is stopped, and run again over HTTP")
	x.stop(one)
	x.register(x.now(one))
	x.say("a job without parameters")
	x.register(gang("a", 1))
	x.show("a")
}

// templateEdited shows that waiting dispatched jobs do not change when their parameterized job is
// edited, stopped, purged or registered again.
func templateEdited(x *Script) {
	job := x.pinned(template(), "GPU-0-0")
	x.register(job)
	one, two := x.dispatch(map[string]string{"seed": "1"}, ""), x.dispatch(map[string]string{"seed": "2"}, "")
	x.show(one)
	x.show(two)
	x.say("the template is edited")
	job.Priority = new(60)
	x.register(job)
	x.show("a")
	x.child(two)
	three := x.dispatch(map[string]string{"seed": "3"}, "")
	x.child(three)
	x.say("stopped")
	x.stop("a")
	x.dispatch(map[string]string{"seed": "4"}, "")
	x.say("the first child ends")
	x.stop(one)
	x.untilRunning(three, 1)
	x.show(two)
	x.show(three)
	x.say("the template is purged")
	_, _, err := x.API().Jobs().Deregister(x.id("a"), true, nil)
	x.must(err)
	x.show("a")
	x.dispatch(map[string]string{"seed": "5"}, "")
	x.stop(three)
	x.untilRunning(two, 1)
	x.child(two)
	x.say("and back")
	x.register(job)
	x.child(two)
}

// periodic shows the jobs that Nomad launches for a periodic job.
func periodic(x *Script) {
	job := gang("a", 1)
	job.Periodic = &api.PeriodicConfig{Specs: []string{"0 0 1 1 *"}, ProhibitOverlap: new(true)}
	x.register(x.pinned(job, "GPU-0-0", "GPU-0-1"))
	x.show("a")
	one := x.force()
	x.child(one)
	x.say("again, while it runs")
	two := x.force()
	x.child(two)
	x.say("a gated child that is submitted over HTTP")
	x.register(rewrite.Gate(x.now(two)))
	x.child(two)
	x.say("a job that is not periodic")
	x.register(gang("a", 1))
	x.say("stopped")
	x.stop("a")
	_, _, err := x.API().Jobs().PeriodicForce(x.id("a"), nil)
	x.refused(err)
	x.show(one)
}

// force launches a job for the periodic job at once, and returns the new job's ID. Before that,
// force waits for more than a second, because IDs contain the time in seconds.
func (x *Script) force() (id string) {
	x.elapse(1100 * time.Millisecond)
	before := x.children()
	_, _, err := x.API().Jobs().PeriodicForce(x.id("a"), nil)
	x.must(err)
	x.Until("it is launched", func() bool { return len(x.children()) > len(before) })
	for _, c := range x.children() {
		if !slices.Contains(before, c) {
			x.called(c, "child")
			return c
		}
	}
	Fail(errors.New("no child was launched"))
	return ""
}

// elapse lets time pass.
func (x *Script) elapse(d time.Duration) {
	end := time.Now().Add(d)
	x.Until("time passes", func() bool { return time.Now().After(end) })
}

// children returns the IDs of the dispatched or periodic jobs.
func (x *Script) children() (ids []string) {
	jobs, _, err := x.API().Jobs().List(&api.QueryOptions{Prefix: x.id("a") + "/"})
	x.must(err)
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// launched shows that only one job of a periodic job runs at a time, although Nomad could launch a
// job each second.
func launched(x *Script) {
	job := bed.Gang{Name: "a", Runs: 3 * time.Second, Ungated: true, Change: endsSoon}.Job()
	job.Periodic = &api.PeriodicConfig{Specs: []string{"* * * * * * *"}, ProhibitOverlap: new(true)}
	x.register(x.pinned(job, "GPU-0-0", "GPU-0-1"))
	most := 0
	x.Until("three children have ended", func() bool {
		running, ended := 0, 0
		for _, c := range x.children() {
			switch *x.now(c).Status {
			case "dead":
				ended++
			default:
				running++
			}
		}
		most = max(most, running)
		return ended >= 3
	})
	fmt.Fprintf(&x.out, "%d at a time\n", most)
	x.say("the template is edited while a child runs, and stopped when the child has ended")
	x.register(rewrite.Gate(job))
	x.Until("a child waits", func() bool {
		return slices.ContainsFunc(x.children(), func(c string) bool { return *x.now(c).Status == "pending" })
	})
	n := len(x.children())
	x.elapse(3 * time.Second)
	fmt.Fprintf(&x.out, "more children while one waits: %v\n", len(x.children()) > n)
	x.stop("a")
	x.elapse(3 * time.Second)
	fmt.Fprintf(&x.out, "more children of a stopped template: %v\n", len(x.children()) > n)
}
