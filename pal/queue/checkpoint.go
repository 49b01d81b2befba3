// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"
)

// safeFor returns how long a gang runs after a start before it may be stopped or moved. After
// [Options.FreeStops] stops the time doubles with each further stop.
func (e *entry) safeFor(freeStops int) time.Duration {
	d := minRuns * e.job.RestartCost
	if n := e.stops - freeStops; freeStops > 0 && n > 0 {
		return stretched(max(d, time.Minute), math.Exp2(float64(n)))
	}
	return d
}

// lostShare and mostCheckpoint are for gangs that write checkpoints at known times. Such a gang may
// be stopped only while it would lose at most lostShare of its run. A gang whose checkpoints are
// further apart than mostCheckpoint may be stopped at any time.
const (
	lostShare      = 1. / 32
	mostCheckpoint = 4 * time.Hour
)

// atCheckpoint reports whether a running gang loses little if it is stopped at the given time.
// Either it has just written a checkpoint, or its work since the last one is small compared with
// its whole run.
func (e *entry) atCheckpoint(at time.Duration) bool {
	every := e.job.Checkpoint
	if every <= 0 || every > mostCheckpoint {
		return true
	}
	ran := at - e.checkpointsFrom()
	return ran >= every && float64(ran%every) <= lostShare*float64(ran)
}

// checkpointsFrom returns when the gang's first checkpoint interval begins: after its start and the
// restart cost.
func (e *entry) checkpointsFrom() time.Duration { return e.startedAt + e.job.RestartCost }

// nextCheckpoint returns when the next checkpoint is written.
func (e *entry) nextCheckpoint(now time.Duration) time.Duration {
	return now + e.job.Checkpoint - max(0, now-e.checkpointsFrom())%e.job.Checkpoint
}
