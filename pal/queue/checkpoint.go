// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"
)

// lostShare and mostCheckpoint apply to gangs that write checkpoints at known times. A gang with
// checkpoints can be stopped only while it would lose at most lostShare of its run time so far. But
// a gang whose checkpoints are further apart than mostCheckpoint can be stopped at any time.
const (
	lostShare      = 1. / 32
	mostCheckpoint = 4 * time.Hour
)

// atCheckpoint reports whether a stop at the given time would lose at most lostShare of the gang's
// run time so far. It returns true if the checkpoint interval is unknown or longer than
// mostCheckpoint.
func (e *entry) atCheckpoint(at time.Duration) bool {
	every := e.job.Checkpoint
	if every <= 0 || every > mostCheckpoint {
		return true
	}
	ran := at - e.checkpointsFrom()
	return ran >= every && float64(ran%every) <= lostShare*float64(ran)
}

// checkpointsFrom returns when the gang's first checkpoint interval begins: RestartCost after its
// start.
func (e *entry) checkpointsFrom() time.Duration { return e.startedAt + e.job.RestartCost }

// nextCheckpoint returns when a running gang writes its next checkpoint; ok is false if the gang
// can be stopped at any time from now on.
func (e *entry) nextCheckpoint(now time.Duration) (at time.Duration, ok bool) {
	every, from := e.job.Checkpoint, e.checkpointsFrom()
	ran := max(0, now-from)
	if every <= 0 || every > mostCheckpoint || float64(every) <= lostShare*float64(ran) {
		return 0, false
	}
	return from + ran - ran%every + every, true
}
