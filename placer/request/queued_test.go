// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// A batch job in a node pool with a batch queue is refused, a service is not.
func TestQueuedPoolRefuses(t *testing.T) {
	s := world(1)
	s.Queues = cluster.BatchQueues{"default": "fifo"}
	hcl := clustertest.Jobspec("j", 1, 1, "")
	if _, err := view(t, s).Request(addJob(t, s, hcl, 1)); err == nil || !strings.Contains(err.Error(), `node pool "default" has Nomad's own batch queue (fifo)`) {
		t.Errorf("batch: %v", err)
	}
	service := addJob(t, s, strings.Replace(hcl, `"batch"`, `"service"`, 1), 2)
	if _, err := view(t, s).Request(service); err != nil {
		t.Errorf("service: %v", err)
	}
	if w := s.Queues.Warnings(); len(w) != 1 || !strings.Contains(w[0], "does not serve batch jobs") {
		t.Errorf("warnings: %q", w)
	}
}
