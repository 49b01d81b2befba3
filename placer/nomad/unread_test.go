// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// A job that Nomad lists but cannot return is left out, or keeps its old state. The others are
// read. If Nomad cannot return many jobs, the full read fails.
func TestUnreadJobs(t *testing.T) {
	for _, c := range []struct {
		name    string
		unread  int // of 40
		answer  func(w http.ResponseWriter)
		fails   bool
		knownAs bool // an older form is known
	}{
		{"none", 0, nil, false, false},
		{"an error", 1, func(w http.ResponseWriter) { http.Error(w, "rpc error", http.StatusInternalServerError) }, false, false},
		{"half an answer", 1, func(w http.ResponseWriter) { fmt.Fprint(w, `{"ID": "job-0", "Name`) }, false, false},
		{"no job at all", 1, func(w http.ResponseWriter) { fmt.Fprint(w, `[1, 2]`) }, false, true},
		{"null in a list", 1, func(w http.ResponseWriter) {
			odd := clustertest.SmallJob("job-0", 7, true)
			odd.Constraints = []*api.Constraint{nil}
			_ = json.NewEncoder(w).Encode(odd)
		}, false, false},
		{"many", 10, func(w http.ResponseWriter) { http.Error(w, "rpc error", http.StatusInternalServerError) }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			const jobs = 40
			key := func(i int) cluster.JobKey { return cluster.JobKey{Namespace: "default", ID: fmt.Sprintf("job-%d", i)} }
			client := serving(t, func(w http.ResponseWriter, r *http.Request) {
				var i int
				switch {
				case r.URL.Path == "/v1/jobs":
					var stubs []api.JobListStub
					for i := range jobs {
						stubs = append(stubs, api.JobListStub{ID: key(i).ID, Namespace: "default", ModifyIndex: 7})
					}
					_ = json.NewEncoder(w).Encode(stubs)
				case strings.HasPrefix(r.URL.Path, "/v1/job/"):
					if _, err := fmt.Sscanf(r.URL.Path, "/v1/job/job-%d", &i); err != nil {
						t.Error(err)
					}
					if i < c.unread {
						c.answer(w)
						return
					}
					_ = json.NewEncoder(w).Encode(clustertest.SmallJob(key(i).ID, 7, true))
				default:
					fmt.Fprint(w, "[]")
				}
			})
			old := cluster.NewState()
			if c.knownAs {
				old.PutJob(clustertest.SmallJob(key(0).ID, 5, true))
			}
			s, err := client.Resync(t.Context(), old)
			if c.fails {
				if err == nil {
					t.Error("Resync does not fail")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := jobs - c.unread
			if c.knownAs {
				want++
			}
			if len(s.Jobs) != want || len(s.Unread) != c.unread {
				t.Errorf("%d jobs, want %d; unread: %v", len(s.Jobs), want, s.Unread)
			}
		})
	}
}

// A node that Nomad lists but cannot return keeps its last known state, with a warning. The others
// are read.
func TestUnreadNode(t *testing.T) {
	bad, good := clustertest.Node("bad", "ready", 7, "B"), clustertest.Node("good", "ready", 7, "G")
	client := serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/nodes":
			_ = json.NewEncoder(w).Encode([]api.NodeListStub{
				{ID: "bad", Name: "n1", ModifyIndex: 9, NodeResources: bad.NodeResources}, {ID: "good", ModifyIndex: 9, NodeResources: good.NodeResources},
			})
		case "/v1/node/bad":
			fmt.Fprint(w, `{"ID": 7}`)
		case "/v1/node/good":
			_ = json.NewEncoder(w).Encode(good)
		default:
			fmt.Fprint(w, "[]")
		}
	})
	old := cluster.NewState()
	for range 3 {
		s, err := client.Resync(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		if w := s.NodeWarnings(); len(w) != 1 || !strings.Contains(w[0], `node "n1" (bad) cannot be read; its last known state counts`) {
			t.Errorf("warnings %q", w)
		}
		if _, there := s.GPUModels()["G"]; !there {
			t.Error("the other node's GPU is missing")
		}
		if _, there := s.GPUModels()["B"]; there != (old.Nodes["bad"] != nil) {
			t.Errorf("the node's GPU is present: %v", there)
		}
		old = s
		old.PutNode(bad)
	}
}
