// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/live"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// A GPU is idle after it has done no work for long enough under one job. Work, another job, and an
// answer without the GPU restart this time. It continues while the agent does not ask the node.
func TestIdleGPUs(t *testing.T) {
	var i idleGPUs
	begin := time.Unix(1e9, 0)
	percent := func(n int64) palapi.Load { return palapi.Load{Utilization: &n} }
	held := []query.Held{{ID: "a", NodeID: "n1", Job: "d/x"}, {ID: "b", NodeID: "n1", Job: "d/x"}, {ID: "c", NodeID: "n2", Job: "d/y"}}
	look := func(minute int, held []query.Held, uses map[string]palapi.Load, nodes ...string) {
		i.heard(held, nodes, uses, begin.Add(time.Duration(minute)*time.Minute))
	}
	idle := func(minute int) (ids string) {
		now := begin.Add(time.Duration(minute) * time.Minute)
		for _, g := range held {
			if since := i.of(palapi.GPU{ID: g.ID, Job: g.Job}, now); !since.IsZero() {
				ids += fmt.Sprintf("%s+%.0f ", g.ID, since.Sub(begin).Minutes())
			}
		}
		if n := i.count(now); n != strings.Count(ids, " ") {
			t.Errorf("%d are counted, these are idle: %s", n, ids)
		}
		return strings.TrimSpace(ids)
	}
	none := map[string]palapi.Load{"a": percent(0), "b": percent(0), "c": percent(0)}
	look(0, held, none, "n1", "n2")
	look(5, held, map[string]palapi.Load{"a": percent(0), "b": percent(3)}, "n1")
	look(14, held, none, "n1")
	for minute, want := range map[int]string{14: "", 15: "a+0 c+0", 29: "a+0 b+14 c+0"} {
		if got := idle(minute); got != want {
			t.Errorf("after %d minutes: %q, want %q", minute, got, want)
		}
	}
	held[0].Job = "d/z"
	look(30, held, none, "n1")
	look(31, held, nil, "n2")
	if got := idle(31); got != "b+14" {
		t.Errorf("after another job, and an answer without c: %q", got)
	}
	held = held[2:]
	look(32, held, none, "n2")
	if n := i.count(begin.Add(time.Hour)); n != 1 {
		t.Errorf("%d are idle after the jobs of the others ended", n)
	}
}

// The agent asks each node with held GPUs once a minute. If there are too many, it starts with
// those that it asked longest ago.
func TestIdleNodesInTurn(t *testing.T) {
	var i idleGPUs
	var held []query.Held
	for n := range 100 {
		held = append(held, query.Held{ID: fmt.Sprint("g", n), NodeID: fmt.Sprintf("n%02d", n), Job: "d/x"})
	}
	now := time.Unix(1e9, 0)
	asked := map[string]int{}
	for range 4 {
		nodes := i.next(held, now)
		for _, n := range nodes {
			asked[n]++
		}
		if len(nodes) > live.MostNodes {
			t.Errorf("%d nodes at once", len(nodes))
		}
		i.heard(held, nodes, nil, now)
		now = now.Add(idleEvery)
	}
	for n, times := range asked {
		if times != 1 {
			t.Errorf("%s was asked %d times within a minute", n, times)
		}
	}
	if len(asked) != 100 || len(i.next(held, now.Add(askAgain))) != live.MostNodes {
		t.Errorf("%d were asked", len(asked))
	}
}

// gpus with live=true, and explain, return the current load of GPUs to callers who may read nodes.
// Other requests cause no requests to nodes.
func TestLiveForWhomItMay(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research", "nodes"}, "bob": {"research"}})
	f.has(gpuJob("research", "mine", 1), "GPU-1")
	r := f.run(openConfig).ready()
	for _, c := range []struct {
		token, path string
		says        bool
	}{
		{"bob", "/v1/job/mine/explain?namespace=research", false},
		{"alice", "/v1/gpus", false},
		{"alice", "/v1/gpus?live=true", true},
		{"alice", "/v1/job/mine/explain?namespace=research", true},
	} {
		f.forget()
		status, text := r.send(http.MethodGet, c.path, c.token, "")
		if says := strings.Contains(text, `"utilization_percent": 42`); status != http.StatusOK || says != c.says {
			t.Errorf("%s %s: %d %s", c.token, c.path, status, text)
		}
		if asked := f.askedFor("client/stats"); !c.says && len(asked) > 0 {
			t.Errorf("%s %s asked %q", c.token, c.path, asked)
		}
	}
}

// The history gets the idle time of GPUs that have been idle for long, and only once.
func TestIdleTimeIsBooked(t *testing.T) {
	var i idleGPUs
	begin, zero, busy := time.Unix(1e9, 0), int64(0), int64(50)
	held := []query.Held{{ID: "a", NodeID: "n", Job: "d/x"}, {ID: "b", NodeID: "n", Job: "d/x"}}
	look := func(minute int, a, b *int64) {
		i.heard(held, []string{"n"}, map[string]palapi.Load{"a": {Utilization: a}, "b": {Utilization: b}}, begin.Add(time.Duration(minute)*time.Minute))
	}
	is := func(when, want string) []accounting.IdleGPU {
		t.Helper()
		got, all := "", i.unbooked()
		for _, p := range all {
			got += fmt.Sprintf("%s of %s %.0f-%.0f ", p.GPU, p.Job, p.From.Sub(begin).Minutes(), p.To.Sub(begin).Minutes())
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		return all
	}
	look(0, &zero, &busy)
	look(10, &zero, &zero)
	is("not for long", "")
	look(20, &zero, &zero)
	was := is("one is idle", "a of d/x 0-20")
	look(24, &zero, &busy)
	i.booked(was)
	i.booked(is("the rest", "a of d/x 20-24"))
	is("all is booked", "")
	look(30, &busy, &busy)
	is("it works again", "")
}

// Idle time reaches the database without a gap and without being counted twice, across midnight and
// failed writes, as long as the GPU is idle.
func TestIdleTimeReachesTheHistory(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 2, 23, 30, 0, 0, time.UTC)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "nvidia/gpu/H100", GPUs: []pal.GPU{{ID: "a"}, {ID: "b"}}}}}}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	m := &model.Model{State: cluster.NewState(), View: &request.View{Ledger: &ledger.Ledger{Cluster: c}}}
	m.State.PutAlloc(&cluster.Alloc{ID: "1", Job: cluster.JobKey{Namespace: "d", ID: "x"}, Node: "n", GPUs: []string{"a", "b"},
		Client: api.AllocClientStatusRunning, CreateTime: at(-60).UnixNano(), ModifyIndex: 1})
	db, _, err := accounting.Open(t.Context(), filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	k := &bookkeeper{agent: &Agent{}, db: db, recorder: accounting.NewRecorder(nil, nil, 0)}
	picture := query.New(m, nil, palapi.Activity{Working: true})
	away, leave := context.WithCancel(t.Context())
	leave()
	zero, busy := int64(0), int64(50)
	failed := 0
	for minute := range 80 { // a is idle from 0 to 65, b from 40 to 50, too short
		uses := map[string]palapi.Load{"a": {Utilization: &zero}, "b": {Utilization: &busy}}
		if minute > 65 {
			uses["a"] = palapi.Load{Utilization: &busy}
		}
		if minute >= 40 && minute <= 50 {
			uses["b"] = palapi.Load{Utilization: &zero}
		}
		m.Time = at(minute)
		k.agent.idle.heard([]query.Held{{ID: "a", NodeID: "n", Job: "d/x"}, {ID: "b", NodeID: "n", Job: "d/x"}}, []string{"n"}, uses, at(minute))
		ctx := t.Context()
		if minute%5 > 0 { // the database fails more often than not
			ctx = away
		}
		if err := k.write(ctx, picture, k.agent.idle.unbooked()); err != nil {
			failed++
		}
	}
	days, err := db.Usage(t.Context(), accounting.Filter{}, []string{"day"}, at(80))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, u := range days {
		got[u.Of[0]] = math.Round(u.IdleGPUHours * 60)
	}
	if failed == 0 || len(got) != 2 || got["2026-11-02"] != 30 || got["2026-11-03"] != 35 {
		t.Errorf("%v minutes are written, want 30 and 35; %d writes failed", got, failed)
	}
}

// An agent that becomes active again does not know what the GPUs did meanwhile: it starts counting
// again.
func TestIdleStartsAgain(t *testing.T) {
	begin := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var a Agent
	i := &a.idle
	none := int64(0)
	hear := func(minute int) (now time.Time) {
		now = begin.Add(time.Duration(minute) * time.Minute)
		i.heard([]query.Held{{ID: "a", NodeID: "n", Job: "d/x"}}, []string{"n"}, map[string]palapi.Load{"a": {Utilization: &none}}, now)
		return now
	}
	hear(0)
	hear(20)
	ended, end := context.WithCancel(t.Context())
	end()
	a.watchIdle(ended, nil) // begins when the agent becomes active, and ends at once
	now := hear(60)
	if got := i.unbooked(); len(got) > 0 {
		t.Errorf("the history gets %+v", got)
	}
	if since := i.of(palapi.GPU{ID: "a", Job: "d/x"}, now); !since.IsZero() {
		t.Errorf("idle since %v, although the agent became active just now", since)
	}
}

// The parts of a shared GPU are idle while the GPU is: its use is known only as a whole.
func TestIdleParts(t *testing.T) {
	var i idleGPUs
	begin, zero := time.Unix(1e9, 0), int64(0)
	for _, minute := range []time.Duration{0, 20} {
		i.heard([]query.Held{{ID: "GPU-1::1", NodeID: "n", Job: "d/x"}}, []string{"n"}, map[string]palapi.Load{"GPU-1": {Utilization: &zero}}, begin.Add(minute*time.Minute))
	}
	if since := i.of(palapi.GPU{ID: "GPU-1::1", Job: "d/x"}, begin.Add(20*time.Minute)); !since.Equal(begin) {
		t.Errorf("idle since %v, want %v", since, begin)
	}
}
