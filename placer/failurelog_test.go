// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/race"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// vars is a Nomad with variables only; it refuses the same writes as Nomad.
type vars struct {
	mu    sync.Mutex
	index uint64
	m     map[string]*api.Variable
	// racing runs once, before the next checked write.
	racing func()
}

func (v *vars) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/var/")
	cas := r.URL.Query().Get("cas")
	if race := v.racing; race != nil && cas != "" {
		v.racing = nil
		race()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	have := v.m[path]
	if r.Method == http.MethodGet {
		if have == nil {
			http.Error(w, "variable not found", http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(have)
		return
	}
	now := &api.Variable{}
	if err := json.NewDecoder(r.Body).Decode(now); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if have == nil {
		have = &api.Variable{}
	}
	if cas != "" && cas != fmt.Sprint(have.ModifyIndex) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(have)
		return
	}
	size := 0
	for k, text := range now.Items {
		size += len(k) + len(text)
	}
	if size > 65536 {
		http.Error(w, "variables are limited to 64KiB in total size", http.StatusBadRequest)
		return
	}
	v.index++
	now.ModifyIndex = v.index
	v.m[path] = now
	_ = json.NewEncoder(w).Encode(now)
}

func newVars(t *testing.T) (*vars, *nomad.Client) {
	t.Helper()
	v := &vars{m: map[string]*api.Variable{}}
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	c, err := nomad.NewClient(&api.Config{Address: s.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	return v, c
}

// Lifting a quarantine and noting a failure at the same time do not undo each other. The agent
// notices by itself that a quarantine was lifted.
func TestLiftQuarantine(t *testing.T) {
	t.Parallel()
	v, c := newVars(t)
	ctx, now := t.Context(), time.Now()
	broken := func(alloc string, gpus ...string) []palapi.Failure {
		return []palapi.Failure{{At: now, Job: "j", Alloc: alloc, Cause: palapi.CauseInfrastructure, Reason: "lost", GPUs: gpus, Unhealthy: gpus}}
	}
	out := func(h *failureLog, at time.Time) map[string]bool {
		return failure.QuarantinedGPUs(h.quarantine, at)
	}
	agent := failureLog{}
	if err := agent.load(ctx, c, now); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.note(ctx, c, broken("a1", "g1", "g2", "g3"), failure.Evidence{}, now); err != nil {
		t.Fatal(err)
	}
	if _, err := LiftQuarantine(ctx, c, "g1", "g9"); err == nil || !strings.Contains(err.Error(), `"g9" is not in quarantine`) {
		t.Errorf("lifting a quarantine that does not exist: %v", err)
	}
	lifted, err := LiftQuarantine(ctx, c, "g1")
	if d := cmp.Diff([]string{"g1"}, lifted); d != "" || err != nil {
		t.Errorf("lifted (-want +got):\n%s%v", d, err)
	}
	// The agent notes a failure before it knows that the quarantine was lifted.
	if _, err := agent.note(ctx, c, broken("a2", "g4"), failure.Evidence{}, now); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]bool{"g2": true, "g3": true, "g4": true}, out(&agent, now)); d != "" {
		t.Errorf("after the agent's write (-want +got):\n%s", d)
	}
	// The other way round: the agent writes between the command's read and its write.
	v.racing = func() {
		if _, err := agent.note(ctx, c, broken("a3", "g5"), failure.Evidence{}, now); err != nil {
			t.Error(err)
		}
	}
	if _, err := LiftQuarantine(ctx, c, "g2", "g3", "g4"); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{quarantineReread / 2, quarantineReread} {
		if err := agent.load(ctx, c, now.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(map[string]bool{"g5": true}, out(&agent, now)); d != "" {
		t.Errorf("after the command's write (-want +got):\n%s", d)
	}
	if lifted, err := LiftQuarantine(ctx, c); err != nil || len(lifted) != 1 {
		t.Errorf("lifting all: %v %v", lifted, err)
	}
}

// An operator puts the first GPU in quarantine, and the command cannot tell the agent. The agent
// notices by itself.
func TestQuarantineUntold(t *testing.T) {
	t.Parallel()
	_, c := newVars(t)
	ctx, now := t.Context(), time.Now()
	agent := failureLog{}
	if err := agent.load(ctx, c, now); err != nil {
		t.Fatal(err)
	}
	if err := PutInQuarantine(ctx, c, time.Hour, "its fan is loud", "g1"); err != nil {
		t.Fatal(err)
	}
	if err := agent.load(ctx, c, now.Add(quarantineReread)); err != nil || !failure.QuarantinedGPUs(agent.quarantine, now)["g1"] {
		t.Errorf("quarantine %v, %v", agent.quarantine, err)
	}
}

// When a quarantine is lifted, the GPU's strikes are forgotten, and earlier failures of jobs no
// longer count.
func TestLiftedStartsAnew(t *testing.T) {
	t.Parallel()
	h, now := failureLog{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	known := failure.Evidence{
		Models:    map[string]string{"g1": "m", "g2": "m", "g3": "m"},
		Successes: []cluster.Success{{At: now, GPUs: []string{"g2", "g3"}}},
	}
	fail := func(jobs ...string) {
		for _, job := range jobs {
			now = now.Add(time.Minute)
			next, _ := h.withFailures([]palapi.Failure{{At: now, Job: job, Alloc: job, Cause: palapi.CauseUser, GPUs: []string{"g1"}}}, known, now)
			h = *next
		}
	}
	h.quarantine = map[string]palapi.Quarantine{}
	fail("a", "b", "c")
	now = now.Add(time.Second)
	if _, err := lift(h.quarantine, nil, now); err != nil {
		t.Fatal(err)
	}
	fail("d", "e")
	if q := h.quarantine["g1"]; now.Before(q.Until) {
		t.Errorf("two failures after the lift: %+v", q)
	}
	if fail("f"); !now.Before(h.quarantine["g1"].Until) || h.quarantine["g1"].Strikes != 1 {
		t.Errorf("three failures after the lift: %+v", h.quarantine["g1"])
	}
}

// Nomad accepts the stored failures, however many there are and however long their messages. A
// failure that was not stored is not found again.
func TestHistoryFits(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip(race.Sampled) // no concurrency, and it takes a minute
	}
	_, c := newVars(t)
	ctx, now := t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h, allocs, models := failureLog{}, []*cluster.Alloc{}, map[string]string{}
	for i := range 10_000 {
		models[fmt.Sprint("other", i)] = "m"
	}
	for i := range 2 * failuresKept {
		at := now.Add(time.Duration(i) * time.Second)
		a := &cluster.Alloc{ID: fmt.Sprintf("alloc-%d", i), ModifyIndex: uint64(i + 1), ModifyTime: at.UnixNano(), Client: api.AllocClientStatusFailed}
		for k := range 8 {
			a.GPUs = append(a.GPUs, fmt.Sprintf("GPU-%08d-1234-1234-1234-%012d", i, k))
		}
		a.Tasks = map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{{Type: api.TaskDriverFailure, DisplayMessage: strings.Repeat("ü", 2000) + strings.Join(a.GPUs, " ")}}}}
		allocs = append(allocs, a)
		if h.knows(a) {
			t.Fatalf("failure %d is known before it is noted", i)
		}
		if _, err := h.note(ctx, c, []palapi.Failure{failure.Diagnose(a, a.GPUs, "node", nil)}, failure.Evidence{Models: models}, at); err != nil {
			t.Fatalf("failure %d: %v", i, err)
		}
	}
	again := failureLog{}
	if err := again.load(ctx, c, now); err != nil {
		t.Fatal(err)
	}
	for i, a := range allocs {
		if !again.knows(a) {
			t.Errorf("failure %d is found again", i)
		}
	}
	last := now.Add((2*failuresKept - 1) * time.Second)
	if n := len(again.failures); n < 40 || n > failuresKept || !again.failures[n-1].At.Equal(last) {
		t.Errorf("%d failures are kept", n)
	}
	if n := len(failure.QuarantinedGPUs(again.quarantine, last)); n < 80 || again.quarantine[allocs[len(allocs)-1].GPUs[0]] == (palapi.Quarantine{}) {
		t.Errorf("%d GPUs are kept out", n)
	}
	if r := again.failures[0].Reason; len(r) > reasonBytes || !strings.HasSuffix(r, "…") || strings.Contains(r, "\uFFFD") {
		t.Errorf("reason %q", r)
	}
}

// One author's sweep of jobs, however large, does not push out the failures of others.
func TestSweepLeavesOthersFailures(t *testing.T) {
	t.Parallel()
	_, c := newVars(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := failureLog{}
	add := func(namespace string, index int) {
		f := palapi.Failure{Namespace: namespace, Alloc: fmt.Sprint("alloc-", index), Index: uint64(index), At: now, Cause: palapi.CauseUser}
		if _, err := h.note(t.Context(), c, []palapi.Failure{f}, failure.Evidence{}, now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		add("others", i+1)
	}
	for i := range 2 * failuresKept {
		add("sweep", i+10)
	}
	n := 0
	for _, f := range h.failures {
		if f.Namespace == "others" {
			n++
		}
	}
	if n != 3 || len(h.failures) != failuresKept {
		t.Errorf("%d of the 3 failures of others are kept, %d in all", n, len(h.failures))
	}
	for i := range 2 * failuresKept {
		if !h.knows(&cluster.Alloc{ID: fmt.Sprint("alloc-", i+10), ModifyIndex: uint64(i + 10)}) {
			t.Errorf("failure %d is found again", i)
		}
	}
}

// A GPU was quarantined while a clock was a month ahead. The quarantine lasts no longer than any
// other and counts once, and its failures are not forgotten early.
func TestQuarantineOfAFutureTime(t *testing.T) {
	t.Parallel()
	_, c := newVars(t)
	ctx, now := t.Context(), time.Now()
	ahead := now.AddDate(0, 1, 0)
	struck := []palapi.Failure{{At: ahead, Job: "j", Alloc: "a", Cause: palapi.CauseInfrastructure, Reason: "lost", GPUs: []string{"g"}, Unhealthy: []string{"g"}}}
	before, after := failureLog{}, failureLog{}
	if _, err := before.note(ctx, c, struck, failure.Evidence{}, ahead); err != nil {
		t.Fatal(err)
	}
	if err := after.load(ctx, c, now); err != nil {
		t.Fatal(err)
	}
	for _, stored := range []bool{false, true} {
		q := after.quarantine["g"]
		if got := q.Until.Sub(now); got != failure.Base || q.Last.After(now) || q.Strikes != 1 {
			t.Errorf("stored %v: in quarantine for another %v, want %v; %+v", stored, got, failure.Base, q)
		}
		kept, err := ReadQuarantine(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		after.quarantine = kept
	}
}

// A placer starts on a cluster with many failures and no stored history. It judges only the last
// ones, as many as it can store.
func TestManyFailuresAtOnce(t *testing.T) {
	t.Parallel()
	const many = 20_000
	_, c := newVars(t)
	p := newPlacer(t)
	p.nomad, p.m.State = c, cluster.NewState()
	for i := range many {
		p.m.State.PutAlloc(&cluster.Alloc{ID: fmt.Sprintf("alloc-%06d", i), Job: cluster.JobKey{Namespace: "sweep", ID: fmt.Sprint("j", i)}, Node: "n", Client: api.AllocClientStatusFailed,
			GPUs: []string{fmt.Sprint("GPU-", i%8)}, ModifyIndex: uint64(i + 1), ModifyTime: int64(i), CreateTime: int64(i) * int64(time.Hour),
			Tasks: map[string]*api.TaskState{"t": {Failed: true, Events: []*api.TaskEvent{{Type: api.TaskTerminated, ExitCode: 1}}}}})
	}
	for range 2 {
		if err := p.noteFailures(t.Context(), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		if n := len(p.m.Failures); n != failuresKept || p.failureLog.dropped != many-failuresKept {
			t.Fatalf("%d failures kept, up to %d dropped", n, p.failureLog.dropped)
		}
	}
}

// Failures that no longer count are forgotten.
func TestTrimQuarantine(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	h := failureLog{quarantine: map[string]palapi.Quarantine{
		"spent":       {Until: ago(47 * time.Hour), Strikes: 2, Last: ago(49 * time.Hour)},
		"one left":    {Until: ago(46 * time.Hour), Strikes: 3, Last: ago(49 * time.Hour)},
		"out":         {Until: now.Add(time.Hour), Strikes: 1, Last: ago(time.Minute)},
		"just lifted": {Lifted: ago(time.Hour)},
		"lifted":      {Lifted: ago(failure.CountsFor + time.Hour)},
	}}
	h.trimQuarantine(now)
	got := map[string]bool{}
	for id := range h.quarantine {
		got[id] = true
	}
	if d := cmp.Diff(map[string]bool{"one left": true, "out": true, "just lifted": true}, got); d != "" {
		t.Errorf("kept (-want +got):\n%s", d)
	}
}

// A failure that a running placer sees for the first time has just happened, whatever the servers'
// clock says. A failure that it finds at its start, or after a full read of Nomad, may be old.
func TestTimesOfThePast(t *testing.T) {
	t.Parallel()
	_, c := newVars(t)
	p := newPlacer(t)
	p.nomad, p.m.State = c, cluster.NewState()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fails := func(id string) time.Time {
		p.m.State.PutAlloc(&cluster.Alloc{ID: id, Job: cluster.JobKey{Namespace: "default", ID: "j"}, Node: "n", Client: "failed", Desired: "run", GPUs: []string{"g"},
			ModifyIndex: uint64(len(p.m.Failures) + 1), CreateTime: now.Add(-2 * time.Hour).UnixNano(), ModifyTime: now.Add(-time.Hour).UnixNano()})
		if err := p.noteFailures(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		return p.m.Failures[len(p.m.Failures)-1].At
	}
	old := now.Add(-time.Hour)
	if at := fails("first"); !at.Equal(old) {
		t.Errorf("before the placer started: %v, want %v", at, old)
	}
	if at, want := fails("next"), now.Add(-mostDelay); !at.Equal(want) {
		t.Errorf("since its last look: %v, want %v", at, want)
	}
	p.resyncedAt = now.Add(time.Second)
	if at := fails("last"); !at.Equal(old) {
		t.Errorf("while it was disconnected from Nomad: %v, want %v", at, old)
	}
}
