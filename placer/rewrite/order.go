// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// setOrder takes the hints that say when a job starts relative to others: after them,
// in time, or not all at once.
func (h *Hints) setOrder(key, value string) (err error) {
	switch key {
	case "pal_after":
		h.After, err = parseJobs(value)
	case "pal_deadline":
		h.Deadline, h.Within, err = parseDeadline(value)
	case "pal_array_parallel":
		h.Parallel, err = strconv.Atoi(value)
		if err != nil || h.Parallel < 1 {
			err = fmt.Errorf("not a number of at least 1")
		}
	}
	return err
}

// maxAfter bounds the jobs that one waits for: the placer looks at each in every cycle.
const maxAfter = 32

// parseJobs tidies a list of job IDs: no spaces, none twice.
func parseJobs(s string) (string, error) {
	var ids []string
	for id := range strings.SplitSeq(s, ",") {
		id = strings.TrimSpace(id)
		if id == "" {
			return "", fmt.Errorf("not a list of jobs such as prepare,train")
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > maxAfter {
		return "", fmt.Errorf("more than %d jobs", maxAfter)
	}
	return strings.Join(ids, ","), nil
}

// Jobs are the IDs of the jobs that the job comes after.
func (h Hints) Jobs() []string {
	if h.After == "" {
		return nil
	}
	return strings.Split(h.After, ",")
}

// parseDeadline reads a time of day, or a duration from the registration on.
func parseDeadline(s string) (at time.Time, within time.Duration, err error) {
	if at, err = time.Parse(time.RFC3339, s); err == nil {
		return at.UTC(), 0, nil
	}
	if within, err = time.ParseDuration(s); err != nil || within <= 0 {
		return time.Time{}, 0, fmt.Errorf("neither a time such as 2026-11-25T18:00:00Z nor a positive duration such as 12h")
	}
	return time.Time{}, within, nil
}

// check says which hints contradict each other, or the job. Children of a template
// inherit its hints, so that pal_array_parallel is right there too.
func (h Hints) check(job *api.Job) error {
	child := job.ParentID != nil && *job.ParentID != ""
	template := job.ParameterizedJob != nil || job.Periodic != nil
	switch {
	case job.ID != nil && slices.Contains(h.Jobs(), *job.ID):
		return fmt.Errorf("meta pal_after names the job itself")
	case h.Parallel > 0 && !child && !template:
		return fmt.Errorf("meta pal_array_parallel bounds how many children of a parameterized or periodic job run at a time: this job has none")
	case h.Within > 0 && h.Duration > h.Within:
		return fmt.Errorf("meta pal_deadline = %v after it is registered contradicts pal_duration = %v", h.Within, h.Duration)
	}
	return h.checkElastic(job)
}

// DeadlineOf is by when the job is to have ended, if its author registered it at
// submitted; ok is false if it has no deadline.
func (h Hints) DeadlineOf(submitted time.Time) (at time.Time, ok bool) {
	switch {
	case !h.Deadline.IsZero():
		return h.Deadline, true
	case h.Within > 0:
		return submitted.Add(h.Within), true
	}
	return time.Time{}, false
}
