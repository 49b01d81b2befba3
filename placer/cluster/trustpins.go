// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Between the commit of a gang and the start of its last member, only the job's pins show which
// GPUs belong to the gang. Everybody who may register a job can write pins. So pins hold GPUs only
// if the placer wrote these pins:
//
//   - The placer calls [State.Own] with the GPUs to which it pinned a job or which it finds in a
//     record. Pins that name any other GPU hold no GPUs, however often the job is registered.
//   - A placer that has just started does not know yet which pins the previous placer wrote but did
//     not record. So all pins count until the placer calls [State.OnlyOwnPins], a moment after its
//     start.
//   - A group's pins hold no more GPUs than its members need, and only GPUs on the nodes that the
//     pins name. Pins do not hold a GPU that another job holds.

// Own records the GPUs to which the placer pinned a job.
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
		_, pinned := rewrite.Pinned(job)
		if pinned {
			s.touch(k)
		}
	}
}

// TrustsPins reports whether the job's pins hold their GPUs.
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

// keepOwnPins copies the record of the placer's own pins from the old state at a full read.
func (s *State) keepOwnPins(old *State) {
	s.onlyOwn, s.own = old.onlyOwn, maps.Clone(old.own)
	maps.DeleteFunc(s.own, func(k JobKey, _ []string) bool { return s.Jobs[k] == nil })
}
