// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"
)

// safeFor is how long a gang that starts runs before it may be stopped or moved: from the stop after
// [Options.FreeStops] on, twice as long each time.
func (e *entry) safeFor(freeStops int) time.Duration {
	d := minRuns * e.job.RestartCost
	if n := e.stops - freeStops; freeStops > 0 && n > 0 {
		return stretched(max(d, time.Minute), math.Exp2(float64(n)))
	}
	return d
}

// Of a gang that writes checkpoints at known times, lostShare is how much of its run it loses at most when
// it is stopped. mostCheckpoint is the longest time between two that is waited for: whoever writes none for
// longer is stopped whenever others need the GPUs.
const (
	lostShare      = 1. / 32
	mostCheckpoint = 4 * time.Hour
)

// atCheckpoint reports whether little is lost if the gang, which runs, is stopped then: it has just written a
// checkpoint, or has run for so long that what it did since the last one does not matter.
func (e *entry) atCheckpoint(at time.Duration) bool {
	every := e.job.Checkpoint
	if every <= 0 || every > mostCheckpoint {
		return true
	}
	ran := at - e.checkpointsFrom()
	return ran >= every && float64(ran%every) <= lostShare*float64(ran)
}

// checkpointsFrom is from when on its checkpoints count: it has started, and what a restart costs has passed.
func (e *entry) checkpointsFrom() time.Duration { return e.startedAt + e.job.RestartCost }

// nextCheckpoint is when it has written the next one.
func (e *entry) nextCheckpoint(now time.Duration) time.Duration {
	return now + e.job.Checkpoint - max(0, now-e.checkpointsFrom())%e.job.Checkpoint
}
