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

// What the placer does beside placing. It goes on without, and tries again.
const (
	readingJobs        = "reading single jobs"
	readingEvents      = "reading single events"
	readingAllocs      = "reading single allocations"
	notingFailures     = "noting failures"
	publishingConfig   = "publishing the effective configuration"
	readingRunTimes    = "reading run times"
	storingProfile     = "storing the profile in force"
	recordingDecisions = "recording decisions"
	recordingRunTimes  = "recording run times"
	pruningRecords     = "removing the records of jobs that are gone"
)

// trouble is something that could not be done, last time.
type trouble struct {
	err      error
	failures int
	retryAt  time.Time
}

// trouble notes how something went. It is logged when it begins, changes and
// ends, and stands in the status meanwhile.
func (p *Placer) trouble(what string, err error) {
	was, had := p.troubles[what]
	switch {
	case errors.Is(err, context.Canceled):
	case err == nil && had:
		p.log.Info("works again: " + what)
		delete(p.troubles, what)
	case err == nil:
	default:
		if !had || was.err.Error() != err.Error() {
			p.log.Warn("failed, will try again: "+what, "error", err)
		}
		n := was.failures + 1
		p.troubles[what] = trouble{err, n, p.m.Time.Add(min(time.Second<<min(n, 10), 5*time.Minute))}
	}
}

// mayTry says whether it is time to try something again that failed.
func (p *Placer) mayTry(what string, now time.Time) bool {
	return !now.Before(p.troubles[what].retryAt)
}

// troubled are sentences about what does not work now.
func (p *Placer) troubled() []string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(p.troubles)) {
		out = append(out, what+" fails: "+p.troubles[what].err.Error())
	}
	return out
}
