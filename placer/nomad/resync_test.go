// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// A panic in one of many parallel reads reaches the caller, who can recover. In a goroutine of its
// own it would end the process.
func TestParallelPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if r := recover(); r != "seven" {
			t.Errorf("recovered %v", r)
		}
	}()
	err := parallel(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 7 {
			panic("seven")
		}
		return nil
	})
	t.Errorf("no panic: %v", err)
}

// If the caller cuts reads short, that is an error even if no read failed, because the result is
// incomplete.
func TestParallelCutShort(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int32
	err := parallel(ctx, 1000, func(context.Context, int) error {
		cancel()
		calls.Add(1)
		return nil
	})
	if !errors.Is(err, context.Canceled) || calls.Load() > parallelReads+1 {
		t.Errorf("%v after %d calls, want %v after %d at most", err, calls.Load(), context.Canceled, parallelReads+1)
	}
}

// serving is a client of a server.
func serving(t *testing.T, serve http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	client, err := NewClient(&api.Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A gang is registered with its GPUs, and placed, after the jobs and before the allocations are
// read. The job is read again, because its members belong to a newer version.
func TestJobOutrunByItsMembers(t *testing.T) {
	key, reads := cluster.JobKey{Namespace: "default", ID: "train"}, 0
	client := serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/jobs":
			_ = json.NewEncoder(w).Encode([]api.JobListStub{{ID: key.ID, Namespace: key.Namespace, ModifyIndex: 7}})
		case "/v1/job/train":
			job := clustertest.SmallJob(key.ID, 7, true)
			if reads++; reads > 1 {
				job = clustertest.SmallJob(key.ID, 9, true)
				job.Version = new(*job.Version + 1)
			}
			_ = json.NewEncoder(w).Encode(job)
		case "/v1/allocations":
			version := *clustertest.SmallJob(key.ID, 7, true).Version + 1
			_ = json.NewEncoder(w).Encode([]map[string]any{{"ID": "a", "Namespace": key.Namespace, "JobID": key.ID, "JobVersion": version, "ClientStatus": "running", "DesiredStatus": "run"}})
		default:
			fmt.Fprint(w, "[]")
		}
	})
	s, err := client.Resync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := *s.Jobs[key].ModifyIndex; got != 9 {
		t.Errorf("the job is the old one, of index %d", got)
	}
}

// After a registration by the placer, the next full read reads the job again: its version shows
// whether the registration overwrote a change of the author.
func TestAssumedJobIsReadAgain(t *testing.T) {
	key := cluster.JobKey{Namespace: "default", ID: "train"}
	theirs := clustertest.SmallJob(key.ID, 7, true)
	theirs.Version = new(uint64(4))
	client := serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/jobs":
			_ = json.NewEncoder(w).Encode([]api.JobListStub{{ID: key.ID, Namespace: key.Namespace, ModifyIndex: 7}})
		case "/v1/job/train":
			_ = json.NewEncoder(w).Encode(theirs)
		default:
			fmt.Fprint(w, "[]")
		}
	})
	for _, c := range []struct {
		name string
		take func(*cluster.State, *api.Job)
		want uint64
	}{
		{"assumed", (*cluster.State).Assume, 4},
		{"shown by Nomad", (*cluster.State).PutJob, 3},
		{"assumed, then shown", func(s *cluster.State, job *api.Job) { s.Assume(job); s.PutJob(job) }, 3},
	} {
		old, ours := cluster.NewState(), clustertest.SmallJob(key.ID, 7, true)
		ours.Version = new(uint64(3))
		c.take(old, ours)
		s, err := client.Resync(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		if got := *s.Jobs[key].Version; got != c.want {
			t.Errorf("%s: version %d, want %d", c.name, got, c.want)
		}
	}
}

// If Nomad fails to return an assumed job once, the job still counts as assumed.
func TestAssumedJobIsReadAgainAfterAnError(t *testing.T) {
	key := cluster.JobKey{Namespace: "default", ID: "train"}
	theirs, fails := clustertest.SmallJob(key.ID, 7, true), true
	theirs.Version = new(uint64(4))
	client := serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/jobs":
			_ = json.NewEncoder(w).Encode([]api.JobListStub{{ID: key.ID, Namespace: key.Namespace, ModifyIndex: 7}})
		case r.URL.Path == "/v1/job/train" && fails:
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		case r.URL.Path == "/v1/job/train":
			_ = json.NewEncoder(w).Encode(theirs)
		default:
			fmt.Fprint(w, "[]")
		}
	})
	old, ours := cluster.NewState(), clustertest.SmallJob(key.ID, 7, true)
	ours.Version = new(uint64(3))
	old.Assume(ours)
	s, err := client.Resync(t.Context(), old)
	if err != nil || *s.Jobs[key].Version != 3 || s.Unread[key] == nil {
		t.Fatalf("version %d, unread %v, error %v", *s.Jobs[key].Version, s.Unread, err)
	}
	fails = false
	if s, err = client.Resync(t.Context(), s); err != nil || *s.Jobs[key].Version != 4 || s.Unread[key] != nil {
		t.Errorf("version %d, unread %v, error %v", *s.Jobs[key].Version, s.Unread, err)
	}
}

// The list of nodes contains only nodes with GPUs, and not their resources. Otherwise it would be
// tens of MB on a large cluster. A server that cannot filter lists all nodes.
func TestNodesAreListedWithoutResources(t *testing.T) {
	t.Parallel()
	for _, filters := range []bool{true, false} {
		var asked []string
		var mu sync.Mutex
		client := serving(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			q := r.URL.Query()
			asked = append(asked, r.URL.Path+" "+q.Get("resources"))
			switch {
			case r.URL.Path == "/v1/nodes" && q.Has("filter") && !filters:
				http.Error(w, "failed to read result page: error finding value in datum", http.StatusBadRequest)
			case r.URL.Path == "/v1/nodes" && q.Has("filter"):
				_ = json.NewEncoder(w).Encode([]api.NodeListStub{{ID: "gpus"}})
			case r.URL.Path == "/v1/nodes":
				_ = json.NewEncoder(w).Encode([]api.NodeListStub{{ID: "none"}, {ID: "gpus", NodeResources: clustertest.Node("gpus", "ready", 7, "G").NodeResources}})
			default:
				_ = json.NewEncoder(w).Encode(clustertest.Node("gpus", "ready", 7, "G"))
			}
		})
		s, err := client.ReadNodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"/v1/nodes ", "/v1/node/gpus "}
		if !filters {
			want = []string{"/v1/nodes ", "/v1/nodes true", "/v1/node/gpus "}
		}
		if !slices.Equal(asked, want) || len(s.Nodes) != 1 {
			t.Errorf("filters: %v: asked %q, want %q; %d nodes", filters, asked, want, len(s.Nodes))
		}
	}
}

// Jobs without devices, of which a cluster may have thousands, are not read one by one. A server
// that cannot filter lists all jobs, and the placer reads them.
func TestJobsWithoutDevicesAreNotRead(t *testing.T) {
	t.Parallel()
	for _, filters := range []bool{true, false} {
		var asked []string
		var mu sync.Mutex
		client := serving(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			gpus := cluster.JobKey{Namespace: "default", ID: "gpus"}
			stub := func(id string) *cluster.JobStub {
				return &cluster.JobStub{ID: id, Namespace: "default", ModifyIndex: 1}
			}
			switch asked = append(asked, r.URL.Path); {
			case r.URL.Path == "/v1/jobs" && r.URL.Query().Get("filter") == withDevices && !filters:
				http.Error(w, "failed to read result page: error finding value in datum", http.StatusBadRequest)
			case r.URL.Path == "/v1/jobs" && r.URL.Query().Has("filter"):
				_ = json.NewEncoder(w).Encode([]*cluster.JobStub{stub("gpus")})
			case r.URL.Path == "/v1/jobs":
				_ = json.NewEncoder(w).Encode([]*cluster.JobStub{stub("gpus"), stub("none")})
			case r.URL.Path == "/v1/job/gpus":
				_ = json.NewEncoder(w).Encode(clustertest.SmallJob(gpus.ID, 1, true))
			default:
				_ = json.NewEncoder(w).Encode(clustertest.SmallJob("none", 1, false))
			}
		})
		s := cluster.NewState()
		if err := client.readJobs(t.Context(), s, cluster.NewState()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(asked)
		want := []string{"/v1/job/gpus", "/v1/jobs"}
		if !filters {
			want = []string{"/v1/job/gpus", "/v1/job/none", "/v1/jobs", "/v1/jobs"}
		}
		if !slices.Equal(asked, want) || len(s.Jobs) != 1 {
			t.Errorf("filters: %v: asked %q, want %q; %d jobs", filters, asked, want, len(s.Jobs))
		}
	}
}
