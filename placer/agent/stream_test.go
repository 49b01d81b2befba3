// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// shown is the state of the page after the messages that it has got.
type shown struct {
	Version, Jobs uint64
	Racks         []query.MapRack
	Cells         []query.Cell
}

func (s *shown) take(t *testing.T, text []byte) {
	t.Helper()
	for part := range bytes.SplitSeq(bytes.TrimSpace(text), []byte("\n\n")) {
		data, ok := bytes.CutPrefix(part, []byte("event: state\ndata: "))
		if !ok {
			continue
		}
		var m struct {
			Version, From, Jobs uint64
			Racks               []query.MapRack
			Cells               []int
		}
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if m.From != 0 && m.From != s.Version {
			t.Fatalf("a change from version %d at %d", m.From, s.Version)
		}
		if s.Version, s.Jobs = m.Version, m.Jobs; m.Racks != nil {
			s.Racks, s.Cells = m.Racks, nil
			for _, c := range m.Cells {
				s.Cells = append(s.Cells, query.Cell(c))
			}
		} else {
			for two := range slices.Chunk(m.Cells, 2) {
				s.Cells[two[0]] = query.Cell(two[1])
			}
		}
	}
}

func randomMap(r *rand.Rand, racks int) *query.Map {
	m := &query.Map{}
	for i := range racks {
		m.Racks = append(m.Racks, query.MapRack{Name: fmt.Sprint("r", i), Datacenter: "dc1", Nodes: []query.MapNode{{Name: fmt.Sprint("n", i), GPUs: 8}}})
		for range 8 {
			m.Cells = append(m.Cells, query.Cell(r.Uint32()))
		}
	}
	return m
}

// messages returns the messages that update a page of a version.
func (p *pages) messages(version uint64, nodes bool) []byte {
	ms, _ := p.after(p.of, version, nodes)
	var out []byte
	for _, m := range ms {
		out = append(out, m...)
	}
	return out
}

// However the cluster changes and however long a page was away, the page gets the current state
// from the messages. A caller who may not read nodes gets none. The agent keeps only the last
// changes.
func TestStreamRebuildsTheState(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var p pages
	m, jobs := randomMap(r, 4), uint64(1)
	readers, tenant := make([]shown, 3), uint64(0)
	for step := range 400 {
		switch n := r.IntN(100); {
		case n < 1: // other nodes
			m = randomMap(r, 1+r.IntN(5))
		case n < 10:
			jobs++
		case n < 20: // no change
		default:
			m = &query.Map{Racks: m.Racks, Cells: slices.Clone(m.Cells)}
			for range 1 + r.IntN(3) {
				m.Cells[r.IntN(len(m.Cells))] = query.Cell(r.Uint32())
			}
		}
		p.advance(m, jobs)
		for i := range readers {
			if r.IntN(1+20*i) != 0 {
				continue // the page is disconnected
			}
			s := &readers[i]
			s.take(t, p.messages(s.Version, true))
			if d := cmp.Diff(shown{p.version, p.jobs, m.Racks, m.Cells}, *s); d != "" {
				t.Fatalf("step %d, reader %d (-is +shown):\n%s", step, i, d)
			}
			if text := p.messages(s.Version, true); len(text) > 0 {
				t.Fatalf("an up-to-date page gets %s", text)
			}
		}
		text := p.messages(tenant, false)
		if bytes.Contains(text, []byte("racks")) || bytes.Contains(text, []byte("cells")) {
			t.Fatalf("a caller without rights gets %s", text)
		}
		tenant = p.version
		if len(p.deltas) > deltasKept {
			t.Fatalf("%d changes are kept", len(p.deltas))
		}
	}
}

// The page reads its lists again when the hash changes.
func TestHashOf(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 5, 0, time.UTC)
	job := model.JobStatus{Namespace: "default", Job: "a", State: gang.Waiting, StartFrom: at, StartTo: at, Runs: &model.Runs{Waiting: 1}}
	failures := []failure.Failure{{Job: "b", Alloc: "one", At: at}}
	ill := query.GPU{ID: "GPU-0", Unhealthy: "XID 79", Quarantine: &failure.Quarantine{Reason: "dust"}}
	of := func(change func(*model.JobStatus)) uint64 {
		j := job
		change(&j)
		return hashOf([]model.JobStatus{j}, failures, []query.GPU{ill})
	}
	was := of(func(*model.JobStatus) {})
	for what, same := range map[string]uint64{
		"half a minute later": of(func(j *model.JobStatus) { j.StartFrom, j.StartTo = at.Add(30*time.Second), at.Add(30*time.Second) }),
		"other pointers":      of(func(j *model.JobStatus) { j.Runs = &model.Runs{Waiting: 1} }),
	} {
		if same != was {
			t.Errorf("%s: another hash", what)
		}
	}
	quarantined, other := ill, ill
	quarantined.Quarantine, other.Unhealthy = &failure.Quarantine{Reason: "fan"}, "XID 48"
	for what, differs := range map[string]uint64{
		"a minute later":   of(func(j *model.JobStatus) { j.StartTo = at.Add(time.Minute) }),
		"may start sooner": of(func(j *model.JobStatus) { j.StartFrom = at.Add(-time.Minute) }),
		"runs":             of(func(j *model.JobStatus) { j.State = gang.Running }),
		"an element runs":  of(func(j *model.JobStatus) { j.Runs = &model.Runs{Running: 1} }),
		"another user":     of(func(j *model.JobStatus) { j.User = "ada" }),
		"submitted again":  of(func(j *model.JobStatus) { j.Submitted = at }),
		"another failure":  hashOf([]model.JobStatus{job}, append(failures, failure.Failure{Job: "b", Alloc: "two", At: at}), []query.GPU{ill}),
		"healthy":          hashOf([]model.JobStatus{job}, failures, nil),
		"another reason":   hashOf([]model.JobStatus{job}, failures, []query.GPU{other}),
		"why quarantined":  hashOf([]model.JobStatus{job}, failures, []query.GPU{quarantined}),
	} {
		if differs == was {
			t.Errorf("%s: the same hash", what)
		}
	}
}

// A page learns that a GPU is in quarantine for another reason, although its cell stays the same.
func TestStreamTellsOfReasons(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		operator, err := nomad.NewClient(w.Nomad.Config("operator", ""), "default")
		if err != nil {
			w.T.Fatal(err)
		}
		var p pages
		version := uint64(0)
		for _, why := range []string{"dust", "a fan", "a fan"} {
			if err := placer.PutInQuarantine(w.T.Context(), operator, time.Hour, why, "GPU-0-0"); err != nil {
				w.T.Fatal(err)
			}
			w.RunFor(5 * time.Second)
			var ms []message
			if ms, version = p.after(w.Picture(), version, true); len(ms) != 1 {
				w.T.Errorf("%s: %d messages", why, len(ms))
			}
		}
		w.RunFor(time.Minute)
		if ms, _ := p.after(w.Picture(), version, true); len(ms) > 0 {
			w.T.Errorf("nothing has changed, but the page gets %s", ms[0])
		}
	})
}

// A caller that accepts gzip gets each message when it is sent; another caller gets it as it is.
func TestMessagesAreCompressed(t *testing.T) {
	ms := []message{newMessage("a", "one"), newMessage("b", strings.Repeat("two", 1000)), alive}
	want := bytes.Join([][]byte{ms[0], ms[1], ms[2]}, nil)
	next := make(chan bool)
	server := httptest.NewServer(gzipped(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, m := range ms {
			<-next
			if err := send(w, []message{m}); err != nil {
				t.Error(err)
			}
		}
	})))
	defer server.Close()
	for _, zipped := range []bool{true, false} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Set("Accept-Encoding", "identity"); zipped {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		go func() { next <- true }()
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body := io.Reader(resp.Body)
		if encoding := resp.Header.Get("Content-Encoding"); (encoding == "gzip") != zipped {
			t.Fatalf("gzip %v: the encoding is %q", zipped, encoding)
		}
		if zipped {
			if body, err = gzip.NewReader(resp.Body); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(ms[0]))
		if _, err := io.ReadFull(body, got); err != nil || !bytes.Equal(got, ms[0]) {
			t.Errorf("gzip %v: the first message is %q: %v", zipped, got, err)
		}
		next <- true
		next <- true
		rest, err := io.ReadAll(body)
		if got := append(got, rest...); err != nil || !bytes.Equal(got, want) {
			t.Errorf("gzip %v: %d bytes, want %d: %v", zipped, len(got), len(want), err)
		}
		resp.Body.Close()
	}
}

// A page with the right to read nodes gets them; one without it gets the queue only; one without
// any right gets nothing.
func TestStreamEndpoint(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	f.has(gpuJob("research", "mine", 1), "GPU-1")
	r := f.run(openConfig).ready()
	first := func(token string) (string, int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url()+"/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Nomad-Token", token)
		resp, err := http.DefaultClient.Do(req) // decompresses
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text := make([]byte, 0, 4096)
		for !bytes.Contains(text, []byte("\n\n")) {
			n, err := resp.Body.Read(text[len(text):cap(text)])
			if text = text[:len(text)+n]; err != nil {
				break
			}
		}
		return string(text), resp.StatusCode
	}
	text, status := first(agentsToken)
	var s shown
	s.take(t, []byte(text))
	if status != http.StatusOK || len(s.Cells) != 3 || s.Racks[0].Nodes[0].Name != "one" || s.Cells[0]&query.CellAllocated == 0 || s.Cells[1]&query.CellAllocated != 0 {
		t.Errorf("an operator: %d %+v of %s", status, s, text)
	}
	if text, status := first("alice"); status != http.StatusOK || strings.Contains(text, "one") || strings.Contains(text, "cells") {
		t.Errorf("alice: %d %s", status, text)
	}
	if text, status := first("nobody"); status != http.StatusForbidden {
		t.Errorf("nobody: %d %s", status, text)
	}
	if status, _ := r.send(http.MethodGet, "/v1/stream?version=x", agentsToken, ""); status != http.StatusBadRequest {
		t.Errorf("an invalid version: %d", status)
	}
}

// A page that does not read its messages is disconnected.
func TestSlowReaderIsDropped(t *testing.T) {
	ours, theirs := net.Pipe() // unbuffered: a write waits for its reader
	defer theirs.Close()
	w := &piped{ResponseRecorder: httptest.NewRecorder(), conn: ours}
	w.within = 10 * time.Millisecond
	if err := send(w, []message{alive}); err == nil {
		t.Error("the message counts as read")
	} else if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("ended by %v", err)
	}
	if d := time.Until(w.deadline); d <= 0 || d > slowReader {
		t.Errorf("it may take %v", d)
	}
}

// piped is a connection on which deadlines are shortened.
type piped struct {
	*httptest.ResponseRecorder
	conn     net.Conn
	within   time.Duration
	deadline time.Time
}

func (p *piped) SetWriteDeadline(t time.Time) error {
	p.deadline = t
	return p.conn.SetWriteDeadline(time.Now().Add(p.within))
}

func (p *piped) Write(b []byte) (int, error) { return p.conn.Write(b) }
