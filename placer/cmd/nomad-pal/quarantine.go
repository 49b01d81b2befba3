// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

var helpQuarantine = help("quarantine [options] | -reason <text> [options] <gpu>... | -lift [options] <gpu>... | -lift -all", `
Shows the quarantined GPUs, until when, and why. These GPUs get no new jobs, because
jobs failed on them, or because an operator has put them in quarantine. With -reason,
puts GPUs in quarantine; jobs that run on these GPUs keep running. With -lift, ends the quarantine of
GPUs early. A running agent reads the change within seconds, and forgets the failures
on these GPUs. Unhealthy GPUs still get no jobs.

`+placesHelp[1:]+`
Quarantine Options:

  -reason=<text>           Put the given GPUs in quarantine. At most 200 bytes. Anyone who can
                           see the GPU can read it.
  -time=<duration>         With -reason: for how long, 90m or 2d. Default: until it is lifted.
  -lift                    Lift the quarantine of the given GPUs.
  -all                     With -lift: all GPUs in quarantine.
`, examples(
	"Which GPUs are quarantined, and why?", "nomad-pal quarantine",
	"Keep jobs off a GPU whose fan is to be replaced:", "nomad-pal quarantine -reason 'fan is replaced on Monday' GPU-8d3f1c02",
	"After a GPU was replaced or reset:", "nomad-pal quarantine -lift GPU-8d3f1c02",
), outputOptions, generalOptions)

func runQuarantine(b *base, args []string) int {
	fs := b.flags("quarantine")
	lift := fs.Bool("lift", false, "")
	all := fs.Bool("all", false, "")
	why := fs.String("reason", "", "")
	long := fs.String("time", "", "")
	gpus, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	switch {
	case b.given("reason"):
		return putInQuarantine(b, gpus, *why, *long, *lift || *all)
	case b.given("time"):
		return b.fail(errors.New("-time requires -reason"))
	case !*lift && (*all || len(gpus) > 0):
		return b.fail(errors.New("GPU ids require -reason or -lift, and -all requires -lift; see nomad-pal quarantine -help"))
	case *lift && *all == (len(gpus) > 0):
		return b.fail(errors.New("give GPU ids, or use -all"))
	case *lift:
		return b.lift(gpus)
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	qs, err := quarantined(b, client)
	if err != nil {
		return b.fail(err)
	}
	return b.show(qs, func() {
		if len(qs) == 0 {
			b.io.printf("No GPU is in quarantine.\n")
			return
		}
		_, known, _ := gpusIfAny(b) // without an answer, ids are shown
		printQuarantine(b, qs, known)
	})
}

// putInQuarantine puts GPUs in quarantine. Each of the texts in gpus must name exactly one known
// GPU: see [oneGPU].
func putInQuarantine(b *base, gpus []string, why, long string, lifts bool) int {
	span, err := palapi.LongestQuarantine, error(nil)
	if long != "" {
		if span, err = rewrite.ParseSpan(long); err != nil {
			return b.fail(fmt.Errorf("-time %q is %w", long, err))
		}
	}
	switch {
	case lifts:
		return b.fail(errors.New("-reason cannot be combined with -lift or -all"))
	case why == "" || len(why) > palapi.LongestWhy:
		return b.fail(fmt.Errorf("-reason must have 1 to %d bytes", palapi.LongestWhy))
	case len(gpus) == 0:
		return b.fail(errors.New("give at least one GPU"))
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	a, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	known, err := a.GPUs()
	if err != nil {
		return b.fail(err)
	}
	ids := each(known, func(g palapi.GPU) string { return g.ID })
	for i, name := range gpus {
		if gpus[i], err = oneGPU(known, ids, "GPU", name); err != nil {
			return b.fail(err)
		}
	}
	if err := placer.PutInQuarantine(b.ctx, client, span, why, gpus...); err != nil {
		return b.fail(err)
	}
	haveReread(b, a)
	qs, err := quarantined(b, client)
	if err != nil {
		return b.fail(err)
	}
	maps.DeleteFunc(qs, func(id string, _ palapi.Quarantine) bool { return !slices.Contains(gpus, id) })
	return b.show(qs, func() { b.io.printEach(gpus, "In quarantine:", "") })
}

// beginningWith returns the GPU whose whole id is prefix or, if there is none, all GPUs whose ids
// begin with prefix. The id of a part of a shared GPU stands for the whole GPU. A MIG instance
// counts as a GPU.
func beginningWith(ids []string, prefix string) []string {
	prefix = attr.GPUOf(prefix)
	if slices.Contains(ids, prefix) {
		return []string{prefix}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, prefix) })
}

// haveReread asks the active agent to read the quarantine again. If a is nil, no agent has
// answered, and the agent notices the change when it next reads the quarantine.
func haveReread(b *base, a *answers) {
	if a == nil {
		return
	}
	if _, err := a.agent.Raw().Write("/v1/reread", struct{}{}, nil, (&api.WriteOptions{}).WithContext(b.ctx)); err != nil {
		b.io.complain("Note: the agent was not notified, so the change can take effect later: " + oneLine(a.plain(err).Error()))
	}
}

// quarantined returns the GPUs that are in quarantine now.
func quarantined(b *base, client *nomad.Client) (map[string]palapi.Quarantine, error) {
	qs, err := placer.ReadQuarantine(b.ctx, client)
	now := time.Now()
	maps.DeleteFunc(qs, func(_ string, q palapi.Quarantine) bool { return !now.Before(q.Until) })
	return qs, b.damaged(err)
}

func (b *base) lift(gpus []string) int {
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	a, known, err := gpusIfAny(b)
	if err != nil {
		return b.fail(err)
	}
	qs, err := quarantined(b, client)
	if err != nil {
		return b.fail(err)
	}
	for i, name := range gpus {
		if gpus[i], err = oneGPU(known, slices.Collect(maps.Keys(qs)), "GPU in quarantine", name); err != nil {
			return b.fail(err)
		}
	}
	lifted, err := placer.LiftQuarantine(b.ctx, client, gpus...)
	if err != nil {
		return b.fail(err)
	}
	haveReread(b, a)
	return b.show(lifted, func() { b.io.printEach(lifted, "Lifted the quarantine of", "No GPU is in quarantine.") })
}

// gpusIfAny returns the cluster's GPUs. If no agent answers, gpusIfAny returns nil.
func gpusIfAny(b *base) (a *answers, known []palapi.GPU, err error) {
	if a, err = b.ask(); err != nil {
		if lacksAgent(err) {
			err = nil
		}
		return nil, nil, err
	}
	known, err = a.GPUs()
	return a, known, err
}

// printQuarantine prints the GPUs in quarantine. known are the cluster's GPUs.
func printQuarantine(b *base, qs map[string]palapi.Quarantine, known []palapi.GPU) {
	rows, ids := []string{row("GPU", "Id", "Bus id", "Until", "Strikes", "Reason")}, slices.Sorted(maps.Keys(qs))
	shortID := b.io.shortIDs(ids)
	for _, id := range ids {
		short := shortID(id)
		name, bus := "-", "-"
		i := slices.IndexFunc(known, func(g palapi.GPU) bool { return attr.GPUOf(g.ID) == id })
		if i >= 0 {
			name, bus = palapi.GPUName(short, known[i].Node, known[i].Index, len(id)), cmp.Or(known[i].BusID, "-")
		}
		q := qs[id]
		rows = append(rows, row(name, short, bus, untilWhen(q), q.Strikes, oneLine(q.Reason)))
	}
	b.io.table(rows)
}

// untilWhen returns the end of a GPU's quarantine as text.
func untilWhen(q palapi.Quarantine) string {
	if q.Endless() {
		return "it is lifted"
	}
	return clock(q.Until)
}
