// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// A placer that ends waits for the files that it is reading.
func TestProgressIsWaitedFor(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := nomad.NewClient(&api.Config{Address: server.URL}, "*")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reads := progressReads{of: map[cluster.JobKey]*reporting{{Namespace: "default", ID: "a"}: {alloc: "a"}}}
	reads.start(ctx, c, hclog.NewNullLogger(), time.Now())
	<-asked
	under := reads.done
	cancel()
	reads.wait()
	select {
	case under <- nil: // the channel has room again: wait has received the batch
	default:
		t.Error("wait did not wait for the batch")
	}
	if reads.done != nil {
		t.Error("the batch still counts as being read")
	}
}

// The finished part of the work is a number from 0 to 1, a percentage or a fraction ("3/4"), on the
// first line. Everything else is refused; an empty file is allowed.
func TestParseProgress(t *testing.T) {
	for text, want := range map[string]float64{
		"0.42": 0.42, "42%": 0.42, "42 %\n": 0.42, " 420/1000\n": 0.42, "420 / 1000": 0.42, "1": 1, "0": 0, "100%": 1, "0/7": 0, "1e-3": 0.001, "0.5\nand more": 0.5,
	} {
		if got, ok, err := parseProgress([]byte(text)); err != nil || !ok || got != want {
			t.Errorf("%q: %v, %v, %v", text, got, ok, err)
		}
	}
	for _, text := range []string{"", "\n", " \n0.5"} {
		if _, ok, err := parseProgress([]byte(text)); ok || err != nil {
			t.Errorf("%q: %v, %v", text, ok, err)
		}
	}
	for _, text := range []string{"NaN", "Inf", "-Inf", "-0.1", "1.01", "101%", "42", "7/5", "1/0", "0/0", "-1/-2", "1/NaN", "Inf/Inf", "1/Inf", "1/", "/", "%", "half", "0,5", "\x00", "0.5 0.6", "1/2/3"} {
		if got, ok, err := parseProgress([]byte(text)); ok || err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
