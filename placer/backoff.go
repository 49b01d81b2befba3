// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// The placer can do without the following activities for a while. If one of these activities fails,
// the placer keeps placing jobs and retries the activity later.
const (
	hearingEvents      = "following Nomad's events"
	readingJobs        = "reading single jobs"
	readingEvents      = "reading single events"
	readingAllocs      = "reading single allocations"
	notingFailures     = "noting failures"
	readingControls    = "reading holds and priorities of jobs"
	forgettingReleases = "deleting orders to release jobs that Nomad alone manages"
	readingRunTimes    = "reading run times"
	storingProfile     = "storing the current profile"
	recordingDecisions = "recording decisions"
	recordingRunTimes  = "recording run times"
	pruningRecords     = "removing the records of jobs that are gone"
	readingUsage       = "reading the use of GPUs by namespace"
	recordingUsage     = "recording the use of GPUs by namespace"
)

// backoff describes an activity that has failed, and contains the time of the next try.
type backoff struct {
	err      error
	failures int
	retryAt  time.Time
}

// report records whether an activity succeeded. report logs when a failure begins, changes and
// ends. While the activity fails, the status shows the failure.
func (p *core) report(what string, err error) {
	was, had := p.backoffs[what]
	switch {
	case errors.Is(err, context.Canceled):
	case err == nil && had:
		p.log.Info("works again: " + what)
		delete(p.backoffs, what)
	case err == nil:
	default:
		if !had || was.err.Error() != err.Error() {
			p.log.Warn("failed, will try again: "+what, "error", err)
		}
		n := was.failures + 1
		p.backoffs[what] = backoff{err, n, p.m.Time.Add(min(time.Second<<min(n, 10), 5*time.Minute))}
	}
}

// backsOff reports whether an activity has failed and it is too early to retry it.
func (p *core) backsOff(what string, now time.Time) bool {
	return now.Before(p.backoffs[what].retryAt)
}

// failing returns one sentence about each activity that fails now.
func (p *core) failing() []string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(p.backoffs)) {
		out = append(out, what+" fails: "+p.backoffs[what].err.Error())
	}
	return out
}
