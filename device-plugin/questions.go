// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"math/bits"
	"slices"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// basicLimit is how many basic questions must fail at the same time to make a GPU unhealthy. A
// single failure may come from a broken sensor.
const basicLimit = 2

// questions remembers which questions failed in a GPU's last readings.
//
// A question begins to count when it has failed in two of three readings. The question stops
// counting when it has been answered in eight readings in a row. Every change of health registers
// the node again, so a sensor that fails now and then must not cause changes. The first reading
// decides at once, because the GPU has no history yet.
type questions struct {
	asked bool // there was a reading
	last  map[string]question
}

// question is the history of one question.
type question struct {
	code   int   // code of the failure that made the question count; it stays, because the health reason must not change
	failed uint8 // one bit for each of the last eight readings; the lowest is the latest
	counts bool
}

const threeReadings = 0b111

// take records which questions failed in a reading. A GPU that is lost or silent was not asked any
// question. A GPU without a known identity was asked only for its identity.
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
		now[name] = is
		if !is.counts && is.failed&threeReadings == 0 {
			delete(now, name)
		}
	}
}

// counted returns the failures that count and have at least the weight least, in the order of
// [gpu.Questions].
func (q *questions) counted(least gpu.Weight) (out []gpu.Failure) {
	for name, is := range q.last {
		if is.counts && gpu.WeightOf(name) >= least {
			out = append(out, gpu.Failure{Function: name, Code: is.code})
		}
	}
	gpu.SortFailures(out)
	return out
}

// unsettled reports whether the next readings decide whether a question counts.
func (q *questions) unsettled() bool {
	for _, is := range q.last {
		if !is.counts || is.failed&1 == 0 {
			return true
		}
	}
	return false
}
