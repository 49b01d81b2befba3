// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// BatchQueues are the node pools whose batch jobs Nomad itself queues, and how:
// pool to the queue's type ("fifo", "dynamic_priority"). Nomad has that after
// 2.0.6; it sends the registration of one batch job at a time to its scheduler
// and waits until all of it is placed.
type BatchQueues map[string]string

// passthrough is the type of no queue.
const passthrough = "passthrough"

// queueConfig is what a scheduler's configuration, or a node pool, says of a batch queue: in
// Nomad's branch f-batch-job-queue, as of a pool's own SchedulerConfiguration.
type queueConfig struct {
	BatchQueue             struct{ Type string }
	SchedulerConfiguration struct{ BatchQueue struct{ Type string } }
}

// kind is the type of the queue; "" if there is none.
func (q queueConfig) kind() string {
	if kind := cmp.Or(q.BatchQueue.Type, q.SchedulerConfiguration.BatchQueue.Type); kind != passthrough {
		return kind
	}
	return ""
}

// BatchQueues finds the queues of the given node pools: in the scheduler's
// configuration, in the pools, and, where the token may see neither, by asking
// for the queues themselves. Nomad's API module does not know them yet.
func (c *Client) BatchQueues(ctx context.Context, pools []string) (BatchQueues, error) {
	out := BatchQueues{}
	q := (&api.QueryOptions{}).WithContext(ctx)
	var scheduler struct{ SchedulerConfig queueConfig }
	_, err := c.api.Raw().Query("/v1/operator/scheduler/configuration", &scheduler, q)
	hidden := Refused(err)
	if err != nil && !hidden {
		return nil, fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	if kind := scheduler.SchedulerConfig.kind(); kind != "" {
		for _, pool := range pools {
			if pool != poolAll {
				out[pool] = kind
			}
		}
	}
	var all []struct {
		Name string
		queueConfig
	}
	_, err = c.api.Raw().Query("/v1/node/pools", &all, q)
	hidden = hidden || Refused(err)
	if err != nil && !Refused(err) && !notFound(err) { // pools came with Nomad 1.6
		return nil, fmt.Errorf("reading the node pools: %w", err)
	}
	for _, p := range all {
		if kind := p.kind(); kind != "" && p.Name != poolAll {
			out[p.Name] = kind
		}
	}
	if !hidden {
		return out, nil
	}
	return out, c.queryBatchQueues(ctx, pools, out)
}

// queryBatchQueues asks for the queue of each pool. Nomad without queues does not know
// the question.
func (c *Client) queryBatchQueues(ctx context.Context, pools []string, out BatchQueues) error {
	for _, pool := range pools {
		q := everywhere(ctx)
		q.Params = map[string]string{"node_pool": pool, "per_page": "1"}
		var answer struct{ Type string }
		switch _, err := c.api.Raw().Query("/v1/queue/jobs", &answer, q); {
		case notFound(err) || Refused(err):
			return nil
		case err != nil:
			return fmt.Errorf("asking for the batch queue of node pool %q: %w", pool, err)
		}
		if answer.Type != "" && answer.Type != passthrough && pool != poolAll {
			out[pool] = answer.Type
		}
	}
	return nil
}

// Warnings says of each queue what it means for gated jobs, by pool.
func (q BatchQueues) Warnings() []string {
	var out []string
	for _, pool := range slices.Sorted(maps.Keys(q)) {
		out = append(out, fmt.Sprintf("node pool %q has Nomad's own batch queue (%s): batch jobs of that pool are not served; their gate would hold the queue up", pool, q[pool]))
	}
	return out
}

// Refusal is why a job is not served because of a queue; nil where none is in
// the way. The job must have its type.
func (q BatchQueues) Refusal(job *api.Job) error {
	kind := q[pool(job)]
	if kind == "" || *job.Type != api.JobTypeBatch {
		return nil
	}
	return fmt.Errorf("node pool %q has Nomad's own batch queue (%s), which waits until the job at its head is placed: a gated job there holds up all behind it, and the placer cannot go before them. Run the job without its gate (nomad job run adds none), or take batch_queue out of the node pool", pool(job), kind)
}

// QueueFor finds the queue that is in a job's way.
func (c *Client) QueueFor(ctx context.Context, job *api.Job) (BatchQueues, error) {
	return c.BatchQueues(ctx, []string{pool(job)})
}

// pools are the node pools of the nodes with GPUs, sorted.
func (s *State) pools() []string {
	seen := map[string]bool{}
	for _, n := range s.Nodes {
		seen[n.NodePool] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
