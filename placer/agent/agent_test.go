// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// The agent reads a new configuration on request; an invalid one changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	r := f.run(openConfig).ready()
	r.configure(f, "gang_ready_timeout = \"soon\"\n")
	r.reload <- syscall.SIGHUP
	until(t, "the wrong configuration is refused", func() bool {
		return strings.Contains(r.log.String(), "the new configuration is invalid; keeping the old one")
	})
	r.ready()
	var h palapi.Health
	if _, text := r.send(http.MethodGet, "/v1/health", "", ""); json.Unmarshal([]byte(text), &h) != nil || h.WarningCount != 1 || !strings.Contains(strings.Join(r.agent.health(time.Now()).Warnings, ""), "gang_ready_timeout") {
		t.Errorf("the agent does not report it: %s", text)
	}
	was := r.url()
	r.configure(f, "http {\n  bind_port = 0\n}\nplacement = \"packed\"\n")
	r.reload <- syscall.SIGHUP
	until(t, "the right configuration is in force", func() bool {
		return strings.Contains(r.log.String(), "placing: placement=packed")
	})
	r.ready()
	if r.url() != was {
		t.Errorf("bind_port = 0 moved it from %s to %s", was, r.url())
	}
	if _, text := r.send(http.MethodGet, "/v1/health", "", ""); strings.Contains(text, "warning") {
		t.Errorf("the agent still warns of it: %s", text)
	}
	if status, text := r.send(http.MethodPost, "/v1/admission", "", `{}`); status != http.StatusNotFound {
		t.Errorf("admission is still on: %d: %s", status, text)
	}
}

// An agent may be configured with the port on which it already listens, also on another address.
func TestReloadPinsItsPort(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	r := f.run(openConfig).ready()
	was := r.url()
	port := was[strings.LastIndexByte(was, ':')+1:]
	for i, address := range []string{"127.0.0.1", "0.0.0.0"} {
		r.configure(f, fmt.Sprintf("http {\n  bind_address = %q\n  bind_port = %s\n}\n", address, port))
		r.reload <- syscall.SIGHUP
		until(t, "the port is pinned on "+address, func() bool {
			return strings.Count(r.log.String(), "configuration reloaded") > i
		})
		r.ready()
		if !strings.HasSuffix(r.url(), ":"+port) {
			t.Errorf("it is at %s, was at %s", r.url(), was)
		}
	}
}

// A configuration that is valid but cannot be applied changes nothing either: its token does not
// exist yet, or its port is in use.
func TestReloadOfWhatCannotRun(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r := f.run(openConfig).ready()
	for i, text := range []string{
		"nomad {\n  token_file = \"/none\"\n}\n",
		"nomad {\n  token_file = \"/dev/null\"\n}\n",
		"http {\n  bind_address = \"192.0.2.1\"\n}\n",
		"nomad {\n  rpc_address = \"127.0.0.1:1\"\n  ca_cert = \"/none\"\n}\n",
		"http {\n  bind_address = \"192.0.2.1\"\n  bind_port = 1\n}\n",
		fmt.Sprintf("http {\n  bind_port = %d\n}\n", taken.Addr().(*net.TCPAddr).Port),
	} {
		if err := os.WriteFile(r.conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.reload <- syscall.SIGHUP
		until(t, fmt.Sprintf("%q is refused", text), func() bool {
			return strings.Count(r.log.String(), "the new configuration is invalid; keeping the old one") > i
		})
		r.ready()
	}
	if err := r.stop(); err != nil {
		t.Errorf("the agent ended: %v", err)
	}
}

// An agent with an invalid configuration does not start.
func TestRunErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"gang_ready_timeout = \"soon\"\n":                              "not a positive duration",
		"nomad {\n  token_file = \"/none\"\n}\n":                       "token_file",
		"http {\n  bind_address = \"192.0.2.1\"\n  bind_port = 1\n}\n": "opening the HTTP API",
	} {
		path := t.TempDir() + "/agent.hcl"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &running{t: t, log: &testlog.Buffer{}}
		if err := newAgent(r.log).Run(t.Context(), []string{path}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := newAgent(&testlog.Buffer{}).Run(t.Context(), []string{"/none"}, nil); err == nil {
		t.Error("the agent starts without its file")
	}
}

// The agents in these tests use locks shorter than Nomad permits, so that no test waits long.
func init() { leastLockTTL = 100 * time.Millisecond }

// shortLock is a configuration with a short lock. The lock is not shorter, because an agent loses
// its lock if the fake Nomad takes longer than a third of lock_ttl to answer. On a busy machine, the
// fake Nomad can be slow.
const shortLock = "http {\n  bind_port = 0\n}\nhigh_availability {\n  enabled = true\n  lock_ttl = \"3s\"\n}\n"

// One of two agents leads. When it stops or loses the lock, the other one takes over.
func TestElection(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	first := f.run(shortLock).ready()
	until(t, "it leads", first.agent.leads.Load)
	f.set(func() {
		if lock := f.vars["nomad-pal/lock"]; !strings.Contains(lock, name()) {
			t.Errorf("the lock does not say who holds it: %s", lock)
		}
	})
	f.forget()
	second := f.run(shortLock)
	until(t, "the second one tries", func() bool { return second.url() != "" && len(f.askedFor("PUT /v1/var/nomad-pal/lock")) > 3 })
	if second.agent.leads.Load() {
		if first.agent.leads.Load() {
			t.Error("both lead")
		}
		first, second = second, first // on a starved machine the first one could not renew its lock in time
	}
	second.configure(f, shortLock+"gang_ready_timeout = \"soon\"\n")
	second.reload <- syscall.SIGHUP
	until(t, "a standby agent warns of its configuration", func() bool {
		_, text := second.send(http.MethodGet, "/v1/health", agentsToken, "")
		return strings.Contains(text, `"leader": false`) && strings.Contains(text, "configuration is invalid")
	})
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	until(t, "the second one leads", second.agent.leads.Load)
	second.ready()
	until(t, "it knows that it holds the lock, and for how long", func() bool {
		return second.agent.holdsLock(time.Now()) && !second.agent.holdsLock(time.Now().Add(3*time.Second))
	})
	// Another agent gets the lock.
	f.set(func() { f.broken = regexp.MustCompile("PUT /v1/var/nomad-pal/lock") })
	until(t, "it no longer leads", func() bool { return !second.agent.leads.Load() })
	until(t, "its health says that it cannot take over", func() bool {
		status, text := second.send(http.MethodGet, "/v1/health", "", "")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "cannot hold the lock")
	})
	if got := strings.Count(second.log.String(), "cannot hold the lock"); got != 1 {
		t.Errorf("its log says so %d times, want once", got)
	}
	f.set(func() { f.broken = nil })
	until(t, "it leads again", second.agent.leads.Load)
	if _, text := second.send(http.MethodGet, "/v1/health", "", ""); strings.Contains(text, "lock") {
		t.Errorf("it leads, and its health says %s", text)
	}
}

// Nomad does not answer the active agent, which is cut off. The agent cancels its lock requests
// before another agent can get the lock, even if their timeout is later. The test checks the order
// of events instead of times: a request that timed out by itself would be reported as such.
func TestElectionWithoutAnswers(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	r := f.run("log_level = \"debug\"\n" + shortLock).ready()
	until(t, "it leads", r.agent.leads.Load)
	f.set(func() { f.block = regexp.MustCompile("PUT /v1/var/nomad-pal/lock") })
	until(t, "it no longer leads", func() bool { return !r.agent.leads.Load() })
	until(t, "it asks for the lock again", func() bool { return strings.Contains(r.log.String(), "cannot hold the lock") })
	if log := r.log.String(); strings.Contains(log, "no answer from Nomad in time") {
		t.Errorf("it waited for as long as a request may take:\n%s", log)
	}
	if late := f.askedFor("lock-release"); len(late) > 0 {
		t.Errorf("it releases a lock that has perhaps expired: %q", late)
	}
	f.set(func() { f.block = nil })
	close(f.blocked)
	until(t, "it leads again", r.agent.leads.Load)
}

// An agent whose token may not take the lock reports which right is missing.
func TestElectionWithoutRight(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.denied = regexp.MustCompile("PUT /v1/var/nomad-pal/lock")
	r := f.run(shortLock)
	until(t, "its log names the right", func() bool {
		return strings.Contains(r.log.String(), `lacks the capability "write" of the variables`)
	})
}

// If an agent's work restarts again and again, its health and metrics report that; health contains
// no names.
func TestHealthOfLostTouch(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	r := f.run(openConfig).ready()
	f.set(func() { f.broken = regexp.MustCompile("GET /v1/(event|jobs)") })
	f.CloseClientConnections()
	until(t, "health is not", func() bool {
		status, text := r.send(http.MethodGet, "/v1/health", "", "")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "restart") && !strings.Contains(text, "last_error")
	})
	if _, text := r.send(http.MethodGet, "/v1/health", agentsToken, ""); !strings.Contains(text, `"last_error": `) {
		t.Errorf("for operators: %s", text)
	}
	_, text := r.send(http.MethodGet, "/v1/metrics?format=prometheus", "", "")
	if !regexp.MustCompile(`nomad_pal_lost_connections_total [1-9]`).MatchString(text) || !strings.Contains(text, "nomad_pal_panics_total 0\n") {
		t.Error(text)
	}
}

// An agent in a region that does not exist logs which setting to correct, and which regions exist.
func TestWrongRegion(t *testing.T) {
	t.Parallel()
	nomad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/regions" {
			writeJSON(w, http.StatusOK, []string{"east", "global"})
			return
		}
		http.Error(w, "No path to region", http.StatusInternalServerError)
	}))
	t.Cleanup(nomad.Close)
	path := filepath.Join(t.TempDir(), "agent.hcl")
	if err := os.WriteFile(path, fmt.Appendf(nil, "http {\n  bind_port = 0\n}\nnomad {\n  address = %q\n  region = \"mars\"\n}\n", nomad.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &testlog.Buffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newAgent(log).Run(ctx, []string{path}, nil) }()
	until(t, "its log names the regions", func() bool {
		return strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), `Nomad has no region "mars" (nomad { region } of the agent's configuration). The regions are: east, global`)
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An agent that cannot write its heartbeat is not healthy: commands report that no placer is
// active.
func TestHealthWithoutHeartbeat(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.set(func() { f.broken = regexp.MustCompile("PUT /v1/var/nomad-pal/agent") })
	r := f.run(openConfig)
	until(t, "health names the heartbeat", func() bool {
		status, text := r.send(http.MethodGet, "/v1/health", "", "")
		return status == http.StatusServiceUnavailable && strings.Contains(text, `"ready": true`) && strings.Contains(text, "cannot write its heartbeat") && !strings.Contains(text, "last_error")
	})
	if _, text := r.send(http.MethodGet, "/v1/health", agentsToken, ""); !strings.Contains(text, `"last_error": "writing variable`) {
		t.Errorf("for operators: %s", text)
	}
	f.set(func() { f.broken = nil })
	until(t, "it is healthy when it can", func() bool {
		status, _ := r.send(http.MethodGet, "/v1/health", "", "")
		return status == http.StatusOK
	})
}

// The answers of /health for each state of a placer's heartbeat.
func TestHealthOf(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name   string
		report func(v *heartbeat.Vitals)
		ready  bool
		want   string
	}{
		{"new", func(*heartbeat.Vitals) {}, false, ""},
		{"works", func(v *heartbeat.Vitals) { v.CycleBegan(now); v.CycleEnded(now) }, true, ""},
		{"hangs", func(v *heartbeat.Vitals) {
			v.CycleBegan(now.Add(-time.Hour))
			v.CycleEnded(now.Add(-time.Hour))
			v.CycleBegan(now.Add(-2 * time.Minute))
		}, true, "a cycle has not ended for 2m0s"},
		{"fails", func(v *heartbeat.Vitals) {
			for range 3 {
				v.Restarted(now, errors.New("x"))
			}
		}, false, "restart 3 times"},
	} {
		var v heartbeat.Vitals
		c.report(&v)
		h := withPlacer(palapi.Health{Leader: true}, nil, v.Status(), now)
		if h.Ready != c.ready || !strings.Contains(h.Trouble, c.want) || c.want == "" && h.Trouble != "" {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

// Warnings contain names of nodes and jobs: callers who are not operators get only their number.
func TestHealthWarningsNeedARight(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"ops": {"default"}, "alice": {"research", "nodes"}})
	r := f.run(openConfig + "window \"w\" {\n  cron = \"0 2 * * 0\"\n  duration = \"1h\"\n  nodes = [\"none\"]\n}\n").ready()
	f.forget()
	for _, token := range []string{"", "alice"} {
		if _, text := r.send(http.MethodGet, "/v1/health", token, ""); !strings.Contains(text, `"warning_count": 1`) || strings.Contains(text, "covers no GPU") {
			t.Errorf("as %q: %s", token, text)
		}
		if asked := f.askedFor("^" + token + " GET"); len(asked) != 1 {
			t.Errorf("as %q: Nomad was asked %v", token, asked)
		}
	}
	if _, text := r.send(http.MethodGet, "/v1/health", "ops", ""); !strings.Contains(text, `window \"w\" covers no GPU`) {
		t.Errorf("for operators: %s", text)
	}
}

// A single failed heartbeat is only a warning; commands still report the placer as active.
func TestHealthHearsHeartbeat(t *testing.T) {
	t.Parallel()
	denied := errors.New("denied")
	for _, c := range []struct {
		name              string
		is                palapi.Health
		silent            bool
		err               error
		trouble, warnings int
	}{
		{"written", palapi.Health{}, false, nil, 0, 0},
		{"a moment ago", palapi.Health{}, false, denied, 0, 1},
		{"for long", palapi.Health{}, true, denied, 1, 0},
		{"beside other trouble", palapi.Health{Trouble: "x"}, true, denied, 1, 0},
	} {
		h := c.is
		hear(&h, c.silent, c.err)
		if min(1, len(h.Trouble)) != c.trouble || len(h.Warnings) != c.warnings || h.WarningCount != c.warnings {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

// An agent that hung while another agent took over writes nothing more: neither what it decided
// before, nor what it saves when it ends.
func TestHungAgentWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.has(gpuJob("default", "runs", 1), "GPU-1") // the placer must record what it holds
	f.broken = regexp.MustCompile("PUT /v1/var/nomad-pal/decisions")
	r := f.run(shortLock).ready()
	until(t, "it has something to write", func() bool { return len(f.askedFor("PUT /v1/var/nomad-pal/decisions")) > 0 })
	f.set(func() { f.locks["nomad-pal/lock"], f.broken = lock{id: "of another agent"}, nil })
	until(t, "it no longer leads", func() bool { return !r.agent.leads.Load() })
	if log := r.log.String(); !strings.Contains(log, "some decisions are not recorded") || !strings.Contains(log, errLostLock.Error()) {
		t.Error("it writes what it had decided")
	}
}

// An agent without the lock registers no run of a parameterized job either, which goes over RPC.
func TestHungAgentRegistersNoChild(t *testing.T) {
	t.Parallel()
	on, id, parent, namespace := true, "train/dispatch-1", "train", "default"
	client, err := newAgent(&testlog.Buffer{}).connect(File{HA: &HA{Enabled: &on}, Nomad: &Nomad{Address: "http://127.0.0.1:1", RPCAddress: "127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Register(t.Context(), &api.Job{ID: &id, ParentID: &parent, Namespace: &namespace, Dispatched: true}, 7); !errors.Is(err, errLostLock) {
		t.Errorf("%v, want %v", err, errLostLock)
	}
}

// An agent whose placer's loop hangs ends, so that a standby agent gets the lock. If the loop wakes
// after the lock has expired, it writes nothing.
func TestAgentEndsIfItsLoopHangs(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.has(gpuJob("default", "runs", 1), "GPU-1") // the placer must record what it holds
	r := &running{t: t, log: &testlog.Buffer{}, conf: filepath.Join(t.TempDir(), "agent.hcl")}
	r.configure(f, shortLock)
	hung := newAgent(r.log)
	wake := make(chan struct{})
	wakes := sync.OnceFunc(func() { close(wake) })
	t.Cleanup(wakes)
	hung.hungAfter, hung.hooks.Published = 300*time.Millisecond, func(*query.Snapshot, bool) { <-wake }
	ended := make(chan error, 1)
	go func() { ended <- hung.Run(t.Context(), []string{r.conf}, nil) }()
	until(t, "the agent ends", func() bool { return len(ended) > 0 })
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the agent's loop has made no progress for 300ms") || !strings.Contains(r.log.String(), "placer.(*Placer).Run") {
		t.Errorf("%v; its log:\n%s", err, r.log)
	}
	until(t, "its lock expires", func() bool { return !hung.holdsLock(time.Now()) })
	next := f.run(shortLock)
	until(t, "another agent leads", next.agent.leads.Load)
	wakes()
	until(t, "the loop ends", func() bool { return hung.current.Load() == nil })
	if log := r.log.String(); !strings.Contains(log, "some decisions are not recorded") || !strings.Contains(log, errLostLock.Error()) {
		t.Errorf("it writes what it had decided:\n%s", log)
	}
}

// Each process has a name of its own, even if it has the same id on a host of the same name.
func TestNamesOfAgents(t *testing.T) {
	t.Parallel()
	if a, b := newName(), newName(); a == b {
		t.Errorf("two processes are called %q", a)
	}
	if a, b := name(), name(); a != b {
		t.Errorf("this process is called %q and %q", a, b)
	}
}

// The agent warns before its token expires.
func TestExpiringToken(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.expires = time.Now().Add(24 * time.Hour)
	r := f.run(openConfig).ready()
	until(t, "it warns", func() bool {
		return strings.Contains(strings.Join(r.agent.health(time.Now()).Warnings, ""), "the agent's token in Nomad expires on ")
	})
}
