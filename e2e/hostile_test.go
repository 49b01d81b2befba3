// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// TestHostile sends an agent, on a Nomad with access control, what an attacker might send, and
// checks that it does no harm. Each part leaves the agent unchanged; a new attack gets a new
// part.
func TestHostile(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{ACL: true})
	if _, err := b.API().Namespaces().Register(&api.Namespace{Name: "research"}, nil); err != nil {
		t.Fatal(err)
	}
	h := &hostileBed{bed: b, user: b.token("user", policyFile(t, "user.policy.hcl"))}
	h.agentRules = policyFile(t, "nomad-pal.policy.hcl")
	h.agent = b.startPal(t, hostileConfig, b.envAs(b.token("agent", h.agentRules)))
	b.untilReady(h.agent)
	for _, c := range []struct {
		name string
		test func(*testing.T, *hostileBed)
	}{
		{"null in a job", testNullInJob},
		{"Nomad keeps no nulls", testNomadKeepsNoNulls},
		{"a plan needs a right", testPlanWithoutRight},
		{"names of other namespaces", testNamesOfOthers},
		{"names that a terminal obeys", testNamesOnTerminals},
		{"browsers and slow callers", testBrowsers},
		{"health tells of what is lost", testHealthTells}, // last: afterwards the agent is useless
	} {
		t.Run(c.name, func(t *testing.T) {
			sub, bedOf := *h, *b
			bedOf.t, sub.bed = t, &bedOf
			c.test(t, &sub)
		})
	}
}

type hostileBed struct {
	*bed
	agent            *palAgent
	agentRules, user string
}

const hostileConfig = `
gang_ready_timeout = "2s"
default_class = "A"
queue {
  order        = "fifo"
  locality_wait = false
  backfill     = "none"
  quantum      = "1s"
  restart_cost = "1s"
}
http {
  bind_port = 0
}
admission {
}
`

// gated is the JSON of a gated job whose members have a GPU each.
func gated(namespace, id string, members, priority int, more string) string {
	return fmt.Sprintf(`{"ID": %q, "Name": %q, "Namespace": %q, "Type": "batch", "Priority": %d, "Datacenters": ["*"], %s
		"Constraints": [{"LTarget": "${meta.pal_gate}", "RTarget": "open", "Operand": "="}],
		"TaskGroups": [{"Name": "g", "Count": %d, "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/sleep", "args": ["3600"]},
			"Resources": {"CPU": 10, "MemoryMB": 10, "Devices": [{"Name": "nvidia/gpu", "Count": 1}]}}]}]}`, id, id, namespace, priority, more, members)
}

// alive fails the test if the agent no longer answers.
func (h *hostileBed) alive(after string) {
	h.t.Helper()
	if status, body := h.agent.ask("/v1/health", ""); status != http.StatusOK {
		h.t.Errorf("after %s: health %d: %s", after, status, body)
	}
	if status, body := h.agent.ask("/v1/gpus", h.Token); status != http.StatusOK {
		h.t.Errorf("after %s: GPUs: %d: %.300s", after, status, body)
	}
}

// testNullInJob: a null in a job is an error, and the agent survives it.
func testNullInJob(t *testing.T, h *hostileBed) {
	for _, job := range []string{
		`{"ID": "x", "Constraints": [null]}`, `{"ID": "x", "Spreads": [{"SpreadTarget": [null]}]}`, `{"ID": "x", "TaskGroups": [null]}`,
		`{"ID": "x", "TaskGroups": [{"Name": "g", "Networks": [null]}]}`, `{"ID": "x", "TaskGroups": [{"Name": "g", "Tasks": [null]}]}`,
		`{"ID": "x", "TaskGroups": [{"Name": "g", "Tasks": [{"Resources": {"Devices": [null]}}]}]}`,
		`{"ID": "x", "TaskGroups": [{"Name": "g", "Services": [null], "Tasks": [{"Templates": [null]}]}]}`,
	} {
		for _, c := range []struct {
			method, path, key string
			status            int
		}{
			{http.MethodPost, "/v1/plan", "Job", http.StatusBadRequest},
			{http.MethodPut, "/v1/admission", "job", http.StatusOK},
		} {
			status, text := h.agent.send(c.method, c.path, "", fmt.Sprintf(`{%q: %s}`, c.key, job))
			if status != c.status || !strings.Contains(text, "is null") {
				t.Errorf("%s of %s: status %d: %s", c.path, job, status, text)
			}
		}
	}
	h.alive("nulls")
}

// testNomadKeepsNoNulls: the agent survives the jobs that Nomad accepts with
// nulls.
func testNomadKeepsNoNulls(t *testing.T, h *hostileBed) {
	for _, c := range []struct{ name, job string }{
		{"constraints", strings.Replace(gated("default", "nulls", 1, 50, ""), `"Constraints": [`, `"Constraints": [null, `, 1)},
		{"devices", strings.Replace(gated("default", "nulls", 1, 50, ""), `"Devices": [`, `"Devices": [null, `, 1)},
		{"device constraints", strings.Replace(gated("default", "nulls", 1, 50, ""), `"Count": 1}]`, `"Count": 1, "Constraints": [null]}]`, 1)},
		{"spreads", gated("default", "nulls", 1, 50, `"Spreads": [null],`)},
		{"affinities", gated("default", "nulls", 1, 50, `"Affinities": [null],`)},
		{"tasks", strings.Replace(gated("default", "nulls", 1, 50, ""), `"Tasks": [`, `"Tasks": [null, `, 1)},
		{"groups", strings.Replace(gated("default", "nulls", 1, 50, ""), `"TaskGroups": [`, `"TaskGroups": [null, `, 1)},
		{"networks", strings.Replace(gated("default", "nulls", 1, 50, ""), `"Count": 1, "Tasks"`, `"Count": 1, "Networks": [null], "Tasks"`, 1)},
		{"services", strings.Replace(gated("default", "nulls", 1, 50, ""), `"Count": 1, "Tasks"`, `"Count": 1, "Services": [null], "Tasks"`, 1)},
	} {
		_, err := h.API().Raw().Write("/v1/jobs", rawJSON(`{"Job": `+c.job+`}`), nil, nil)
		job, _, found := h.API().Jobs().Info("nulls", nil)
		t.Logf("null in %s: Nomad says %v; it has the job: %v", c.name, err, found == nil && job != nil)
		if found == nil {
			h.deregister("nulls", true)
		}
	}
	h.alive("nulls in Nomad")
}

// rawJSON is encoded unchanged.
type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// testPlanWithoutRight: who may only parse jobs gets no plan.
func testPlanWithoutRight(t *testing.T, h *hostileBed) {
	body := `{"Job": ` + gated("default", "planned", 1, 50, "") + `}`
	for rights, want := range map[string]int{`["list-jobs", "read-job", "plan-job"]`: http.StatusOK, `["parse-job"]`: http.StatusForbidden} {
		token := h.token("planner", `namespace "default" { capabilities = `+rights+` }`)
		if status, text := h.agent.send(http.MethodPost, "/v1/plan", token, body); status != want {
			t.Errorf("plan by a caller with %s: status %d: %s", rights, status, text)
		}
	}
}

// testNamesOfOthers: a job in research waits behind one in default, whose name
// its user must not see.
func testNamesOfOthers(t *testing.T, h *hostileBed) {
	h.run(gang("secret-runs", 6, 1).hcl())
	h.untilGPUs("secret-runs", 6)
	send := func(namespace, id string, members, priority int) {
		if _, err := h.API().Raw().Write("/v1/jobs", rawJSON(`{"Job": `+gated(namespace, id, members, priority, "")+`}`), nil, nil); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	send("default", "secret-waits", 8, 90)
	send("research", "mine", 2, 10)
	for _, path := range []string{"/v1/queue", "/v1/gpus", "/v1/job/mine/explain?namespace=research"} {
		h.until(path+" names it to operators", func() string {
			if status, all := h.agent.ask(path, h.Token); status != http.StatusOK || !strings.Contains(all, "secret-") {
				return all
			}
			return ""
		})
		if status, hers := h.agent.ask(path, h.user); status != http.StatusOK || strings.Contains(hers, "secret") {
			t.Errorf("%s: status %d: %s", path, status, hers)
		}
	}
	status, text := h.agent.send(http.MethodPost, "/v1/plan", h.user, `{"Job": `+gated("research", "planned", 1, 5, "")+`}`)
	if status != http.StatusOK || strings.Contains(text, "secret") {
		t.Errorf("plan: status %d: %s", status, text)
	}
	if _, _, err := h.API().Jobs().Deregister("mine", true, &api.WriteOptions{Namespace: "research"}); err != nil {
		t.Error(err)
	}
	h.purge("secret-waits", "secret-runs")
}

// testNamesOnTerminals: Nomad accepts escape sequences in job ids.
func testNamesOnTerminals(t *testing.T, h *hostileBed) {
	const evil = "\x1b[2J\u202eevil\nforged"
	body := strings.ReplaceAll(gated("default", "EVIL", 99, 50, ""), "EVIL", `\u001b[2J\u202eevil\nforged`)
	if _, err := h.API().Raw().Write("/v1/jobs", rawJSON(`{"Job": `+body+`}`), nil, nil); err != nil {
		t.Fatalf("Nomad no longer accepts it: %v", err)
	}
	for _, args := range [][]string{{"status"}, {"queue"}, {"queue", "-json"}, {"explain", evil}, {"release", evil}} {
		out, _ := h.palAs(h.envAs(h.Token), args...)
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }); i >= 0 {
			t.Errorf("%q: %q", args, out[i:])
		}
		if strings.Contains(out, "\nforged") {
			t.Errorf("%q: a row is forged:\n%s", args, out)
		}
	}
	log := h.agent.Log()
	if i := strings.IndexFunc(log, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }); i >= 0 {
		t.Errorf("the log: %q", log[i:min(len(log), i+200)])
	}
	stubs, _, err := h.API().Jobs().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stubs {
		if s.ID == evil {
			if _, _, err := h.API().Jobs().Deregister(s.ID, true, nil); err != nil {
				t.Error(err)
			}
		}
	}
}

// testBrowsers: what a malicious web page could make a browser do, and clients
// that hold connections.
func testBrowsers(t *testing.T, h *hostileBed) {
	for _, c := range []struct {
		name, method, path, header, value string
		status                            int
	}{
		{"DNS rebinding", http.MethodGet, "/v1/health", "Host", "evil.example:8090", http.StatusMisdirectedRequest},
		{"a form", http.MethodPost, "/v1/admission", "Content-Type", "text/plain", http.StatusUnsupportedMediaType},
		{"another site", http.MethodPost, "/v1/admission", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+h.agent.Address()+c.path, strings.NewReader(`{"job": `+gated("default", "x", 1, 50, "")+`}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if req.Header.Set(c.header, c.value); c.header == "Host" {
			req.Host = c.value
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: status %d", c.name, resp.StatusCode)
		}
	}
	conn, err := net.Dial("tcp", h.agent.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/admission HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	closed := make(chan struct{})
	go func() { defer close(closed); _, _ = io.Copy(io.Discard, conn) }()
	select {
	case <-closed:
	case <-patience.Over(t):
		t.Error("a body that never ends holds a connection")
	}
}

// testHealthTells: the agent's token loses its rights, and the health check
// fails.
func testHealthTells(t *testing.T, h *hostileBed) {
	if _, err := h.API().ACLPolicies().Upsert(&api.ACLPolicy{Name: "agent", Rules: `namespace "none" { policy = "read" }`}, nil); err != nil {
		t.Fatal(err)
	}
	// Nomad ends a token's stream only when it checks the token again. A restart
	// of the server has the same effect.
	if err := h.Servers()[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Servers()[0].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.until("health is not", func() string {
		status, body := h.agent.ask("/v1/health", "")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "restart") {
			return fmt.Sprintf("status %d: %s", status, body)
		}
		return ""
	})
	if _, text := h.agent.ask("/v1/metrics?format=prometheus", ""); !strings.Contains(text, "nomad_pal_lost_connections_total") {
		t.Error(text)
	}
}
