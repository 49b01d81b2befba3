// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// profileMade returns a function that stores a profile of two GPUs, made at
// this time.
func (c *testCluster) profileMade(version int, at time.Time) func() {
	return func() {
		var samples []profile.Sample
		for n := range 2 {
			for k := range 4 {
				for _, app := range pal.AppClasses() {
					samples = append(samples, profile.Sample{GPU: fmt.Sprintf("GPU-%d-%d", n, k), Model: "NVIDIA H200", App: app, Time: 1})
				}
			}
		}
		p, err := profile.Build(samples, profile.DefaultOptions(), nil)
		if err != nil {
			c.t.Fatal(err)
		}
		p.Created, p.Version = at.UTC().Format(time.RFC3339), version
		if err := store.In(c.client("")).Profile().Write(c.t.Context(), p); err != nil {
			c.t.Fatal(err)
		}
	}
}

// verdicts are doctor's verdicts, by check.
func (c *testCluster) verdicts(args ...string) (int, map[string]palapi.Verdict) {
	c.t.Helper()
	code, out, err := c.does(append([]string{"doctor", "-json"}, args...)...)
	var checks []palapi.Check
	if e := json.Unmarshal([]byte(out), &checks); e != nil {
		c.t.Fatalf("%v: %d\n%s%s", e, code, out, err)
	}
	got := map[string]palapi.Verdict{}
	for _, k := range checks {
		got[k.Name] = k.Verdict
		if k.Verdict == palapi.Fail && k.Next == "" || k.Found == "" {
			c.t.Errorf("a check without a finding or a next step: %+v", k)
		}
	}
	return code, got
}

// doctor finds problems, and its exit code reports them.
func TestDoctor(t *testing.T) {
	c := newCluster(t)
	expect := func(what string, wantCode int, want map[string]palapi.Verdict, args ...string) {
		t.Helper()
		code, got := c.verdicts(args...)
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s: %s is %q, want %q", what, name, got[name], v)
			}
		}
		if code != wantCode {
			t.Errorf("%s: exit code %d, want %d: %v", what, code, wantCode, got)
		}
	}
	expect("without an agent", 2, map[string]palapi.Verdict{
		"nomad": palapi.OK, "token": palapi.Warn, "agent": palapi.Fail, "gpus": palapi.OK, "profile": palapi.Warn,
		"measured gpus": palapi.Warn, "device plugin": palapi.Warn, "gate": palapi.OK, "clocks": palapi.Warn,
	})
	c.agent("", "http {\n  bind_port = 0\n}\n")
	c.until("the heartbeat", func() bool { return c.activity("").Working })
	expect("with one", 0, map[string]palapi.Verdict{"agent": palapi.OK, "clocks": palapi.OK, "gate": palapi.OK})

	open := nomadtest.GPUNode(7, 1)
	open.Meta["pal_gate"] = "open"
	open.NodeResources.Devices[0].Instances[0].Healthy = false
	c.nomad.AddNode(open)
	expect("with an open gate", 2, map[string]palapi.Verdict{"gate": palapi.Fail, "gpus": palapi.Warn})

	conf := c.written("agent.hcl", "placement = \"nowhere\"\n")
	expect("with a wrong configuration", 2, map[string]palapi.Verdict{"configuration": palapi.Fail}, "-config="+conf)
	shared := c.written("shared.hcl", "high_availability {\n  enabled = true\n}\nhistory {\n  database = \"history.db\"\n}\n")
	expect("with a history that this machine's agents share", 2, map[string]palapi.Verdict{"configuration": palapi.OK}, "-config="+shared)
	expect("with an agent that is not there", 2, map[string]palapi.Verdict{"agent": palapi.Fail}, "-pal-address=http://127.0.0.1:1")
	expect("without Nomad", 2, map[string]palapi.Verdict{"nomad": palapi.Fail}, "-address=http://127.0.0.1:1")

	c.nomad.SetTokens(map[string]nomadtest.Token{"user": {Namespaces: map[string][]string{"research": {"list-jobs"}}}})
	expect("with a token of a user", 2, map[string]palapi.Verdict{"token": palapi.Fail, "reading nomad": palapi.Fail}, "-token=user")
}

// The plugin cannot measure MIG instances, so doctor does not ask for their measurement.
func TestDoctorOfMIG(t *testing.T) {
	c := newCluster(t)
	mig := nomadtest.GPUNode(7, 3)
	mig.NodeResources.Devices[0].Name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
	c.nomad.AddNode(mig)
	if _, out, said := c.does("doctor"); !strings.Contains(out, "measured gpus: 8 of 8 GPUs are not measured, on node-0, node-1\n") {
		t.Errorf("before the measurement:\n%s%s", out, said)
	}
	c.profileMade(1, time.Now())() // as an agent would make it
	if _, out, said := c.does("doctor"); !strings.Contains(out, "OK    measured gpus: all 8; MIG instances, which cannot be measured: 3\n") {
		t.Errorf("after the measurement:\n%s%s", out, said)
	}
}

// found is the finding of one check, and its advice.
func (c *testCluster) found(name string, args ...string) palapi.Check {
	c.t.Helper()
	_, out, err := c.does(append([]string{"doctor", "-json"}, args...)...)
	var checks []palapi.Check
	if e := json.Unmarshal([]byte(out), &checks); e != nil {
		c.t.Fatalf("%v: %s%s", e, out, err)
	}
	i := slices.IndexFunc(checks, func(k palapi.Check) bool { return k.Name == name })
	if i < 0 {
		c.t.Fatalf("no check %q: %s", name, out)
	}
	return checks[i]
}

// doctor names each right that the agent needs and its token lacks, and a token that Nomad does not
// know. It changes nothing.
func TestDoctorOfToken(t *testing.T) {
	c := newCluster(t)
	c.nomad.AddNamespace("research")
	reads := []string{"list-jobs", "read-job", "read-variables"}
	writes := append([]string{"variables"}, reads...)
	submits := append([]string{"submit-job", "alloc-lifecycle"}, writes...)
	c.nomad.SetTokens(map[string]nomadtest.Token{
		"reads":   {Nodes: true, Namespaces: map[string][]string{"*": reads}},
		"writes":  {Nodes: true, Namespaces: map[string][]string{"*": writes}},
		"some":    {Nodes: true, Namespaces: map[string][]string{"*": writes, "research": submits}},
		"blind":   {Nodes: true, Namespaces: map[string][]string{"*": {"list-jobs", "submit-job", "alloc-lifecycle", "variables", "read-variables"}}},
		"agent's": {Nodes: true, Namespaces: map[string][]string{"*": submits}},
		"root":    {Management: true},
	})
	for token, want := range map[string]struct {
		verdict palapi.Verdict
		found   string
	}{
		"reads":   {palapi.Fail, `the token lacks writing the variables "nomad-pal/*", "submit-job" in namespace "default"`},
		"writes":  {palapi.Fail, `the token lacks "submit-job" in namespace "default"`},
		"some":    {palapi.Fail, `the token lacks "submit-job" in namespace "default"`},
		"blind":   {palapi.Fail, `the token lacks "read-job" in namespace "default", "read-job" in namespace "research"`},
		"agent's": {palapi.OK, "may submit jobs"},
		"deleted": {palapi.Fail, "Nomad does not know the token"},
	} {
		if k := c.found("token", "-token="+token); k.Verdict != want.verdict || !strings.Contains(k.Found, want.found) {
			t.Errorf("%s: %+v", token, k)
		}
	}
	if v := c.nomad.Variable("default", "nomad-pal/agent"); v != nil {
		t.Errorf("doctor has written: %v", v)
	}
	if jobs, _, err := c.client("root").API().Jobs().List(nil); err != nil || len(jobs) > 0 {
		t.Errorf("doctor has left jobs: %v, %v", jobs, err)
	}
}

// doctor also reports an agent that answers, but does not work or does not report its state.
func TestDoctorOfAgentInTrouble(t *testing.T) {
	c := newCluster(t)
	for _, health := range []struct {
		code       int
		body, want string
	}{
		{http.StatusServiceUnavailable, `{"trouble": "it cannot hold the lock", "last_error": "denied"}`, "in trouble: it cannot hold the lock: denied"},
		{http.StatusInternalServerError, "broken", "its health is unknown"},
		{http.StatusOK, `{"ready": true, "warnings": ["a"], "warning_count": 1}`, "; 1 warning: a"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/health" {
				w.WriteHeader(health.code)
				_, _ = w.Write([]byte(health.body))
				return
			}
			_, _ = w.Write([]byte(`{"working": true}`))
		}))
		defer s.Close()
		k := c.found("agent", "-pal-address="+s.URL)
		if (k.Verdict == palapi.Fail) != (health.code != http.StatusOK) || !strings.Contains(k.Found, health.want) {
			t.Errorf("%d: %+v", health.code, k)
		}
	}
}

// doctor reports if an operator has paused placement or registration in Nomad.
func TestDoctorOfPausedNomad(t *testing.T) {
	c := newCluster(t)
	config := ""
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/operator/scheduler/configuration" {
			fmt.Fprintf(w, `{"SchedulerConfig":{%s}}`, config)
			return
		}
		c.nomad.ServeHTTP(w, r)
	}))
	defer between.Close()
	for setting, want := range map[string]palapi.Verdict{"": "", `"PauseEvalBroker":true`: palapi.Fail, `"RejectJobRegistration":true`: palapi.Fail} {
		config = setting
		if _, got := c.verdicts("-address=" + between.URL); got["scheduler"] != want {
			t.Errorf("%s: %q of %v", setting, got["scheduler"], got)
		}
	}
}

// A warning that both the agent and the cluster have is printed once.
func TestDoctorTellsOnce(t *testing.T) {
	c := newCluster(t)
	url := c.agent("", "http {\n  bind_port = 0\n}\nwindow \"w\" {\n  cron = \"0 2 * * 0\"\n  duration = \"1h\"\n  nodes = [\"none\"]\n}\n")
	const warning = `window \"w\" covers no GPU`
	c.until("doctor warns", func() bool {
		_, out, _ := c.does("doctor", "-json", "-pal-address="+url)
		if n := strings.Count(out, warning); n > 1 {
			t.Fatalf("shown %d times: %s", n, out)
		}
		_, health, _ := c.does("status", "-json", "-pal-address="+url)
		return strings.Contains(out, warning) && strings.Contains(health, warning)
	})
}

// A window that has no further occurrence has no effect: -check-config and doctor say so.
func TestWindowsOfThePast(t *testing.T) {
	c := newCluster(t)
	path := c.written("windows.hcl", "window \"kernel\" {\n  start = \"2025-11-25T02:00:00Z\"\n  duration = \"1h\"\n}\nwindow \"weekly\" {\n  cron = \"0 2 * * 0\"\n  duration = \"1h\"\n}\n")
	code, _, out := c.does("agent", "-check-config", "-config="+path)
	k := c.found("configuration", "-config="+path)
	const want = `window "kernel" never opens again`
	if code != 0 || k.Verdict != palapi.Warn || strings.Contains(out+k.Found, "weekly") || !strings.Contains(out, want) || !strings.Contains(k.Found, want) {
		t.Errorf("exit code %d: %s%+v", code, out, k)
	}
}

// plan and run name a job that takes GPUs past Nomad.
func TestPastNomadIsNamed(t *testing.T) {
	c := newCluster(t)
	c.agent("", "")
	path := c.written("llm.hcl", `job "llm" {
  group "g" {
    task "llm" {
      driver = "docker"
      config {
        image   = "llm"
        command = "sleep infinity"
      }
      env {
        NVIDIA_VISIBLE_DEVICES = "all"
      }
    }
  }
}
`)
	const names = `task "llm" has NVIDIA_VISIBLE_DEVICES = "all" without a device block`
	for _, command := range [][]string{{"plan", path}, {"run", "-detach", path}} {
		if _, out, said := c.does(command...); !strings.Contains(strings.Join(strings.Fields(out+said), " "), names) {
			t.Errorf("%s: %s%s", command, out, said)
		}
	}
}
