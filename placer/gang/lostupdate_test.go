// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A series of versions ends with a lost update only if our last registration replaced the author's
// change.
func TestLostUpdate(t *testing.T) {
	t.Parallel()
	author := plainJob("j", 1)
	pin := func(job *api.Job, gpus ...string) *api.Job {
		p := rewrite.Pins{Mode: rewrite.ModeGPU}
		for _, g := range job.TaskGroups[:1] {
			p.Groups = append(p.Groups, rewrite.GroupPins{Group: *g.Name, Nodes: []string{"n1"}, GPUs: gpus})
		}
		out, err := rewrite.Pin(job, p, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	with := func(job *api.Job, change func(*api.Job)) *api.Job {
		out := *job
		change(&out)
		return &out
	}
	stop := func(job *api.Job) *api.Job { return with(job, func(j *api.Job) { yes := true; j.Stop = &yes }) }
	edit := func(job *api.Job) *api.Job { return with(job, func(j *api.Job) { p := 77; j.Priority = &p }) }
	stable := func(job *api.Job) *api.Job { return with(job, func(j *api.Job) { yes := true; j.Stable = &yes }) }
	submitted := map[*api.Job]time.Duration{}
	at := func(job *api.Job, when time.Duration) *api.Job {
		out := with(job, func(*api.Job) {})
		submitted[out] = when
		return out
	}
	scaling := func(job *api.Job, index uint64) *api.Job {
		return with(job, func(j *api.Job) {
			j.TaskGroups = slices.Clone(j.TaskGroups)
			g := *j.TaskGroups[0]
			g.Scaling = &api.ScalingPolicy{ModifyIndex: index}
			j.TaskGroups[0] = &g
		})
	}
	elastic, least, four := plainJob("e", 1), int64(1), int64(4)
	elastic.Meta = map[string]string{"pal_elastic": "true"}
	elastic.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: &least, Max: &four}
	evaluator := "evaluator"
	elastic.TaskGroups = append(elastic.TaskGroups, &api.TaskGroup{Name: &evaluator})
	count := func(job *api.Job, group, n int) *api.Job {
		return with(job, func(j *api.Job) {
			j.TaskGroups = slices.Clone(j.TaskGroups)
			g := *j.TaskGroups[group]
			g.Count = &n
			j.TaskGroups[group] = &g
		})
	}
	most := func(job *api.Job, n int64) *api.Job {
		out := count(job, 0, int(n))
		out.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: &least, Max: &n}
		return out
	}
	gated, pinned, other := rewrite.Gate(author), pin(author, "g1"), pin(author, "g2")
	for _, c := range []struct {
		name     string
		versions []*api.Job // oldest first; the last is the present one
		want     bool
	}{
		{"placed", []*api.Job{gated, pinned}, false},
		{"placed, after an edit", []*api.Job{edit(gated), gated, pinned}, false},
		{"stopped while it was placed", []*api.Job{gated, stop(gated), pinned}, true},
		{"edited while it was placed", []*api.Job{gated, edit(gated), pinned}, true},
		{"stopped long before", []*api.Job{gated, stop(gated), at(pinned, 2*raceTime)}, false},
		{"stopped, run again, placed", []*api.Job{gated, stop(gated), gated, pinned}, false},
		{"stopped, run again edited, placed", []*api.Job{gated, stop(gated), edit(gated), edit(pinned)}, false},
		{"stopped while it ran, started again", []*api.Job{gated, pinned, stop(pinned), pinned}, false},
		{"stopped while its pins were changed", []*api.Job{gated, pinned, stop(pinned), other}, true},
		{"stopped while the job was requeued", []*api.Job{gated, pinned, stop(pinned), rewrite.Gate(pinned)}, true},
		{"stopped while it waited, reverted to what ran before", []*api.Job{pinned, gated, stop(gated), pinned}, false},
		{"edited while it ran, keeps its pins", []*api.Job{gated, pinned, edit(gated), edit(pinned)}, false},
		{"run again while it runs", []*api.Job{pinned, gated, pinned}, false},
		{"scaled", []*api.Job{gated, pinned, edit(pinned)}, false},
		{"scaled and back", []*api.Job{pinned, edit(pinned), pinned}, false},
		{"requeued and placed again", []*api.Job{pinned, rewrite.Gate(pinned), other}, false},
		{"edited while it waited, placed, stopped", []*api.Job{gated, edit(gated), stop(pinned)}, false},
		{"edited when it was stopped, reverted", []*api.Job{stop(gated), edit(gated), pinned}, false},
		{"stopped with its scaling", []*api.Job{scaling(gated, 1), stop(gated), scaling(pinned, 3)}, true},
		{"edited and placed while a placer's write took long", []*api.Job{gated, edit(gated), edit(pinned), other}, true},
		{"edited, placed and reverted", []*api.Job{gated, other, edit(gated), edit(pinned), other}, false},
		{"edited while Nomad took long to write", []*api.Job{gated, edit(gated), at(pinned, -2*raceTime)}, true},
		{"stopped while Nomad took long to write what another placer decided, too", []*api.Job{gated, pinned, stop(pinned), at(pinned, -2*raceTime)}, true},
		{"requeued while Nomad took long to write", []*api.Job{gated, pinned, rewrite.Gate(pinned), at(other, -2*raceTime)}, false},
		{"stopped, started again by a clock that was put back", []*api.Job{gated, pinned, stop(pinned), at(pinned, -time.Hour)}, false},
		{"edited by a clock that was put back, while Nomad took long to write", []*api.Job{gated, pinned, at(edit(gated), -time.Hour), at(other, -2*raceTime)}, true},
		{"stopped by a clock that was put forward, while Nomad took long to write", []*api.Job{gated, at(stop(gated), time.Hour), pinned}, true},
		{"an elastic gang starts with fewer members", []*api.Job{rewrite.Gate(elastic), count(rewrite.Gate(elastic), 0, 3), count(pin(elastic, "g1"), 0, 1)}, false},
		{"an elastic gang's range was edited while it was placed", []*api.Job{rewrite.Gate(elastic), most(rewrite.Gate(elastic), 2), count(pin(elastic, "g1"), 0, 1)}, true},
		{"edited beside its elastic group while it was placed", []*api.Job{rewrite.Gate(elastic), count(rewrite.Gate(elastic), 1, 3), pin(elastic, "g1")}, true},
		{"reverted by Nomad, as its deployment failed", []*api.Job{at(pinned, 0), at(edit(gated), time.Second), at(edit(pinned), 2*time.Second), at(pinned, 0)}, false},
		{"reverted by Nomad while the edit waits", []*api.Job{at(gated, 0), at(pinned, time.Second), at(edit(gated), 2*time.Second), at(pinned, time.Second)}, false},
		{"reverted by Nomad to a version that it no longer keeps", []*api.Job{nil, at(gated, 10*time.Second), at(edit(gated), 20*time.Second), at(edit(pinned), 21*time.Second), at(stable(pinned), time.Second)}, false},
		{"edited while Nomad took long to write what has succeeded since", []*api.Job{at(gated, 0), at(edit(gated), 20*time.Second), at(stable(pinned), 10*time.Second)}, true},
		{"the base is not kept", []*api.Job{nil, stop(gated), pinned}, false},
	} {
		versions := map[uint64]*api.Job{}
		for v, j := range c.versions {
			if j != nil {
				version, when := uint64(v), int64(time.Duration(v)*time.Millisecond)
				if other, ok := submitted[j]; ok {
					when = int64(other)
				}
				versions[version] = with(j, func(j *api.Job) { j.Version, j.SubmitTime = &version, &when })
			}
		}
		if v := uint64(len(c.versions) - 1); v >= 2 {
			if got := isLostUpdate(versions, v); got != c.want {
				t.Errorf("%s: %v", c.name, got)
			}
		}
	}
}

// If somebody has registered a gang's job since its record was written, the gang must not start
// before its versions are read: another registration would hide an overwritten change.
func TestPastKnown(t *testing.T) {
	job := plainJob("j", 300)
	version := uint64(3)
	job.Version = &version
	pins := rewrite.Pins{Groups: []rewrite.GroupPins{{Group: "g"}}}
	for name, c := range map[string]struct {
		gang Lifecycle
		want bool
	}{
		"its record is not read": {Lifecycle{}, false},
		"registered since":       {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 200}}}}, false},
		"its place is not known": {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 200}}, lookedBack: true}}, false},
		"registered last by us":  {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 300}}}}, true},
		"the versions were read": {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 200}, position: position{index: 300}}, lookedBack: true}}, true},
		"that is to be undone":   {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 200}, position: position{index: 300}}, overwrote: true}}, true},
	} {
		c.gang.Observed = Observed{Job: job, Nomad: Waiting, Pins: pins}
		if got := c.gang.PastKnown(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// After each registration the gang has the request of the registered job, so the placer can act on
// a restored change in the same cycle.
func TestRequestIsThatOfTheJob(t *testing.T) {
	for _, why := range []Purpose{ToStop, ToGoOn, ToAsk, ToRestore, ToResize, ToExtend, ToCanary, ToUndo} {
		w := newFakeWorld()
		was, now := plainJob("j", 100), plainJob("j", 200)
		g := &Lifecycle{memory: memory{known: known{Observed: Observed{Job: was, Nomad: Waiting}, Request: request.Request{Job: was}}}, stop: &stopping{}, read: readings{room: &Room{}}}
		g.pending = Register{Why: why, Job: now}
		g.Step(Registered{Observed{Job: now, Nomad: Waiting}}, w)
		if g.Request.Job != now {
			t.Errorf("to %s: the request belongs to an earlier version", why)
		}
	}
}

// Our registration overwrites the author's stop, and Nomad restores an earlier version before
// anybody has seen that (walk 8000063): the job counts as stopped. A version that the author
// restored stays.
func TestStopBeforeRevert(t *testing.T) {
	t.Parallel()
	version := func(gpu string, submitted time.Duration, stop, stable bool) *api.Job {
		job, err := rewrite.Pin(plainJob("j", 1), somePins(gpu), rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		at := int64(submitted)
		job.SubmitTime, job.Stop, job.Stable = &at, &stop, &stable
		return job
	}
	const ms = time.Millisecond
	ran, stopped, canary := version("g2", time.Hour, false, false), version("g2", 2*time.Hour, true, false), version("g3", 2*time.Hour+ms/2, false, false)
	for _, c := range []struct {
		name string
		last []*api.Job // versions 7, 8, …
		want *api.Job
	}{
		{"to one that Nomad has dropped", []*api.Job{ran, stopped, canary, version("g1", time.Minute, false, true)}, stopped},
		{"to one that it keeps", []*api.Job{ran, stopped, canary, version("g2", time.Hour, false, true)}, stopped},
		{"by its author", []*api.Job{ran, stopped, canary, version("g1", 2*time.Hour+ms, false, false)}, nil},
		{"of one that was not stopped", []*api.Job{ran, version("g2", 2*time.Hour, false, false), canary, version("g1", time.Minute, false, true)}, nil},
		{"of one that its author started again", []*api.Job{ran, stopped, version("g2", 3*time.Hour, false, false), version("g1", time.Minute, false, true)}, nil},
	} {
		g := &Lifecycle{}
		g.read.versions = map[uint64]*api.Job{}
		for i, job := range c.last {
			v := uint64(7 + i)
			own := *job
			own.Version = &v
			g.read.versions[v], g.Job = &own, &own
		}
		switch got := g.stopBeforeRevert(); {
		case c.want == nil && got != nil:
			t.Errorf("%s: version %d was a lost stop", c.name, *got.Version)
		case c.want != nil && (got == nil || *got.Version != 8):
			t.Errorf("%s: no lost stop", c.name)
		}
	}
}
