// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Whatever the variable of a job's record contains, the job is served, its record is rewritten, and
// nothing panics.
func FuzzRecord(f *testing.F) {
	good, err := json.Marshal(gang.Record{Namespace: "default", Job: "j", Submitted: time.Unix(1, 0), Attained: time.Hour, Done: time.Hour, GivenUp: reason.Unread("x")})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), `{}`, `null`, `[]`, `{"attained": -9223372036854775808, "waited": 9223372036854775807}`,
		`{"submitted": "9999-12-31T23:59:59Z"}`, `{"decision": {"chosen": {"members": [{"gpus": null}]}, "walk": [{}]}, "mode": "?"}`, `{"user_failures": -1, "outage": {"failures": 1e9}}`, "{"} {
		f.Add(seed)
	}
	s, prof, err := benchState(1, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items, err := json.Marshal(map[string]any{"Items": map[string]string{"decision": text}, "ModifyIndex": 1})
		if err != nil {
			return
		}
		p := placerAt(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = w.Write(items)
			}
		})
		p.m.Profile = prof
		pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"node-id-00000"}, GPUs: []string{"GPU-00000-4"}}}}
		job, err := rewrite.Pin(hostile.Plain("j", 1, 1, 5), pins, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		job = rewrite.Gate(job)
		delete(s.Jobs, cluster.KeyOf(job))
		s.PutJob(job)
		now := p.tick()
		p.m.State = s
		if err := p.m.UpdateView(now); err != nil {
			t.Fatal(err)
		}
		p.track(t.Context())
		for _, tracked := range p.m.Sorted() {
			p.step(t.Context(), tracked, gang.Reconcile{})
		}
		p.m.Time = now
		p.syncQueue(t.Context())
		for _, a := range p.m.Queue.Decide(gang.QueueTime(now), p.m.View.Cluster) {
			if t := p.m.ByID(a.Job); t != nil {
				if err := p.writeRecord(context.Background(), p.prepare(t, a.Found, now).Record); errors.Is(err, store.ErrNotStorable) {
					panic(err)
				}
			}
		}
		p.publish(now)
	})
}
