// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// variant is one policy to compare.
type variant struct {
	name    string
	queue   queue.Options
	preempt bool
	// nomad runs plain Nomad instead of our queue. A half-placed gang gives up after the time
	// rendezvous; 0 means never.
	nomad      bool
	rendezvous time.Duration
}

// variants are the baselines, the rejected alternatives, and the defaults ("ours").
func variants() []variant {
	vs := []variant{
		{name: "fifo strict", queue: options(queue.FIFO, pal.PAL)},
		{name: "nomad", nomad: true},
		{name: "nomad, rendezvous 10 min", nomad: true, rendezvous: 10 * time.Minute},
		{name: "nomad, rendezvous 30 min", nomad: true, rendezvous: 30 * time.Minute},
		{name: "tiresias", queue: preempting(queue.LAS, pal.Packed), preempt: true},
		{name: "ours without preemption", queue: queue.Default()},
		{name: "ours with preemption", queue: queue.Default(), preempt: true},
	}
	for _, order := range []queue.Order{queue.FIFO, queue.SRTF, queue.Adaptive} {
		vs = append(vs,
			variant{name: string(order) + ", backfill", queue: backfilling(options(order, pal.PAL))},
			variant{name: string(order) + ", best-effort backfill", queue: bestEffort(backfilling(options(order, pal.PAL)))})
	}
	for _, order := range []queue.Order{queue.LAS, queue.SRTF, queue.Adaptive} {
		for _, p := range []pal.PolicyName{pal.PAL, pal.PMFirst, pal.Packed} {
			vs = append(vs, variant{name: string(order) + ", preempting, " + string(p), queue: preempting(order, p), preempt: true})
		}
	}
	return append(vs, parts()...)
}

// parts are the default policies, each with one part removed.
func parts() []variant {
	var vs []variant
	for _, preempt := range []bool{false, true} {
		name := "ours without preemption"
		if preempt {
			name = "ours with preemption"
		}
		for _, part := range dropped() {
			o := queue.Default()
			part.drop(&o)
			vs = append(vs, variant{name: name + ", " + part.name, queue: o, preempt: preempt})
		}
	}
	return vs
}

type drop struct {
	name string
	drop func(*queue.Options)
}

func dropped() []drop {
	return []drop{
		{"no outliers avoided", func(o *queue.Options) { o.OutlierThreshold = 0 }},
		{"no locality wait", func(o *queue.Options) { o.LocalityWait = false }},
		{"no moves", func(o *queue.Options) { o.Migrate = false }},
		{"packed", func(o *queue.Options) { o.Placement.Name = pal.Packed }},
		{"pm-first", func(o *queue.Options) { o.Placement.Name = pal.PMFirst }},
		{"max_wait 6 h", func(o *queue.Options) { o.MaxWait = 6 * time.Hour }},
		{"max_wait 24 h", func(o *queue.Options) { o.MaxWait = 24 * time.Hour }},
		{"max_wait 48 h", func(o *queue.Options) { o.MaxWait = 48 * time.Hour }},
	}
}

func options(order queue.Order, place pal.PolicyName) queue.Options {
	return queue.Options{Order: order, Placement: pal.Policy{Name: place}}
}

func backfilling(o queue.Options) queue.Options { o.Backfill = queue.BackfillReserved; return o }
func bestEffort(o queue.Options) queue.Options  { o.Backfill = queue.BackfillBestEffort; return o }

func preempting(order queue.Order, place pal.PolicyName) queue.Options {
	o := bestEffort(backfilling(options(order, place)))
	o.Preempt = true
	return o
}
