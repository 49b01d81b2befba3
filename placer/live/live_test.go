// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// The plugin's statistics are read by name. Impossible or missing values are unknown. Parts of a
// shared GPU are one GPU, with the statistics of its first part.
func TestOf(t *testing.T) {
	var stats api.HostStats
	if err := json.Unmarshal([]byte(`{"DeviceStats": [null, {"Vendor": "amd", "InstanceStats": {"x": {"Stats": {"Attributes": {"GPU utilization": {"IntNumeratorVal": 1}}}}}},
		{"Vendor": "nvidia", "InstanceStats": {
			"GPU-1": {"Stats": {"Attributes": {"GPU utilization": {"IntNumeratorVal": 97}, "Memory state": {"IntNumeratorVal": 10, "IntDenominatorVal": 100},
				"Temperature": {"IntNumeratorVal": 60}, "Power usage": {"IntNumeratorVal": 600, "IntDenominatorVal": 700}}}},
			"GPU-2": {"Stats": {"Attributes": {"GPU utilization": {"IntNumeratorVal": 300}, "Memory state": {"IntNumeratorVal": -1, "IntDenominatorVal": 100},
				"Power usage": {"IntNumeratorVal": 5, "IntDenominatorVal": 0}}}},
			"GPU-3::0": {"Stats": {"Attributes": {"GPU utilization": {"IntNumeratorVal": 0}}}},
			"GPU-3::1": {"Stats": {"Attributes": {"Statistics of": {"StringVal": "GPU-3::0"}}}},
			"GPU-4": {"Stats": {"Attributes": {"GPU utilization": {"StringVal": "N/A"}}}},
			"GPU-5": null, "GPU-6": {}}}]}`), &stats); err != nil {
		t.Fatal(err)
	}
	n := func(x int64) *int64 { return &x }
	want := map[string]palapi.Load{
		"GPU-1": {Utilization: n(97), MemoryUsedMiB: n(10), MemoryTotalMiB: n(100), TemperatureC: n(60), PowerW: n(600), PowerLimitW: n(700)},
		"GPU-2": {PowerW: n(5)},
		"GPU-3": {Utilization: n(0)},
		"GPU-4": {},
	}
	got := Of(&stats)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for id, idle := range map[string]bool{"GPU-1": false, "GPU-2": false, "GPU-3": true, "GPU-4": false} {
		if got[id].Idle() != idle {
			t.Errorf("%s idle: %t", id, !idle)
		}
	}
}

// A node gets one request per interval, however many callers ask at once. A node that does not
// answer is named and does not delay the others. A request for too many nodes fails at once.
func TestReader(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node := r.URL.Query().Get("node_id")
		mu.Lock()
		asked[node]++
		mu.Unlock()
		if node == "down" {
			http.Error(w, "No path to node", http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"DeviceStats": [{"Vendor": "nvidia", "InstanceStats": {"GPU-%s": {"Stats": {"Attributes": {"GPU utilization": {"IntNumeratorVal": 7}}}}}}]}`, node)
	}))
	t.Cleanup(server.Close)
	c, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := Reader{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			use, silent, err := r.Nodes(context.Background(), c, []string{"a", "down", "b", "a"})
			if err != nil || len(use) != 2 || use["GPU-a"].Utilization == nil || len(silent) != 1 || silent["down"] == nil {
				t.Errorf("%v %v %v", use, silent, err)
			}
		})
	}
	all.Wait()
	if d := cmp.Diff(map[string]int{"a": 1, "b": 1, "down": 1}, asked); d != "" {
		t.Errorf("requests (-want +got)\n%s", d)
	}
	var many []string
	for i := range MostNodes + 1 {
		many = append(many, fmt.Sprint("n", i))
	}
	if _, _, err := r.Nodes(context.Background(), c, many); err == nil || !strings.Contains(err.Error(), "of 65 nodes") || asked["n0"] != 0 {
		t.Errorf("%v, %v", err, asked)
	}
}

// If a caller gives up while a node is queried, the node does not count as failed.
func TestReaderGivenUp(t *testing.T) {
	came := make(chan struct{})
	var once sync.Once
	first := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			once.Do(func() { close(came) })
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(server.Close)
	c, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := Reader{}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-came; cancel() }()
	if _, silent, _ := r.Nodes(ctx, c, []string{"a"}); silent["a"] == nil {
		t.Error("it answered")
	}
	if _, silent, err := r.Nodes(context.Background(), c, []string{"a"}); len(silent) > 0 || err != nil {
		t.Error(silent, err)
	}
}
