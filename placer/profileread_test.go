// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// If nothing was measured, the placer does not look for the stored profile in every cycle.
func TestProfileIsNotReadInEveryCycle(t *testing.T) {
	t.Parallel()
	reads := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reads++
		_, _ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	client, err := nomad.NewClient(&api.Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlacer(t)
	p.nomad, p.m.State = client, cluster.NewState()
	began := time.Now()
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {time.Second, 1}, {profileAgain, 1}, {profileAgain + time.Millisecond, 2}} {
		if err := p.calibrate(t.Context(), began.Add(c.after)); err != nil {
			t.Fatal(err)
		}
		if reads != c.want {
			t.Errorf("after %v: read %d times, want %d", c.after, reads, c.want)
		}
	}
}
