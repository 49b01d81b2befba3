// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// BatchQueues are the node pools for which Nomad itself queues batch jobs: pool to the queue's type
// ("fifo", "dynamic_priority"). Nomad has such queues after 2.0.6. It then sends one batch job
// at a time to its scheduler, and waits until the whole job is placed.
type BatchQueues map[string]string

// Warnings lists, by pool, what each queue means for gated jobs.
func (q BatchQueues) Warnings() []string {
	var out []string
	for _, pool := range slices.Sorted(maps.Keys(q)) {
		out = append(out, fmt.Sprintf("node pool %q has Nomad's own batch queue (%s): the placer does not serve batch jobs of this pool, because a gated job would block that queue", pool, q[pool]))
	}
	return out
}

// Refusal returns why a queue keeps a job from being served; nil if none does. The job's type must
// be set.
func (q BatchQueues) Refusal(job *api.Job) error {
	kind := q[PoolOf(job)]
	if kind == "" || *job.Type != api.JobTypeBatch {
		return nil
	}
	return fmt.Errorf("node pool %q has Nomad's own batch queue (%s), which waits until the job at its head is placed: a gated job at the head blocks all other jobs, and the placer cannot reorder that queue. Run the job without its gate (nomad job run adds no gate), or remove batch_queue from the node pool", PoolOf(job), kind)
}
