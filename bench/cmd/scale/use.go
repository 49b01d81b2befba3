// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// use keeps an allocation running on every node, as on clusters that ship logs or metrics from each
// node. These allocations save the server work, as CPU profiles show: for every new allocation,
// Nomad wakes each node that has no allocations, live or dead, and whose id is similar to that of
// the allocation's node. On a fresh cluster, or after a garbage collection, Nomad wakes every node.
func (b *bed) use(ctx context.Context) error {
	began := time.Now()
	j := api.NewSystemJob("use", "use", "global", 50)
	j.Datacenters = []string{"*"}
	task := b.program()
	cpu, mem := 1, 10
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &mem}
	j.AddTaskGroup(api.NewTaskGroup("use", 1).AddTask(task))
	if _, err := b.submit(ctx, j); err != nil {
		return err
	}
	q := (&api.QueryOptions{}).WithContext(ctx)
	for {
		s, _, err := b.api.Jobs().Summary(*j.ID, q)
		if err != nil {
			return fmt.Errorf("reading the summary of job %q: %w", *j.ID, err)
		}
		switch g := s.Summary["use"]; {
		case g.Running == b.nodes:
			say(fmt.Sprintf("every node runs an allocation after %.1f s", time.Since(began).Seconds()))
			return b.settle(ctx)
		case g.Failed+g.Lost+g.Complete > 0:
			return fmt.Errorf("job %q: %d failed, %d lost, %d ended", *j.ID, g.Failed, g.Lost, g.Complete)
		}
		if err := cluster.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
