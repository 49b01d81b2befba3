// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package heartbeat

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
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
		if age := at.Sub(a.Beaten); !a.Working || !Fresh(a, at) || age != 10*time.Second {
			t.Errorf("%v ahead: working %v, fresh %v, %v old", wrong, a.Working, Fresh(a, at), age)
		}
	}
}

// slow is a Nomad with only the variable of another agent's heartbeat, which answers after 8 s.
type slow struct{ index int }

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(8 * time.Second):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status := http.StatusOK
	switch cas := r.URL.Query().Get("cas"); {
	case r.Method == http.MethodGet:
	case cas != fmt.Sprint(s.index):
		status = http.StatusConflict
	default:
		s.index++
	}
	body := fmt.Sprintf(`{"Items": {"json": "{\"agent\": \"a/1\"}"}, "ModifyIndex": %d}`, s.index)
	return &http.Response{StatusCode: status, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// An agent writes its heartbeat even if Nomad answers slowly.
func TestHeartbeatWithSlowAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nomads := &slow{index: 7}
		c, err := nomad.NewClient(&api.Config{Address: "http://nomad", HttpClient: &http.Client{Transport: nomads}}, "")
		if err != nil {
			t.Fatal(err)
		}
		h := &Heart{Nomad: c, Log: hclog.NewNullLogger(), Of: store.Heartbeat{Agent: "b/1"}, Vitals: func() VitalSigns { return VitalSigns{} }, Warnings: &Warnings{}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		h.Run(ctx)
		if beats := nomads.index - 7; beats < 20 {
			t.Errorf("%d heartbeats in ten minutes", beats)
		}
	})
}
