// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"strings"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Sees reports whether a user may see the jobs of a namespace.
type Sees func(namespace string) bool

// Unseen replaces the names of jobs that the user may not see.
const Unseen = "(a job that the token cannot see)"

// Name returns a job's name (namespace/id), or Unseen if the user may not see the job.
func (sees Sees) Name(job string) string {
	namespace, _, ok := strings.Cut(job, "/") // no namespace has a slash
	if job == "" || ok && sees(namespace) {
		return job
	}
	return Unseen
}

// Wait hides, in the queue's answer, the names of jobs that the user may not see.
func (sees Sees) Wait(w queue.Wait) queue.Wait {
	w.Ahead = sees.Name(w.Ahead)
	w.Stopping, w.Shrinking = sees.names(w.Stopping), sees.names(w.Shrinking)
	return w
}

func (sees Sees) names(jobs []string) (names []string) {
	for _, job := range jobs {
		names = append(names, sees.Name(job))
	}
	return names
}
