// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/store"
)

// A token may be sent over loopback, and over TLS to a host whose name is verified.
func TestUnprotected(t *testing.T) {
	t.Parallel()
	ca := func() *api.TLSConfig { return &api.TLSConfig{CACert: "ca.pem"} }
	unverified := ca()
	unverified.Insecure = true
	for _, c := range []struct {
		address          string
		named, published bool // whether it may be sent if the user named the address, or an agent published it
		tls              *api.TLSConfig
	}{
		{"http://127.0.0.1:8090", true, true, &api.TLSConfig{}},
		{"http://127.1.2.3", true, true, &api.TLSConfig{}},
		{"http://[::1]:8090", true, true, &api.TLSConfig{}},
		{"http://localhost:8090", true, true, &api.TLSConfig{}},
		{"http://localhost.example.com:8090", false, false, ca()},
		{"http://127.0.0.1.example.com", false, false, ca()},
		{"http://127.0.0.1@192.0.2.1", false, false, ca()},
		{"http://192.0.2.1:8090", false, false, ca()},
		{"http://0.0.0.0:8090", false, false, ca()},
		{"HTTP://pal", false, false, ca()},
		{"https://pal.example.com", true, true, ca()},
		{"https://pal.example.com", true, true, &api.TLSConfig{CAPath: "/ca"}},
		{"https://pal.example.com", true, false, &api.TLSConfig{}},
		{"https://pal.example.com", true, false, unverified},
		{"ftp://pal.example.com", false, false, ca()},
		{"http://%zz", false, false, ca()},
	} {
		if named, published := Unprotected(c.address, false, c.tls) == nil, Unprotected(c.address, true, c.tls) == nil; named != c.named || published != c.published {
			t.Errorf("%s, %+v: %v named, %v published", c.address, c.tls, named, published)
		}
	}
}

const standbyConfig = "http {\n  bind_port = 0\n}\nhigh_availability {\n  enabled = true\n  lock_ttl = \"10s\"\n}\n"

// A standby agent answers by asking the active one with the caller's token. If it cannot, it
// reports why.
func TestStandbyForwards(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research", "nodes"}, "ops": {"*"}})
	f.has(gpuJob("research", "train", 1), "GPU-1")
	f.has(gpuJob("default", "other", 1), "GPU-2")
	first := f.run(standbyConfig + "queue {\n  migrate = false\n}\n").ready()
	until(t, "it leads", first.agent.leads.Load)
	second := f.run(standbyConfig)
	until(t, "the second one tries", func() bool { return len(f.askedFor("PUT /v1/var/nomad-pal/lock")) > 1 })
	until(t, "the first one's address is published", func() bool {
		_, text := second.send(http.MethodGet, "/v1/agent", "", "")
		return strings.Contains(text, first.url())
	})
	for path, want := range map[string][2]string{
		"/v1/queue": {"train", `"other"`}, "/v1/gpus": {"research/train", "default/other"}, "/v1/job/train/explain?namespace=research": {`"state": "running"`, "other"},
		"/v1/tenants": {"research", "default"},
	} {
		if status, text := second.send(http.MethodGet, path, "alice", "", "Origin: "+second.url(), "Referer: "+second.url()+"/ui/"); status != http.StatusOK || !strings.Contains(text, want[0]) || strings.Contains(text, want[1]) {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if status, text := second.send(http.MethodGet, path, "mallory", ""); status != http.StatusForbidden {
			t.Errorf("%s by a token that Nomad does not know: %d %s", path, status, text)
		}
	}
	if status, text := second.send(http.MethodPost, "/v1/plan", "alice", `{"Job": `+gpuJob("research", "more", 1)+`}`); status != http.StatusOK || !strings.Contains(text, `"state": "starting"`) {
		t.Errorf("plan: %d %s", status, text)
	}
	var own, active Health
	if _, text := second.send(http.MethodGet, "/v1/health", "", ""); json.Unmarshal([]byte(text), &own) != nil || own.Leader {
		t.Errorf("its own health: %s", text)
	}
	if _, text := second.send(http.MethodGet, "/v1/health?active=true", "", ""); json.Unmarshal([]byte(text), &active) != nil || !active.Leader {
		t.Errorf("the active one's health: %s", text)
	}
	for path, status := range map[string]int{"/ui/": http.StatusOK, "/v1/metrics": http.StatusOK, "/v1/nowhere": http.StatusNotFound} {
		if got, text := second.send(http.MethodGet, path, "", ""); got != status {
			t.Errorf("%s: %d %.100s", path, got, text)
		}
	}
	if status, text := second.send(http.MethodGet, "/v1/queue", "alice", "", forwardedBy+": somebody/1"); status != http.StatusServiceUnavailable || !strings.Contains(text, "agent somebody/1 forwarded the request to this agent as if it were active: try again in a moment; if the error persists, correct http { advertise } of the active agent") {
		t.Errorf("passed on again: %d %s", status, text)
	}
}

// A standby agent reports why it cannot ask the active one, and sends no token to a server that
// must not see it.
func TestStandbyCannotForward(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var had []string
	trap := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { had = append(had, r.Header.Get("X-Nomad-Token")) }))
	t.Cleanup(trap.Close)
	elsewhere := strings.Replace(trap.URL, "127.0.0.1", "0.0.0.0", 1) // on Linux, this address leads to the same machine
	lost := httptest.NewServer(http.NotFoundHandler())
	lost.Close()
	unknown := httptest.NewTLSServer(http.NotFoundHandler())
	unknown.Config.ErrorLog = log.New(io.Discard, "", 0) // it is refused
	t.Cleanup(unknown.Close)
	f.set(func() { f.locks["nomad-pal/lock"] = lock{id: "somebody's"} })
	now := time.Now()
	for _, c := range []struct {
		name   string
		beat   store.Heartbeat
		config string
		says   string // "" if it asks the active agent
	}{
		{"none", store.Heartbeat{}, "", "no agent is active; a standby usually takes over within 27s"},
		{"it ended", store.Heartbeat{Agent: host + "/1", Since: now.Add(-time.Hour), Stopped: true, Address: trap.URL}, "", "no agent is active"},
		{"without an API", store.Heartbeat{Agent: host + "/1", Since: now}, "", "the active agent, " + host + "/1, publishes no address"},
		{"on another machine only", store.Heartbeat{Agent: "other/1", Since: now, Address: trap.URL}, "", "the active agent, other/1, listens only on its own machine"},
		{"it does not answer", store.Heartbeat{Agent: host + "/1", Since: now, Address: lost.URL}, "", "the active agent, " + host + "/1, does not answer at " + lost.URL + "; if the active agent has ended, a standby usually takes over within 27s"},
		{"of an authority that it does not know", store.Heartbeat{Agent: host + "/1", Since: now, Address: unknown.URL}, "", "does not answer at " + unknown.URL + ": this agent does not accept the active agent's certificate (x509: certificate signed by unknown authority); this agent trusts the CAs in nomad { ca_cert }"},
		{"plain HTTP elsewhere", store.Heartbeat{Agent: "other/1", Since: now, Address: elsewhere}, "", "your token would cross the network in plain text; send the request to the active agent directly, or set http { token_plain = true } in this agent's configuration"},
		{"TLS elsewhere", store.Heartbeat{Agent: "other/1", Since: now, Address: "https://0.0.0.0:1"}, "", "send the request to the active agent directly, or set nomad { ca_cert } in this agent's configuration"},
		{"with the operator's word", store.Heartbeat{Agent: "other/1", Since: now, Address: elsewhere}, "  token_plain = true\n", ""},
		{"on this machine", store.Heartbeat{Agent: host + "/1", Since: now, Address: trap.URL}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.t = t
			if f.set(func() { delete(f.vars, "nomad-pal/agent") }); c.beat.Agent != "" {
				f.beats(c.beat)
			}
			r := f.run(strings.Replace(standbyConfig, "  bind_port = 0\n", "  bind_port = 0\n"+c.config, 1))
			until(t, "it has an API", func() bool { return r.url() != "" })
			had = nil
			status, answer := r.send(http.MethodGet, "/v1/queue", "alice", "")
			if asked := fmt.Sprint(had); (c.says == "") != (asked == "[alice]") || c.says != "" && asked != "[]" {
				t.Errorf("tokens: %v", asked)
			}
			if c.says != "" && (status != http.StatusServiceUnavailable || !strings.HasPrefix(answer, "this agent is on standby, and ") || !strings.Contains(answer, c.says)) {
				t.Errorf("%d %s", status, answer)
			}
			if plain := regexp.MustCompile("plain HTTP").MatchString(c.name); plain {
				if _, answer := r.send(http.MethodGet, "/v1/queue", "", ""); len(had) != 1 || strings.Contains(answer, "plain text") {
					t.Errorf("without a token: %v %s", had, answer)
				}
			}
		})
	}
}

// A standby agent passes on the headers of the active agent's answer once each, although it sets
// the same headers on its own answers.
func TestStandbyForwardsHeaders(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	active := httptest.NewServer(headers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, "yes") })))
	t.Cleanup(active.Close)
	r := f.standby(activeAt(t, active.URL))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url()+"/v1/queue", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		if len(values) > 1 {
			t.Errorf("%s: %q", name, values)
		}
	}
	if got := resp.Header.Get("X-Frame-Options"); resp.StatusCode != http.StatusOK || got != "DENY" {
		t.Errorf("%d, X-Frame-Options %q", resp.StatusCode, got)
	}
}

// Standby agents in these tests close no connection only because it is unused.
func init() { forwardIdle = time.Hour }

// A standby agent reuses its connection to the active agent. It closes the connection when another
// agent becomes active, or when the standby agent ends.
func TestStandbyReusesConnections(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	active := func(says string) (address string, opened, closed *atomic.Int64) {
		opened, closed = new(atomic.Int64), new(atomic.Int64)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, says) }))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				opened.Add(1)
			case http.StateClosed:
				closed.Add(1)
			}
		}
		s.Start()
		t.Cleanup(s.Close)
		return s.URL, opened, closed
	}
	address, opened, closed := active("first")
	next, openedNext, closedNext := active("next")
	beat := activeAt(t, address)
	r := f.standby(beat)
	for range 3 {
		if status, text := r.send(http.MethodGet, "/v1/queue", "alice", ""); status != http.StatusOK || text != "first" {
			t.Fatalf("%d %s", status, text)
		}
	}
	if n := opened.Load(); n != 1 || closed.Load() != 0 {
		t.Errorf("%d connections for three requests, %d of them closed", n, closed.Load())
	}
	beat.Agent, beat.Address = beat.Agent+"1", next
	f.beats(beat)
	until(t, "the next agent answers", func() bool {
		_, text := r.send(http.MethodGet, "/v1/queue", "alice", "")
		return text == "next"
	})
	until(t, "the connection to the first agent is closed", func() bool { return closed.Load() == 1 })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	until(t, "the connection to the next agent is closed", func() bool { return openedNext.Load() == 1 && closedNext.Load() == 1 })
}

// If the active agent hangs, the standby agent answers as soon as another agent is active.
func TestStandbyWaitsNotForHungAgent(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	asked := make(chan struct{}, 2)
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hung.Close)
	beat := activeAt(t, hung.URL)
	for method, says := range map[string]string{
		http.MethodGet: "does not answer at " + hung.URL + "; another agent is active now: send the request again",
		http.MethodPut: "does not answer at " + hung.URL + ", but may have carried out the request; another agent is active now",
	} {
		r := f.standby(beat)
		go func() {
			<-asked
			next := beat
			next.Agent += "1"
			f.beats(next)
		}()
		path := map[string]string{http.MethodGet: "/v1/queue", http.MethodPut: "/v1/job/j/hold"}[method]
		if status, text := r.send(method, path, "alice", ""); status != http.StatusServiceUnavailable || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", method, status, text)
		}
	}
}

// activeAt returns the heartbeat of an agent on this machine, with its address.
func activeAt(t *testing.T, address string) store.Heartbeat {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return store.Heartbeat{Agent: host + "/1", Since: time.Now(), Address: address}
}

// standby starts an agent that stands by while another agent is active.
func (f *fake) standby(active store.Heartbeat) *running {
	f.set(func() { f.locks["nomad-pal/lock"] = lock{id: "somebody's"} })
	f.beats(active)
	r := f.run(standbyConfig)
	until(f.t, "it has an API", func() bool { return r.url() != "" })
	return r
}

// beats stores a heartbeat.
func (f *fake) beats(beat store.Heartbeat) {
	text, err := json.Marshal(beat)
	if err != nil {
		f.t.Error(err)
	}
	f.set(func() {
		items, _ := json.Marshal(map[string]string{"json": string(text)})
		f.vars["nomad-pal/agent"], f.varsAt["nomad-pal/agent"] = string(items), beat.Since.UnixNano()
	})
}

// If the active agent requires a certificate that the standby agent does not have, the answer says
// which keys to set.
func TestStandbyNeedsCertificate(t *testing.T) {
	t.Parallel()
	at := &url.URL{Scheme: "https", Host: "pal:8090"}
	refused := &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}
	r := httptest.NewRequest(http.MethodPut, "/v1/job/j/hold", http.NoBody)
	const want = "does not answer at https://pal:8090: the active agent does not accept this agent's certificate (tls: certificate required); set nomad { client_cert, client_key } in this agent's configuration"
	if text := (&server{}).unanswered(r, "other/1", at, refused, false); !strings.HasSuffix(text, want) {
		t.Error(text)
	}
}
