// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer"
)

// Of two agents only the active one notifies, once for each event. The longest wait is a
// metric.
func TestNotifiesOnce(t *testing.T) {
	c := newCluster(t)
	var mu sync.Mutex
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e placer.Event
		err := json.NewDecoder(r.Body).Decode(&e)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, strings.TrimSuffix(fmt.Sprintf("%s %s %v", e.Kind, e.Job, err), " <nil>"))
	}))
	t.Cleanup(receiver.Close)
	config := fmt.Sprintf("http {\n  bind_port = 0\n}\nhigh_availability {\n  enabled = true\n}\nnotify \"test\" {\n  url = %q\n}\n", receiver.URL)
	url := c.agent("", config)
	c.agent("", config)
	for _, name := range []string{"first", "second"} {
		if code, out, said := c.does("run", c.job("default", name, 4)); code != 0 {
			t.Fatal(out, said)
		}
	}
	if code, out, said := c.does("run", "-detach", c.job("default", "third", 4)); code != 0 {
		t.Fatal(out, said)
	}
	c.until("the third job's wait is a metric", func() bool {
		resp, err := http.Get(url + "/v1/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var m struct {
			Longest float64 `json:"longest_wait_seconds"`
		}
		return json.NewDecoder(resp.Body).Decode(&m) == nil && m.Longest > 0
	})
	if code, out, said := c.does("cancel", "first"); code != 0 {
		t.Fatal(out, said)
	}
	want := "started first; started second; ended first; started third"
	c.until("all notifications have arrived", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(got, "; ") == want
	})
}
