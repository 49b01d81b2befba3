// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"

	"github.com/hashicorp/nomad/api"
)

// stored checks that a job is as Nomad returns jobs: nothing is missing that this
// package reads without asking, and no entry is null. Errors are [ErrMalformed].
func stored(job *api.Job) error {
	if err := Wellformed(job); err != nil {
		return err
	}
	for name, missing := range map[string]bool{
		"Namespace": job.Namespace == nil, "Name": job.Name == nil, "Type": job.Type == nil, "Priority": job.Priority == nil,
		"Version": job.Version == nil, "ModifyIndex": job.ModifyIndex == nil, "JobModifyIndex": job.JobModifyIndex == nil, "SubmitTime": job.SubmitTime == nil,
	} {
		if missing {
			return fmt.Errorf("%w: it lacks %s, which Nomad gives every job", ErrMalformed, name)
		}
	}
	for i, g := range job.TaskGroups {
		if g.Count == nil {
			return fmt.Errorf("%w: Job.TaskGroups[%d].Count is missing", ErrMalformed, i)
		}
	}
	return nil
}

// takeJob takes in a job as Nomad shows it. One that is malformed is not among the
// jobs, whatever was known of it: it cannot be served.
func (s *State) takeJob(job *api.Job) {
	err := stored(job)
	if err == nil {
		delete(s.Unread, KeyOf(job))
		s.PutJob(job)
		return
	}
	k := KeyOf(job) // callers have seen to it that it has one
	s.Unread[k] = fmt.Errorf("job %q in namespace %q: %w", k.ID, k.Namespace, err)
	s.dropJob(k)
}
