// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Answers of Nomad 1.11.3. Those with queues are from its branch f-batch-job-queue and its
// documentation (developer.hashicorp.com/nomad/docs/concepts/scheduling/batch-job-queue).
const (
	noScheduler = `{"SchedulerConfig":{"SchedulerAlgorithm":"binpack","PreemptionConfig":{"SystemSchedulerEnabled":true},"PauseEvalBroker":false},"Index":5}`
	allQueued   = `{"SchedulerConfig":{"SchedulerAlgorithm":"binpack","BatchQueue":{"Type":"dynamic_priority","TenantType":"namespace","MetadataKey":"","Config":{"half_life":"1h"}}},"Index":5}`
	noneQueued  = `{"SchedulerConfig":{"BatchQueue":{"Type":"","TenantType":"","MetadataKey":"","Config":null}},"Index":5}`
	plainPools  = `[{"Name":"all","SchedulerConfiguration":null},{"Name":"default","Meta":{"batch_queue":"x"}},{"Name":"gpu","SchedulerConfiguration":{"SchedulerAlgorithm":"spread"}}]`
	gpuQueued   = `[{"Name":"all"},{"Name":"default"},{"Name":"gpu","BatchQueue":{"Type":"fifo"}}]`
	gpuNested   = `[{"Name":"default"},{"Name":"gpu","SchedulerConfiguration":{"BatchQueue":{"Type":"fifo"}}}]`
)

func TestBatchQueues(t *testing.T) {
	for _, tc := range []struct {
		name, scheduler, pools, queue string // "": the token lacks the permission; "404": Nomad does not know it
		want                          cluster.BatchQueues
	}{
		{name: "none", scheduler: noScheduler, pools: plainPools, want: cluster.BatchQueues{}},
		{name: "none, but possible", scheduler: noneQueued, pools: plainPools, want: cluster.BatchQueues{}},
		{name: "for all", scheduler: allQueued, pools: plainPools, want: cluster.BatchQueues{"default": "dynamic_priority", "gpu": "dynamic_priority"}},
		{name: "of a pool", scheduler: noScheduler, pools: gpuQueued, want: cluster.BatchQueues{"gpu": "fifo"}},
		{name: "in a pool's scheduler configuration", scheduler: noScheduler, pools: gpuNested, want: cluster.BatchQueues{"gpu": "fifo"}},
		{name: "a pool differs from the rest", scheduler: allQueued, pools: gpuQueued, want: cluster.BatchQueues{"default": "dynamic_priority", "gpu": "fifo"}},
		{name: "not allowed to see", queue: `{"Type":"fifo","Workloads":[]}`, want: cluster.BatchQueues{"default": "fifo", "gpu": "fifo"}},
		{name: "not allowed to see the pools", scheduler: noScheduler, queue: `{"Type":"fifo","Workloads":[]}`, want: cluster.BatchQueues{"default": "fifo", "gpu": "fifo"}},
		{name: "not allowed to see, none", queue: `{"Type":"passthrough","Workloads":[]}`, want: cluster.BatchQueues{}},
		{name: "not allowed to see, old Nomad", queue: "404", want: cluster.BatchQueues{}},
		{name: "not allowed anything", want: cluster.BatchQueues{}},
		{name: "older than pools", scheduler: noScheduler, pools: "404", want: cluster.BatchQueues{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := map[string]string{
					"/v1/operator/scheduler/configuration": tc.scheduler, "/v1/node/pools": tc.pools, "/v1/queue/jobs": tc.queue,
				}[r.URL.Path]
				switch {
				case r.URL.Path == "/v1/queue/jobs" && tc.scheduler != "" && tc.pools != "":
					t.Error("queried the queue although the configuration is complete")
				case answer == "":
					http.Error(w, "Permission denied", http.StatusForbidden)
				case answer == "404":
					http.NotFound(w, r)
				default:
					fmt.Fprint(w, answer)
				}
			}))
			defer server.Close()
			c, err := NewClient(&api.Config{Address: server.URL}, "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.BatchQueues(t.Context(), []string{"all", "default", "gpu"})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("queues (-want +got):\n%s", d)
			}
		})
	}
}
