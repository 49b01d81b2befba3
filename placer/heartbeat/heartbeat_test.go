// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package heartbeat

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// A reader whose clock is wrong still sees that the placer is active, and how old its heartbeat is.
func TestReaderWithWrongClock(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		fmt.Fprintf(w, `{"Items": {"json": "{\"agent\": \"a/1\"}"}, "ModifyTime": %d}`, now.Add(-10*time.Second).UnixNano())
	}))
	t.Cleanup(server.Close)
	c, err := nomad.NewClient(&api.Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []time.Duration{0, -time.Hour, time.Hour} {
		at := now.Add(wrong)
		a, err := ReadActivity(t.Context(), c, at)
		if err != nil {
			t.Fatal(err)
		}
		if age := at.Sub(a.Beaten); !a.Working || !a.Fresh(at) || age != 10*time.Second {
			t.Errorf("%v ahead: working %v, fresh %v, %v old", wrong, a.Working, a.Fresh(at), age)
		}
	}
}
