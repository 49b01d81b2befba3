// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// stored checks that a job is as Nomad returns jobs: nothing is missing that this
// package reads without asking, and no entry is null.
func stored(job *api.Job) error {
	switch {
	case job.ID == nil || job.Namespace == nil:
		return errors.New("the job has no id, or no namespace")
	case job.Type == nil || job.Version == nil || job.ModifyIndex == nil || job.JobModifyIndex == nil || job.SubmitTime == nil || job.Name == nil || job.Priority == nil:
		return errors.New("the job lacks what Nomad gives every job")
	case slices.Contains(job.Constraints, nil) || slices.Contains(job.Affinities, nil) || slices.Contains(job.Spreads, nil) || slices.ContainsFunc(job.Spreads, badSpread):
		return errors.New("the job has entries that are null")
	}
	for _, g := range job.TaskGroups {
		if err := storedGroup(g); err != nil {
			return err
		}
	}
	return nil
}

func storedGroup(g *api.TaskGroup) error {
	null := errors.New("a group of the job has entries that are null")
	if g == nil || g.Name == nil || g.Count == nil || slices.Contains(g.Constraints, nil) || slices.Contains(g.Affinities, nil) ||
		slices.ContainsFunc(g.Spreads, badSpread) || slices.Contains(g.Networks, nil) {
		return null
	}
	for _, t := range g.Tasks {
		if t == nil || slices.Contains(t.Constraints, nil) || slices.Contains(t.Affinities, nil) {
			return null
		}
		if t.Resources == nil {
			continue
		}
		if slices.ContainsFunc(t.Resources.Devices, func(d *api.RequestedDevice) bool {
			return d == nil || slices.Contains(d.Constraints, nil) || slices.Contains(d.Affinities, nil)
		}) {
			return null
		}
	}
	return nil
}

func badSpread(s *api.Spread) bool { return s == nil || slices.Contains(s.SpreadTarget, nil) }
