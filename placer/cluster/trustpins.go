// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Between the commit of a gang and the start of its last member, nothing but the
// job's pins say which GPUs are its own. Everybody who may register a job can write
// pins, so they keep a GPU busy only where they are ours:
//
//   - The placer tells with [State.Own] what it wrote, or finds recorded. Pins that
//     name other GPUs than that hold none, however often the job is registered.
//   - A placer that has just begun does not know yet what the one before it wrote
//     and had no time to record. Until [State.OnlyOwnPins] all pins count: that is a
//     moment after its beginning, not after the job's.
//   - A group's pins hold no more GPUs than its members take, on the nodes that they
//     name; and a GPU that another job has is that job's.

// Own records the GPUs that the placer pinned a job to.
func (s *State) Own(k JobKey, gpus []string) {
	s.own[k] = slices.Sorted(slices.Values(gpus))
	s.touch(k)
}

// OnlyOwnPins ends the period in which all pins count.
func (s *State) OnlyOwnPins() {
	if s.onlyOwn {
		return
	}
	s.onlyOwn = true
	for k, job := range s.Jobs {
		if _, pinned := rewrite.Pinned(job); pinned {
			s.touch(k)
		}
	}
}

// TrustsPins reports whether pins keep their GPUs from other jobs.
func (s *State) TrustsPins(k JobKey, pins rewrite.Pins) bool {
	if !s.onlyOwn {
		return true
	}
	own := s.own[k]
	return !slices.ContainsFunc(pins.GPUs(), func(id string) bool {
		_, ours := slices.BinarySearch(own, id)
		return !ours
	})
}

// keepOwnPins copies what is known of pins at a full read.
func (s *State) keepOwnPins(old *State) {
	s.onlyOwn, s.own = old.onlyOwn, maps.Clone(old.own)
	maps.DeleteFunc(s.own, func(k JobKey, _ []string) bool { return s.Jobs[k] == nil })
}
