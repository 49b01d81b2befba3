// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// BatchQueues maps each node pool for which Nomad itself queues batch jobs to the type of its queue
// ("fifo", "dynamic_priority"). Versions of Nomad after 2.0.6 have such queues. With a queue, Nomad
// sends one batch job at a time to its scheduler, and waits until the whole job is placed.
type BatchQueues map[string]string

// Warnings returns one warning per queue, in the order of the pools. A warning describes what the
// queue does to gated jobs.
func (q BatchQueues) Warnings() []string {
	var out []string
	for _, pool := range slices.Sorted(maps.Keys(q)) {
		out = append(out, fmt.Sprintf("node pool %q has Nomad's own batch queue (%s), so the placer does not serve batch jobs of this pool: a gated job would block the queue", pool, q[pool]))
	}
	return out
}

// Refusal returns why the placer cannot serve a job because of a queue, or nil if no queue prevents
// it. The job's type must be set.
func (q BatchQueues) Refusal(job *api.Job) error {
	kind := q[PoolOf(job)]
	if kind == "" || *job.Type != api.JobTypeBatch {
		return nil
	}
	return fmt.Errorf("node pool %q has Nomad's own batch queue (%s), which waits until the job at its head is placed. A gated job at the head blocks all other jobs, and the placer cannot reorder the queue. Run the job without its gate (nomad job run adds no gate), or remove batch_queue from the node pool", PoolOf(job), kind)
}
