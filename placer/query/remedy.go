// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// This file finds changes that would let a job run that can never run on this cluster as it is.

// remedy is a change of the job, with a description.
type remedy struct {
	Changes
	text string // "with 4 instead of 8 GPUs for each member"
}

// trial tries changes of a job on a cluster.
type trial struct {
	v   *request.View
	job *api.Job // as its author wrote it
	// left is how many more changes can be tried. Tries are limited, because each reads all nodes
	// and blocks other answers, and a job can have any number of constraints.
	left int
}

// mostTried is the maximum number of changes of one job that are tried.
const mostTried = 100

// triesOf returns how many changes of a job are tried. A try takes longer if the job has more groups,
// so the number of tries falls with the number of groups.
func triesOf(job *api.Job) int { return max(3, mostTried*10/max(10, len(job.TaskGroups))) }

// neverRuns explains which single changes would let the job run. neverRuns drops obstacles that are temporary.
func (e *draft) neverRuns(v *request.View, job *api.Job) {
	if e.Wait != nil && e.Wait.Reason == reason.Limit {
		e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.AskLess, Limit: e.Wait.Limit, User: e.Wait.User})
		return
	}
	e.Obstacles = slices.DeleteFunc(e.Obstacles, func(o palapi.Obstacle) bool { return o.Now })
	e.Decision.Walk, e.Decision.WalkOmitted = nil, 0
	found := (&trial{v, rewrite.Author(job), triesOf(job)}).find()
	for _, r := range found {
		e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.CouldRun, Cause: r.text, Try: r.Changes.String()})
	}
	if len(found) > 0 {
		e.Try = found[0].Changes.String()
		return
	}
	e.Remedies = append(e.Remedies, reason.Reason{Kind: reason.ChangeJob})
}

// find returns all changes that would let the job run.
func (t *trial) find() []remedy {
	return slices.DeleteFunc(t.remedies(), func(r remedy) bool { return !t.couldRun(r.Changes) })
}

// couldRun reports whether a changed job could run on the idle cluster. couldRun returns false once
// the limit of tries is reached.
func (t *trial) couldRun(c Changes) bool {
	if t.left == 0 {
		return false
	}
	t.left--
	changed, ok := c.of(t.job)
	if !ok {
		return false
	}
	r, err := t.v.Request(changed)
	if err != nil {
		return false
	}
	never, _ := pal.WhyNot(t.v.Cluster, r.Least())
	return !never && model.Barred(t.v.Obstacles(changed, "")).IsZero()
}

// remedies returns changes that could help. Changes of the whole job come first, then changes of
// each group: first other models, then fewer resources.
func (t *trial) remedies() (out []remedy) {
	v, job := t.v, t.job
	add := func(key, value, text string, args ...any) {
		out = append(out, remedy{Changes{key: value}, fmt.Sprintf(text, args...)})
	}
	if h, err := rewrite.ParseHints(job); err == nil && h.Locality != 0 {
		add("pal_locality", "", "without pal_locality = %s", h.Locality)
	}
	if !slices.Contains(job.Datacenters, "*") {
		add("datacenters", "*", "in any datacenter instead of %s", strings.Join(job.Datacenters, ", "))
	}
	if job.NodePool != nil && *job.NodePool != "all" {
		add("node_pool", "all", "in any node pool instead of %s", *job.NodePool)
	}
	seen := map[string]bool{}
	for _, cs := range constraintsOf(job) {
		for _, c := range *cs {
			if !seen[subject(c)] {
				seen[subject(c)] = true
				add("without", subject(c), "without its constraint on %s", subject(c))
			}
		}
	}
	several := 0
	for _, g := range job.TaskGroups {
		if rewrite.GPUsPerMember(g) > 0 {
			several++
		}
	}
	for _, g := range job.TaskGroups {
		key, of := func(what string) string { return what }, ""
		if several > 1 {
			key, of = func(what string) string { return *g.Name + "." + what }, fmt.Sprintf(" of group %q", *g.Name)
		}
		task, device, err := gpuTask(g)
		if err != nil {
			continue
		}
		t.anyModel(key("device"), device.Name, of, add)
		most := v.Largest()
		for _, r := range []struct {
			what, unit string
			has        *int
			most       int
		}{{"cpu", "MHz of CPU", task.Resources.CPU, most.CPU}, {"memory", "MB of memory", task.Resources.MemoryMB, most.MemoryMB}} {
			if r.has != nil && *r.has > r.most && r.most > 0 {
				add(key(r.what), fmt.Sprint(r.most), "with %d instead of %d %s for each member%s", r.most, *r.has, r.unit, of)
			}
		}
		t.fewer(key("gpus"), rewrite.GPUs(device), add, "with %d instead of %d GPUs for each member"+of)
		is, elastic := rewrite.ElasticOf(job)
		if elastic {
			t.fewer("min", is.Least, add, "with a min of %d instead of %d members")
		} else {
			t.fewer(key("count"), rewrite.Members(g), add, "with %d instead of %d members"+of)
		}
	}
	return out
}

// anyModel adds a change to any GPU model.
func (t *trial) anyModel(key, request, of string, add func(key, value, text string, args ...any)) {
	if !rewrite.NamesModel(request) {
		return
	}
	add(key, "nvidia/gpu", "on any GPU model of the cluster (%s) instead of %s%s", some(t.v.Models()), request, of)
}

// fewer adds a change that lowers the value of the key. The new value is the largest that would let
// the job run, or else 1.
func (t *trial) fewer(key string, now int, add func(key, value, text string, args ...any), text string) {
	if now < 2 {
		return
	}
	n := sort.Search(now-1, func(i int) bool { return !t.couldRun(Changes{key: fmt.Sprint(i + 1)}) })
	add(key, fmt.Sprint(max(n, 1)), text, max(n, 1), now)
}

// withMembers returns a gang of one member set with n members.
func withMembers(g pal.Gang, n int) pal.Gang {
	g.MemberSets = slices.Clone(g.MemberSets)
	g.MemberSets[0].Members = n
	return g
}
