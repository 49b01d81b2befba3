// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A gang found gated over its pins by a placer that does not know why: one that
// was given up is stopped, another one is let go on.
func TestFoundStopping(t *testing.T) {
	for _, c := range []struct {
		givenUp string
		want    []string
	}{
		{"", []string{"GET /v1/job/j/submission", "PUT /v1/jobs"}},
		{"given up after 3 tries", []string{"PUT /v1/allocation/a1/stop"}},
	} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.Path)
			fmt.Fprint(w, `{"JobModifyIndex": 200}`)
		}))
		defer server.Close()
		client, err := nomad.NewClient(&api.Config{Address: server.URL}, "default")
		if err != nil {
			t.Fatal(err)
		}
		p := newPlacer(t)
		p.nomad, p.state = client, nomad.NewState()
		pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"g1"}}}}
		job, err := rewrite.Pin(benchJob("j", 1), pins, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		job = rewrite.Gate(job)
		p.state.PutJob(job)
		k := nomad.KeyOf(job)
		p.state.PutAlloc(&nomad.Alloc{ID: "a1", Job: k, Group: "g", Client: "running", Desired: "run", GPUs: []string{"g1"}, CreateIndex: 1, ModifyIndex: 1})
		found := &tracked{Standing: StandingOf(p.state, job), record: &Record{GivenUp: c.givenUp}}
		if found.Phase != Stopping {
			t.Fatalf("it is %s", found.Phase)
		}
		if err := p.finishStopping(t.Context(), found); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(c.want, asked); d != "" {
			t.Errorf("given up %q: asked of Nomad (-want +got):\n%s", c.givenUp, d)
		}
	}
}
