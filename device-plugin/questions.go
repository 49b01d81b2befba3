// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"math/bits"
	"slices"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// basicLimit is how many basic questions must fail at a time to make a GPU unhealthy. One may
// be a broken sensor.
const basicLimit = 2

// questions remembers which questions failed in the last readings of a GPU.
//
// A single failure must not take a GPU away: a question counts when it failed in two of three
// readings, and no longer when it was answered in eight in a row. The end takes longer than the
// beginning, so that a sensor that fails now and then does not change the GPU's health each
// time: every change registers the node again. The first reading of all decides at once, as
// nothing better is known.
type questions struct {
	asked bool // there was a reading
	last  map[string]question
}

// question is the history of one question.
type question struct {
	code   int   // of its failure; of the first since it counts, as the reason must not change
	failed uint8 // a bit for each of eight readings, the last one the lowest
	counts bool
}

const threeReadings = 0b111

// take notes which questions failed in a reading. A GPU that is lost or does
// not answer was asked nothing. A GPU that does not tell its identity was asked
// nothing else.
func (q *questions) take(s gpu.Signals) {
	if s.Lost || s.Unanswered && len(s.Failed) == 0 {
		return
	}
	now := map[string]question{}
	for name, old := range q.last {
		if !s.Unanswered || slices.ContainsFunc(s.Failed, func(f gpu.Failure) bool { return f.Function == name }) {
			old.failed <<= 1
		}
		now[name] = old
	}
	for _, f := range s.Failed {
		is := now[f.Function]
		is.failed |= 1
		if !is.counts {
			is.code = f.Code
		}
		if !q.asked {
			is.failed = threeReadings
		}
		now[f.Function] = is
	}
	q.asked, q.last = true, now
	for name, is := range now {
		is.counts = is.failed != 0 && (is.counts || bits.OnesCount8(is.failed&threeReadings) > 1)
		if now[name] = is; !is.counts && is.failed&threeReadings == 0 {
			delete(now, name)
		}
	}
}

// counted are the failures that count, of at least a weight, in the order of [gpu.Questions].
func (q *questions) counted(least gpu.Weight) (out []gpu.Failure) {
	for name, is := range q.last {
		if is.counts && gpu.WeightOf(name) >= least {
			out = append(out, gpu.Failure{Function: name, Code: is.code})
		}
	}
	gpu.SortFailures(out)
	return out
}

// unsettled reports whether the next readings decide about a question.
func (q *questions) unsettled() bool {
	for _, is := range q.last {
		if !is.counts || is.failed&1 == 0 {
			return true
		}
	}
	return false
}
