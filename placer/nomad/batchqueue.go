// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// passthrough is the queue type that means that jobs are not queued.
const passthrough = "passthrough"

// queueConfig is the part of a configuration that describes the batch queue. Both the scheduler and
// the node pools have a configuration with a batch queue. The field names come from Nomad's branch
// f-batch-job-queue, and so does a pool's SchedulerConfiguration.
type queueConfig struct {
	BatchQueue             struct{ Type string }
	SchedulerConfiguration struct{ BatchQueue struct{ Type string } }
}

// kind returns the type of the queue, or "" if there is no queue.
func (q queueConfig) kind() string {
	if kind := cmp.Or(q.BatchQueue.Type, q.SchedulerConfiguration.BatchQueue.Type); kind != passthrough {
		return kind
	}
	return ""
}

// BatchQueues returns the queues of the given node pools. BatchQueues reads the configurations of
// the scheduler and of the pools. If the token lacks the right to read these configurations,
// BatchQueues queries the queues themselves. BatchQueues does not use Nomad's API module, which
// does not support queues yet.
func (c *Client) BatchQueues(ctx context.Context, pools []string) (cluster.BatchQueues, error) {
	out := cluster.BatchQueues{}
	q := (&api.QueryOptions{}).WithContext(ctx)
	var scheduler struct{ SchedulerConfig queueConfig }
	_, err := c.api.Raw().Query("/v1/operator/scheduler/configuration", &scheduler, q)
	hidden := Refused(err)
	if err != nil && !hidden {
		return nil, fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	if kind := scheduler.SchedulerConfig.kind(); kind != "" {
		for _, pool := range pools {
			if pool != cluster.PoolAll {
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
	if err != nil && !Refused(err) && !notFound(err) { // node pools came with Nomad 1.6
		return nil, fmt.Errorf("reading the node pools: %w", err)
	}
	for _, p := range all {
		if kind := p.kind(); kind != "" && p.Name != cluster.PoolAll {
			out[p.Name] = kind
		}
	}
	if !hidden {
		return out, nil
	}
	return out, c.queryBatchQueues(ctx, pools, out)
}

// queryBatchQueues queries the queue of each pool. Versions of Nomad without queues do not support
// this query.
func (c *Client) queryBatchQueues(ctx context.Context, pools []string, out cluster.BatchQueues) error {
	for _, pool := range pools {
		q := everywhere(ctx)
		q.Params = map[string]string{"node_pool": pool, "per_page": "1"}
		var answer struct{ Type string }
		switch _, err := c.api.Raw().Query("/v1/queue/jobs", &answer, q); {
		case notFound(err) || Refused(err):
			return nil
		case err != nil:
			return fmt.Errorf("reading the batch queue of node pool %q: %w", pool, err)
		}
		if answer.Type != "" && answer.Type != passthrough && pool != cluster.PoolAll {
			out[pool] = answer.Type
		}
	}
	return nil
}

// QueueFor returns the batch queue of the job's node pool, if the pool has one.
func (c *Client) QueueFor(ctx context.Context, job *api.Job) (cluster.BatchQueues, error) {
	return c.BatchQueues(ctx, []string{cluster.PoolOf(job)})
}
