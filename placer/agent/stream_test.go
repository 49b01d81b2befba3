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
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// reader is a page: what it has got, and what it shows.
type reader struct {
	sent  shown
	racks []query.MapRack
	lists string
}

// take shows messages, as the page's script does.
func (p *reader) take(t *testing.T, text []byte) {
	t.Helper()
	for part := range bytes.SplitSeq(bytes.TrimSpace(text), []byte("\n\n")) {
		event, data, _ := bytes.Cut(bytes.TrimPrefix(part, []byte("event: ")), []byte("\ndata: "))
		var rack rackMessage
		var is state
		switch string(event) {
		case "rack":
			if err := json.Unmarshal(data, &rack); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			p.racks = append(p.racks, make([]query.MapRack, max(0, rack.At+1-len(p.racks)))...)
			p.racks[rack.At] = rack.MapRack
		case "state":
			if err := json.Unmarshal(data, &is); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if p.lists = is.Lists; is.Racks != nil {
				p.racks = p.racks[:*is.Racks]
			}
		}
	}
}

func randomRacks(r *rand.Rand, n int) (racks []query.MapRack) {
	for i := range n {
		node := query.MapNode{Name: fmt.Sprint("n", i)}
		for range 8 {
			node.Cells = append(node.Cells, query.Cell(r.Uint32()))
		}
		racks = append(racks, query.MapRack{Name: fmt.Sprint("r", i), Datacenter: "dc1", Nodes: []query.MapNode{node}})
	}
	return racks
}

// However the cluster changes and however seldom a page reads, the page gets the current state from
// the messages: each changed rack once, and nothing without a change. A caller who may not read
// nodes gets no rack.
func TestStreamTellsWhatChanged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	racks, lists := randomRacks(r, 4), uint64(1)
	readers, hidden := make([]reader, 3), shown{}
	var now shown
	for step := range 400 {
		switch n := r.IntN(100); {
		case n < 3: // other nodes
			racks = randomRacks(r, r.IntN(5))
		case n < 10:
			lists++
		case n < 20: // no change
		case len(racks) > 0:
			changed := r.IntN(len(racks))
			racks = slices.Clone(racks)
			racks[changed] = randomRacks(r, changed+1)[changed]
			if more := now.with(racks, lists).since(now, true); step > 0 && len(now.racks) == len(racks) && now.lists == fmt.Sprintf("%x", lists) && len(more) > 2 {
				t.Errorf("step %d: %d messages for one rack", step, len(more))
			}
		}
		now = now.with(racks, lists)
		for i := range readers {
			if r.IntN(1+20*i) != 0 {
				continue
			}
			p := &readers[i]
			p.take(t, bytes.Join(asBytes(now.since(p.sent, true)), nil))
			p.sent = now
			if d := cmp.Diff(racks, p.racks, cmpopts.EquateEmpty()); d != "" || p.lists != fmt.Sprintf("%x", lists) {
				t.Fatalf("step %d, reader %d, lists %s (-is +shown):\n%s", step, i, p.lists, d)
			}
			if ms := now.since(p.sent, true); len(ms) > 0 {
				t.Fatalf("an up-to-date page gets %s", ms)
			}
		}
		for _, m := range now.since(hidden, false) {
			if !bytes.HasPrefix(m, []byte("event: state")) || bytes.Contains(m, []byte("racks")) {
				t.Fatalf("a caller without rights gets %s", m)
			}
		}
		hidden = now
	}
}

func asBytes(ms []message) (out [][]byte) {
	for _, m := range ms {
		out = append(out, m)
	}
	return out
}

// The page reads its lists again when the hash changes.
func TestHashOf(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 5, 0, time.UTC)
	job := palapi.JobStatus{Namespace: "default", Job: "a", State: palapi.Waiting, StartFrom: at, StartTo: at, Runs: &palapi.Runs{Waiting: 1}}
	failures := []palapi.Failure{{Job: "b", Alloc: "one", At: at}}
	ill := palapi.GPU{ID: "GPU-0", Unhealthy: "XID 79", Quarantine: &palapi.Quarantine{Reason: "dust"}}
	of := func(change func(*palapi.JobStatus)) uint64 {
		j := job
		change(&j)
		return hashOf([]palapi.JobStatus{j}, failures, []palapi.GPU{ill})
	}
	was := of(func(*palapi.JobStatus) {})
	for what, same := range map[string]uint64{
		"half a minute later": of(func(j *palapi.JobStatus) { j.StartFrom, j.StartTo = at.Add(30*time.Second), at.Add(30*time.Second) }),
		"other pointers":      of(func(j *palapi.JobStatus) { j.Runs = &palapi.Runs{Waiting: 1} }),
	} {
		if same != was {
			t.Errorf("%s: another hash", what)
		}
	}
	quarantined, other := ill, ill
	quarantined.Quarantine, other.Unhealthy = &palapi.Quarantine{Reason: "fan"}, "XID 48"
	for what, differs := range map[string]uint64{
		"a minute later":   of(func(j *palapi.JobStatus) { j.StartTo = at.Add(time.Minute) }),
		"may start sooner": of(func(j *palapi.JobStatus) { j.StartFrom = at.Add(-time.Minute) }),
		"runs":             of(func(j *palapi.JobStatus) { j.State = palapi.Running }),
		"an element runs":  of(func(j *palapi.JobStatus) { j.Runs = &palapi.Runs{Running: 1} }),
		"another user":     of(func(j *palapi.JobStatus) { j.User = "ada" }),
		"submitted again":  of(func(j *palapi.JobStatus) { j.Submitted = at }),
		"another failure":  hashOf([]palapi.JobStatus{job}, append(failures, palapi.Failure{Job: "b", Alloc: "two", At: at}), []palapi.GPU{ill}),
		"healthy":          hashOf([]palapi.JobStatus{job}, failures, nil),
		"another reason":   hashOf([]palapi.JobStatus{job}, failures, []palapi.GPU{other}),
		"why quarantined":  hashOf([]palapi.JobStatus{job}, failures, []palapi.GPU{quarantined}),
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
		var sent shown
		for _, why := range []string{"dust", "a fan", "a fan"} {
			if err := placer.PutInQuarantine(w.T.Context(), operator, time.Hour, why, "GPU-0-0"); err != nil {
				w.T.Fatal(err)
			}
			w.RunFor(5 * time.Second)
			now := p.of(w.Picture())
			if ms := now.since(sent, true); len(ms) == 0 || len(sent.racks) > 0 && len(ms) != 1 {
				w.T.Errorf("%s: %d messages", why, len(ms))
			}
			sent = now
		}
		w.RunFor(time.Minute)
		if ms := p.of(w.Picture()).since(sent, true); len(ms) > 0 {
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
		for !bytes.Contains(text, []byte("event: state\n")) || !bytes.HasSuffix(text, []byte("\n\n")) {
			n, err := resp.Body.Read(text[len(text):cap(text)])
			if text = text[:len(text)+n]; err != nil {
				break
			}
		}
		return string(text), resp.StatusCode
	}
	text, status := first(agentsToken)
	var p reader
	p.take(t, []byte(text))
	if len(p.racks) != 1 {
		t.Fatalf("an operator: %d %s", status, text)
	}
	if n := p.racks[0].Nodes[0]; n.Name != "one" || len(n.Cells) != 3 || n.Cells[0]&query.CellAllocated == 0 || n.Cells[1]&query.CellAllocated != 0 {
		t.Errorf("an operator: %d %+v", status, n)
	}
	if text, status := first("alice"); status != http.StatusOK || strings.Contains(text, "one") || strings.Contains(text, "cells") {
		t.Errorf("alice: %d %s", status, text)
	}
	if text, status := first("nobody"); status != http.StatusForbidden {
		t.Errorf("nobody: %d %s", status, text)
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
