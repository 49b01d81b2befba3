// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
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
		if named, published := palapi.Unprotected(c.address, false, c.tls) == nil, palapi.Unprotected(c.address, true, c.tls) == nil; named != c.named || published != c.published {
			t.Errorf("%s, %+v: %v named, %v published", c.address, c.tls, named, published)
		}
	}
}

const standbyConfig = "http {\n  bind_port = 0\n}\nhigh_availability {\n  enabled = true\n  lock_ttl = \"10s\"\n}\n"

// A standby agent redirects a caller to the active agent, with the request as it is. It answers
// itself what it can answer.
func TestStandbyRedirects(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research", "nodes"}})
	f.has(gpuJob("research", "train", 1), "GPU-1")
	first := f.run(standbyConfig).ready()
	until(t, "it leads", first.agent.leads.Load)
	second := f.run(standbyConfig)
	until(t, "the second one tries", func() bool { return len(f.askedFor("PUT /v1/var/nomad-pal/lock")) > 1 })
	until(t, "the first one's address is published", func() bool {
		_, text := second.send(http.MethodGet, "/v1/agent", "", "")
		return strings.Contains(text, first.url())
	})
	for _, path := range []string{"/v1/queue", "/v1/job/a%2Fb/explain?namespace=research&zone=UTC", "/v1/health?active=true", "/v1/stream", "/ui/"} {
		if status, to := second.redirects(t, http.MethodGet, path); status != http.StatusTemporaryRedirect || to != first.url()+path {
			t.Errorf("GET %s: %d %q", path, status, to)
		}
	}
	if status, to := second.redirects(t, http.MethodPut, "/v1/plan"); status != http.StatusTemporaryRedirect || to != first.url()+"/v1/plan" {
		t.Errorf("PUT: %d %q", status, to)
	}
	if status, text := second.send(http.MethodPost, "/v1/plan", "alice", `{"Job": `+gpuJob("research", "more", 1)+`}`); status != http.StatusOK || !strings.Contains(text, `"state": "starting"`) {
		t.Errorf("a caller that follows: %d %s", status, text)
	}
	for path, want := range map[string]int{"/v1/health": http.StatusOK, "/v1/agent": http.StatusOK, "/ui/app.js": http.StatusOK, "/v1/metrics": http.StatusOK, "/v1/nowhere": http.StatusNotFound} {
		if status, to := second.redirects(t, http.MethodGet, path); status != want {
			t.Errorf("GET %s: %d %q", path, status, to)
		}
	}
}

// redirects sends a request without following a redirect. It returns where the answer redirects to.
func (r *running) redirects(t *testing.T, method, path string) (status int, to string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

// A standby agent that knows no way to the active one says why. Its page is shown, because the page
// shows the reason.
func TestStandbyKnowsNoActive(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.locks["nomad-pal/lock"] = lock{id: "somebody's"} })
	now := time.Now()
	for _, c := range []struct {
		name string
		beat store.Heartbeat
		says string
	}{
		{"none", store.Heartbeat{}, "no agent is active; a standby usually takes over within 27s"},
		{"it ended", store.Heartbeat{Agent: host + "/1", Since: now.Add(-time.Hour), Stopped: true, Address: "http://127.0.0.1:1"}, "no agent is active"},
		{"without an API", store.Heartbeat{Agent: host + "/1", Since: now}, "the active agent, " + host + "/1, publishes no address"},
		{"on another machine only", store.Heartbeat{Agent: "other/1", Since: now, Address: "http://127.0.0.1:1"}, "the active agent, other/1, listens only on its own machine"},
		{"no address of the Web", store.Heartbeat{Agent: "other/1", Since: now, Address: "javascript:alert(1)"}, "publishes javascript:alert(1), which does not lead to it"},
		{"one address for all agents", store.Heartbeat{Agent: host + "/1", Since: now}, "which does not lead to it: set http { advertise } to its own address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.t = t
			f.set(func() { delete(f.vars, "nomad-pal/agent") })
			r := f.run(standbyConfig)
			until(t, "it has an API", func() bool { return r.url() != "" })
			if c.name == "one address for all agents" {
				c.beat.Address = r.url()
			}
			if c.beat.Agent != "" {
				f.beats(c.beat)
			}
			if status, text := r.send(http.MethodGet, "/v1/queue", "alice", ""); status != http.StatusServiceUnavailable || !strings.HasPrefix(text, "this agent is on standby, and ") || !strings.Contains(text, c.says) {
				t.Errorf("%d %s", status, text)
			}
			if status, text := r.send(http.MethodGet, "/ui/", "", ""); status != http.StatusOK || !strings.Contains(text, "<title>") {
				t.Errorf("the page: %d %s", status, text)
			}
		})
	}
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
