// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// queuedNomad simulates a Nomad with a GPU node in a node pool that has a batch queue.
func queuedNomad(t *testing.T) *httptest.Server {
	const node = `{"ID":"n","Name":"n","Status":"ready","SchedulingEligibility":"eligible","NodePool":"gpu","ModifyIndex":1,
		"NodeResources":{"Devices":[{"Vendor":"nvidia","Type":"gpu","Name":"H200","Instances":[{"ID":"u","Healthy":true}]}]}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Nomad-Index", "1")
		switch path := r.URL.Path; {
		case path == "/v1/event/stream":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case path == "/v1/nodes":
			fmt.Fprintf(w, "[%s]", node)
		case path == "/v1/node/n":
			fmt.Fprint(w, node)
		case path == "/v1/node/pools":
			fmt.Fprint(w, `[{"Name":"gpu","BatchQueue":{"Type":"fifo"}}]`)
		case strings.HasPrefix(path, "/v1/var/") && r.Method == http.MethodPut:
			fmt.Fprint(w, `{}`)
		case strings.HasPrefix(path, "/v1/var/"):
			http.NotFound(w, r)
		case path == "/v1/operator/scheduler/configuration":
			fmt.Fprint(w, `{"SchedulerConfig":{}}`)
		default:
			fmt.Fprint(w, `[]`)
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	return server
}

// The agent's log and health report a batch queue of Nomad's own.
func TestHealthWarnsOfBatchQueues(t *testing.T) {
	server := queuedNomad(t)
	var mu sync.Mutex
	var log bytes.Buffer
	a := New(hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu}), placer.Hooks{})
	file := fileAt(server.URL)
	s, err := a.newServer(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = a.serve(ctx, file, "") })
	defer serving.Wait()
	defer cancel()
	const want = `node pool "gpu" has Nomad's own batch queue (fifo)`
	var h Health
	patience.Eventually(t, "health has warnings", func() bool {
		answer := httptest.NewRecorder()
		s.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/v1/health", nil))
		if err := json.Unmarshal(answer.Body.Bytes(), &h); err != nil {
			t.Fatal(err)
		}
		return len(h.Warnings) > 0
	})
	if !strings.Contains(h.Warnings[0], want) {
		t.Errorf("health: %+v", h)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), want); n != 1 {
		t.Errorf("the log says it %d times: %s", n, log.String())
	}
}

// A job for a pool with a batch queue gets no gate, and is rejected if it has one.
func TestAdmissionKeepsOutOfQueues(t *testing.T) {
	var job api.Job
	if err := json.Unmarshal([]byte(`{"ID":"j","Type":"batch","NodePool":"gpu","TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Driver":"raw_exec",
		"Resources":{"Devices":[{"Name":"nvidia/gpu"}]}}]}]}`), &job); err != nil {
		t.Fatal(err)
	}
	queues := cluster.BatchQueues{"gpu": "fifo"}
	var a *Admission
	if r := a.Review(&job, queues, true); len(r.Patch)+len(r.Errors) > 0 || len(r.Warnings) != 1 {
		t.Errorf("without a gate: %+v", r)
	}
	if r := a.Review(rewrite.Gate(&job), queues, true); len(r.Errors) != 1 {
		t.Errorf("with a gate: %+v", r)
	}
	if r := a.Review(&job, cluster.BatchQueues{"other": "fifo"}, true); len(r.Patch) == 0 {
		t.Errorf("of another pool: %+v", r)
	}
}

// A standby agent, which watches no jobs, also knows of batch queues.
func TestStandbyKeepsOutOfQueues(t *testing.T) {
	server := queuedNomad(t)
	file := fileAt(server.URL)
	file.HTTP.Admission = true
	s, err := New(hclog.NewNullLogger(), placer.Hooks{}).newServer(file)
	if err != nil {
		t.Fatal(err)
	}
	for pool, want := range map[string]string{"gpu": "Nomad's own batch queue", "other": `"/Constraints"`} {
		body := fmt.Sprintf(`{"job": {"ID":"j","Type":"batch","NodePool":%q,"TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Driver":"raw_exec",
			"Resources":{"Devices":[{"Name":"nvidia/gpu"}]}}]}]}}`, pool)
		answer := httptest.NewRecorder()
		s.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/admission", strings.NewReader(body)))
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("pool %s: %s", pool, answer.Body)
		}
	}
}
