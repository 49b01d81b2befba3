// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"
)

// The scaling block of an elastic gang's group sets the range of the gang's size, and a hint allows
// the placer to change the size. The block alone does not allow this change, because people and
// Nomad's autoscaler use scaling blocks, too.

const elasticHint = "pal_elastic"

// Elastic describes the group of an elastic gang, and the minimum and maximum number of the group's
// members.
type Elastic struct {
	Group       string
	Least, Most int
}

// ElasticOf returns the job's elastic group. ok is false if the job is not elastic, or if its
// elastic settings are invalid. If the settings are invalid, [ParseHints] returns the reason.
func ElasticOf(job *api.Job) (e Elastic, ok bool) {
	said := job.Meta[elasticHint]
	for _, g := range job.TaskGroups {
		said = cmp.Or(said, g.Meta[elasticHint])
	}
	if on, err := strconv.ParseBool(cmp.Or(said, "false")); err != nil || !on {
		return e, false
	}
	e, err := elasticOf(job)
	return e, err == nil
}

// elasticOf reads the scaling block of the only group with GPUs in the job.
func elasticOf(job *api.Job) (e Elastic, err error) {
	var group *api.TaskGroup
	for _, g := range job.TaskGroups {
		if !slices.ContainsFunc(g.Tasks, asksGPU) {
			continue
		}
		if group != nil {
			return e, fmt.Errorf("groups %q and %q both request GPUs, but an elastic gang has only one group with GPUs", *group.Name, *g.Name)
		}
		group = g
	}
	if group == nil {
		return e, nil // other code refuses the job, because it has no GPUs
	}
	s := group.Scaling
	off := s == nil || s.Enabled != nil && !*s.Enabled && !Stopped(job) // Nomad disables the scaling block of a stopped job
	if off || len(s.Policy) > 0 || s.Min == nil || *s.Min < 1 || s.Max == nil || *s.Max < *s.Min {
		return e, fmt.Errorf("group %q needs a scaling block with a min (at least 1) and a max, which is enabled and has no policy", *group.Name)
	}
	return Elastic{*group.Name, int(min(*s.Min, atMost)), int(min(*s.Max, atMost))}, nil
}

// checkElastic returns an error if the hints of an elastic gang contradict each other or the job.
func (h Hints) checkElastic(job *api.Job) error {
	switch {
	case !h.Elastic:
		return nil
	case job.Type != nil && *job.Type != api.JobTypeBatch:
		return fmt.Errorf("meta pal_elastic is for batch jobs, because the members of a %s job do not wait for each other", *job.Type)
	case h.Pin != "" && h.Pin != ModeClass:
		return fmt.Errorf("meta pal_elastic contradicts pal_pin = %q: such pins cannot be changed while members run; remove pal_pin", h.Pin)
	case h.OnFailure == ReplaceMember:
		return fmt.Errorf(`meta pal_elastic contradicts pal_on_failure = "member"`)
	}
	if _, err := elasticOf(job); err != nil {
		return fmt.Errorf("meta pal_elastic: %w", err)
	}
	return nil
}
