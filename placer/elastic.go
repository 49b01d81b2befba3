// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// sizeOf is the size of an elastic gang that runs or waits, nil of other jobs.
func (p *Placer) sizeOf(t *tracked) *queue.Size {
	if s, ok := p.queue.SizeOf(t.Key.String()); ok {
		return &s
	}
	return nil
}

// Size is how many GPUs the job has or requests; of an elastic gang that waits from its
// least to all: "2–8".
func (j JobStatus) Size() string {
	return InRange(j.LeastGPUs(), j.GPUs)
}

// LeastGPUs is how many GPUs the job has, or needs to start.
func (j JobStatus) LeastGPUs() int {
	if s := j.Elastic; s != nil && s.Members == 0 {
		return j.GPUs / s.Most * s.Least
	}
	return j.GPUs
}

// InRange is a number between two: "2–8", or "8" if they are the same.
func InRange(least, most int) string {
	if least == most {
		return strconv.Itoa(most)
	}
	return fmt.Sprintf("%d–%d", least, most)
}

// noteSize notes the size of an elastic gang, and what may become of it.
func (e *Explanation) noteSize() {
	if e.Elastic != nil {
		e.Note = strings.TrimPrefix(e.Note+"; ", "; ") + sizeInWords(e.Elastic, e.State)
	}
}

// sizeInWords is that size in words, and what may become of it.
func sizeInWords(s *queue.Size, st gang.State) string {
	switch {
	case s.Members == 0 || st == gang.Waiting || st == gang.Unschedulable:
		return fmt.Sprintf("elastic: it starts with %d to %d members, as many as fit", s.Least, s.Most)
	case s.Settled:
		return fmt.Sprintf("elastic: it runs on %d of %d to %d members, and keeps that size until it starts again", s.Members, s.Least, s.Most)
	case s.Members >= s.Most:
		return fmt.Sprintf("elastic: it runs on all of %d to %d members; it gives some back when a gang waits for them that is as important", s.Least, s.Most)
	}
	return fmt.Sprintf("elastic: it runs on %d of %d to %d members; it grows when GPUs come free that no waiting gang can use, if that saves more time than it costs", s.Members, s.Least, s.Most)
}
