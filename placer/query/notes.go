// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// noteSize notes the size of an elastic gang, and what may become of it.
func (e *Explanation) noteSize() {
	if e.Elastic != nil {
		e.Note = strings.TrimPrefix(e.Note+"; ", "; ") + sizeInWords(e.Elastic, e.State)
	}
}

// sizeInWords is the size of an elastic gang in words, and what may become of it.
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

// noteWindows says which windows keep GPUs from a waiting job, and why.
func (s *Snapshot) noteWindows(e *Explanation, t *model.Tracked) {
	for _, k := range s.m.Queue.KeptFrom(gang.QueueTime(s.m.Time), t.Key.String()) {
		said := fmt.Sprintf("window %s: %d GPUs are kept from %s to %s. ", k.Window, k.GPUs, model.Moment(k.From), model.Moment(k.To))
		if k.From > gang.QueueTime(s.m.Time) {
			said += fmt.Sprintf("The job does not start on them, as it may run until %s: %.0f of 10 jobs like it end by then", model.Moment(k.Until), 10*queue.WindowChance)
		} else {
			said += "The job does not start on them until then"
		}
		e.Note = strings.TrimPrefix(e.Note+"; "+said, "; ")
	}
}
