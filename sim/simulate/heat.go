// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim"
)

// heat records when each GPU was busy, and how slow the GPU was for its job.
type heat struct {
	since map[int]span // by job: its current span
	spans []span
	last  time.Duration
	cells [][]cell // by GPU, then time slot
}

// span is one run of a job on its GPUs.
type span struct {
	from, to time.Duration
	gpus     []int
	class    int
}

// cell is one GPU in one slot of time. busy is the share of the slot in which the GPU was busy, and
// slow is this share times the GPU's PM score.
type cell struct{ busy, slow float64 }

const (
	heatSlots = 120
	heatGPUs  = 256 // maximum number of GPUs to draw
)

func newHeat() *heat { return &heat{since: map[int]span{}} }

// watch records which jobs run on which GPUs.
func (r *Report) watch(c *sim.Config) {
	if r.heat == nil {
		return
	}
	c.Observe = func(now time.Duration, job int, kind string, p pal.Placement) {
		r.heat.change(now, job, c.Jobs[job].Class.Index(), p.GPUs(), kind == "start" || kind == "resume")
	}
}

// change ends the job's current span and, if the job continues to run, begins the next span.
func (h *heat) change(now time.Duration, job, class int, gpus []int, runs bool) {
	h.last = max(h.last, now)
	if s, ok := h.since[job]; ok {
		s.to = now
		h.spans = append(h.spans, s)
		delete(h.since, job)
	}
	if runs {
		h.since[job] = span{from: now, gpus: gpus, class: class}
	}
}

// paint turns the spans into cells.
func (h *heat) paint(c *pal.Cluster) {
	if h.last == 0 {
		return
	}
	h.cells = make([][]cell, min(heatGPUs, c.NumGPUs()))
	for i := range h.cells {
		h.cells[i] = make([]cell, heatSlots)
	}
	slot := h.last.Seconds() / heatSlots
	for _, s := range h.spans {
		for _, u := range s.gpus {
			if u < len(h.cells) {
				h.add(h.cells[u], s, slot, float64(c.GPU(u).Scores[s.class]))
			}
		}
	}
}

func (h *heat) add(row []cell, s span, slot, score float64) {
	from, to := s.from.Seconds(), s.to.Seconds()
	for i := int(from / slot); i < heatSlots && float64(i)*slot < to; i++ {
		share := (min(to, float64(i+1)*slot) - max(from, float64(i)*slot)) / slot
		row[i].busy += share
		row[i].slow += share * score
	}
}
