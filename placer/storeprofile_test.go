// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// A profile that cannot be stored is in force nevertheless, and is stored later. The placer does
// not start again because of it.
func TestProfileThatCannotBeStored(t *testing.T) {
	t.Parallel()
	refuse, writes := true, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && refuse:
			writes++
			http.Error(w, "no", http.StatusInternalServerError)
		case r.Method == http.MethodPut:
			writes++
			_, _ = w.Write([]byte("{}"))
		case strings.HasPrefix(r.URL.Path, "/v1/vars"):
			_, _ = w.Write([]byte("[]"))
		default:
			http.Error(w, "not found", http.StatusNotFound)
		}
	}))
	defer server.Close()
	client, err := nomad.NewClient(&api.Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	raw := "G1 A=1;G2 A=1.1"
	node := &api.Node{ID: "n", Name: "n", Status: "ready", NodeResources: &api.NodeResources{Devices: []*api.NodeDeviceResource{{
		Vendor: "nvidia", Type: "gpu", Name: "H200", Instances: []*api.NodeDevice{{ID: "G1"}, {ID: "G2"}},
		Attributes: map[string]*api.Attribute{"unique.variability_raw": {StringVal: &raw}},
	}}}}
	event := cluster.Event{Topic: "Node", Type: "NodeRegistration", Index: 1}
	event.Payload.Node = node
	p := newPlacer(t)
	p.nomad, p.m.State = client, cluster.NewState()
	p.m.State.Apply(event)
	began := time.Now()
	for _, c := range []struct {
		after  time.Duration
		refuse bool
		writes int
	}{
		{0, true, 1}, {2*time.Second - 1, true, 1}, {2 * time.Second, true, 2}, {6*time.Second - 1, true, 2},
		{6 * time.Second, false, 3}, {time.Hour, false, 3},
	} {
		refuse, p.m.Time = c.refuse, began.Add(c.after)
		if err := p.calibrate(t.Context(), p.m.Time); err != nil {
			t.Fatalf("after %v: %v", c.after, err)
		}
		p.startWrites(t.Context(), p.m.Time)
		p.awaitWrites()
		if p.m.Profile == nil || len(p.m.Profile.GPUs) != 2 {
			t.Fatalf("after %v: the profile in force is %+v", c.after, p.m.Profile)
		}
		if writes != c.writes {
			t.Errorf("after %v: written %d times, want %d", c.after, writes, c.writes)
		}
		if w := p.failing(); (len(w) == 1) != c.refuse {
			t.Errorf("after %v: warnings %q", c.after, w)
		}
	}
}
