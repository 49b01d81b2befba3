// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpRelease = help("release [options] <job> | -all", `
Restores a job as its author wrote it, without gate and pins, and leaves it to
Nomad. If this changes the device blocks of a running gang, Nomad restarts the gang,
maybe on other GPUs; -gate-only keeps the pins of running jobs.

If the job is held (nomad-pal hold), release only lifts the hold, as scontrol release does.

Release Options:

  -all                     All jobs that carry a gate or pins, in all namespaces
                           unless -namespace selects one.
  -gate-only               Only remove gates; keep the pins of running jobs.
`, examples(
	"Leave one job to Nomad:", "nomad-pal release train",
	"Before you remove nomad-pal; running jobs keep running:", "nomad-pal release -all -gate-only",
), outputOptions, generalOptions)

func runRelease(b *base, args []string) int {
	fs := b.flags("release")
	all := fs.Bool("all", false, "")
	gateOnly := fs.Bool("gate-only", false, "")
	rest, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	if *all && len(rest) > 0 || !*all && len(rest) != 1 {
		return b.fail(fmt.Errorf("give one job, or use -all"))
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	if !*all {
		if held, err := isHeld(b, rest[0]); err != nil {
			return b.fail(err)
		} else if held {
			return unhold(b, rest)
		}
	}
	state, err := client.Resync(b.ctx, nil)
	if err != nil {
		return b.fail(err)
	}
	if k := (cluster.JobKey{Namespace: b.namespace, ID: strings.Join(rest, "")}); !*all && state.Jobs[k] == nil {
		if _, err := client.Job(b.ctx, k); nomad.Refused(err) { // Resync does not list jobs that the token may not see
			return b.fail(err)
		}
		return b.fail(cmp.Or(b.noNamespace(client, b.namespace), fmt.Errorf("%w %q with GPUs in namespace %q", nomad.ErrNoJob, k.ID, k.Namespace)))
	}
	released := []string{}
	for tries := 1; ; tries++ {
		done, err := releaseOf(b, client, state, *gateOnly, func(k cluster.JobKey) bool {
			within := k.Namespace == b.namespace || *all && (!b.given("namespace") || b.namespace == api.AllNamespacesNamespace)
			return within && (*all || k.ID == rest[0]) && !slices.Contains(released, k.String())
		})
		released = append(released, done...)
		if errors.Is(err, nomad.ErrConflict) && tries < mostReleases { // an active placer changed the job at the same time
			state, err = client.Resync(b.ctx, nil)
		} else if err == nil {
			break
		}
		if err != nil {
			b.printEach(released, "Released", "")
			return b.fail(err)
		}
	}
	if len(released) == 0 && b.given("namespace") {
		if err := b.noNamespace(client, b.namespace); err != nil {
			return b.fail(err)
		}
	}
	return b.show(released, func() { b.printEach(released, "Released", "Nothing to release.") })
}

// mostReleases is the maximum number of tries if jobs change during a release.
const mostReleases = 10

// releaseOf removes gates and pins from the wanted jobs. With gateOnly, jobs with running members
// keep their pins. releaseOf stops at the first error, and returns the jobs that it has released.
func releaseOf(b *base, client *nomad.Client, state *cluster.State, gateOnly bool, wanted func(cluster.JobKey) bool) (released []string, err error) {
	for _, k := range state.SortedJobs() {
		job := state.Jobs[k]
		_, pinned := rewrite.Pinned(job)
		if !wanted(k) || cluster.Ended(job) || !rewrite.Gated(job) && (!pinned || gateOnly) {
			continue
		}
		out := rewrite.Author(job)
		if gateOnly && slices.ContainsFunc(state.AllocsOf(k), (*cluster.Alloc).Live) { // jobs without live members also lose their pins
			out = rewrite.Open(job)
		}
		if _, err := client.Register(b.ctx, out, *job.JobModifyIndex); err != nil {
			return released, err
		}
		released = append(released, k.String())
	}
	return released, nil
}

// isHeld reports whether somebody has put the job on hold. If no agent answers, isHeld returns
// false, so that the job is released.
func isHeld(b *base, id string) (bool, error) {
	a, err := b.ask()
	if lacksAgent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	jobs, err := a.Jobs()
	for _, j := range jobs {
		if j.Namespace == b.namespace && j.Job == id {
			return j.Held, nil
		}
	}
	return false, err
}

func unhold(b *base, ids []string) int {
	told, err := tell(b, ids, agent.ControlRequest{}, "unhold")
	if err != nil {
		return b.fail(err)
	}
	jobs := each(told, func(c controlled) string { return c.Job })
	return b.show(jobs, func() { b.printEach(jobs, "Lifted the hold on", "") })
}
