// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// TestDeregisterTwice: if two callers purge a job at once, one gets the error of Nomad's state
// store that there is no such job (recorded from 1.11.3).
func TestDeregisterTwice(t *testing.T) {
	tests := []struct {
		answer string
		code   int
		ok     bool
	}{
		{"DeleteJob failed: job not found", http.StatusInternalServerError, true},
		{"job not found", http.StatusNotFound, true},
		{"no cluster leader", http.StatusInternalServerError, false},
	}
	for _, tt := range tests {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, tt.answer, tt.code)
		}))
		client, err := NewClient(&api.Config{Address: srv.URL}, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Deregister(t.Context(), cluster.JobKey{Namespace: "default", ID: "j"}, true); (err == nil) != tt.ok {
			t.Errorf("%d %s: %v", tt.code, tt.answer, err)
		}
		srv.Close()
	}
}
