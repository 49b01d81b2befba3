// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestACL: with access control, the policies in placer/deploy/acl suffice, the agent
// names each missing right, and nobody sees another namespace's jobs.
func TestACL(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{ACL: true})
	if _, err := b.API().Namespaces().Register(&api.Namespace{Name: "research"}, nil); err != nil {
		t.Fatal(err)
	}
	agentToken := b.token("agent", policyFile(t, "nomad-pal.policy.hcl"))
	userToken := b.token("user", policyFile(t, "user.policy.hcl"))
	b.scene("agent and user with the shipped policies", func(t *testing.T, b *bed) { testShippedPolicies(t, b, agentToken, userToken) })
	b.scene("what is missing is named", testMissingRights)
	b.scene("attacked, and without rights", func(t *testing.T, b *bed) {
		agent := b.startPal(t, edgeConfig, b.envAs(agentToken))
		b.untilReady(agent)
		testNomadKeepsNoNulls(t, b, agent)
		testHealthTells(t, b, agent) // last: afterwards the agent is useless
	})
}

func policyFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "placer", "deploy", "acl", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// token creates a policy and a token with it.
func (b *bed) token(name, rules string) string {
	b.t.Helper()
	if _, err := b.API().ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		b.t.Fatalf("policy %q: %v", name, err)
	}
	token, _, err := b.API().ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return token.SecretID
}

// envAs is the environment of somebody with a token; "": without.
func (b *bed) envAs(token string, more ...string) []string {
	env := []string{"NOMAD_ADDR=" + b.Servers()[0].HTTPAddr(), "PATH=" + os.Getenv("PATH"), "HOME=" + b.dir}
	if token != "" {
		env = append(env, "NOMAD_TOKEN="+token)
	}
	return append(env, more...)
}

const edgeConfig = "gang_ready_timeout = \"2s\"\ndefault_class = \"A\"\nhttp {\n  bind_port = 0\n}\n"

func testShippedPolicies(t *testing.T, b *bed, agentToken, userToken string) {
	agent := b.startPal(t, edgeConfig+"queue {\n  locality_wait = false\n}\n", b.envAs(agentToken))
	b.untilReady(agent)

	// The user runs a job in her namespace, the operator one in another.
	path := filepath.Join(t.TempDir(), "job.hcl")
	mine := gang("mine.v2", 1, 2) // a name that is not a valid path of a variable
	mine.extra = `namespace = "research"`
	if err := os.WriteFile(path, []byte(mine.hcl()), 0o644); err != nil {
		t.Fatal(err)
	}
	user := b.envAs(userToken, "NOMAD_NAMESPACE=research")
	if out, code := b.palAs(user, "run", "-detach", path); code != 0 {
		t.Fatalf("run by the user: exit code %d: %s", code, out)
	}
	b.runs(gang("secret", 1, 2), 2)
	b.until("the user's job runs", func() string {
		out, code := b.palAs(user, "explain", "-verbose", "mine.v2")
		if code != 0 || !strings.Contains(out, "running") || !strings.Contains(out, "Chosen GPUs") {
			return fmt.Sprintf("exit code %d: %s", code, out)
		}
		return ""
	})

	testCommandsHide(t, b, user)
	testAPIHides(t, b, agent, userToken)
	testShellRights(t, b, user)
	testHostVolumes(t, b, userToken, agentToken)
	if _, _, err := b.API().Jobs().Deregister("mine.v2", true, &api.WriteOptions{Namespace: "research"}); err != nil {
		t.Fatal(err)
	}
	b.purge("secret")
}

// testShellRights checks that a session with raw_exec needs one more right than the shipped policy
// grants. The error names this right, and a comment in the policy shows how to grant it.
func testShellRights(t *testing.T, b *bed, user []string) {
	session := smallShell("session", "--", "echo", "in session")
	if out, code := b.palAs(user, session...); code != 255 || !strings.Contains(out, `for raw_exec tasks also "alloc-node-exec"`) {
		t.Errorf("with the shipped policy: exit code %d: %s", code, out)
	}
	const off, on = `    # "alloc-node-exec",`, `    "alloc-node-exec",`
	shipped := policyFile(t, "user.policy.hcl")
	if !strings.Contains(shipped, off) {
		t.Fatalf("the policy has no line %q", off)
	}
	token := b.token("shell-user", strings.Replace(shipped, off, on, 1))
	if out, code := b.palAs(b.envAs(token, "NOMAD_NAMESPACE=research"), session...); code != 0 || !strings.Contains(out, "in session") {
		t.Errorf("with the right: exit code %d: %s", code, out)
	}
}

// testHostVolumes: users and the agent, which registers their jobs again, may register jobs that mount
// the host volume of the training jobs.
func testHostVolumes(t *testing.T, b *bed, tokens ...string) {
	job, err := jobspec2.Parse("job.hcl", strings.NewReader(`job "mounts" {
  namespace = "research"
  type      = "batch"
  constraint {
    attribute = "${meta.pal_gate}"
    value     = "open"
  }
  group "g" {
    volume "shared" {
      type   = "host"
      source = "shared"
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
    }
  }
}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		if _, _, err := b.API().Jobs().Register(job, &api.WriteOptions{AuthToken: token}); err != nil {
			t.Errorf("registering a job with a host volume: %v", err)
		}
	}
	if _, _, err := b.API().Jobs().Deregister("mounts", true, &api.WriteOptions{Namespace: "research"}); err != nil {
		t.Error(err)
	}
}

// testCommandsHide: no command shows the user a job of another namespace.
func testCommandsHide(t *testing.T, b *bed, user []string) {
	for _, args := range [][]string{
		{"status"}, {"status", "-json"}, {"queue"}, {"queue", "-json"}, {"events", "-failures"}, {"gpus"}, {"gpus", "-json"}, {"status", "-namespace", "*"},
	} {
		out, code := b.palAs(user, args...)
		if code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
		if strings.Contains(out, "secret") {
			t.Errorf("%v shows the other namespace's job:\n%s", args, out)
		}
	}
	out, code := b.palAs(user, "explain", "-namespace", "default", "secret")
	if code == 0 || !strings.Contains(out, `the capability "read-job"`) {
		t.Errorf("explain of the other namespace's job: exit code %d: %s", code, out)
	}
	// Without a token, nothing is shown.
	if out, code := b.palAs(b.envAs(""), "status"); code == 0 || !strings.Contains(out, "set NOMAD_TOKEN") {
		t.Errorf("status without a token: exit code %d: %s", code, out)
	}
}

// testAPIHides: the agent's own token sees everything, but the agent shows a caller only what Nomad
// would show the caller.
func testAPIHides(t *testing.T, b *bed, agent *palAgent, userToken string) {
	for _, c := range []struct {
		path, token string
		status      int
		has, lacks  string
	}{
		{"/v1/queue", userToken, http.StatusOK, "mine", "secret"},
		{"/v1/queue", b.Token, http.StatusOK, "secret", ""},
		{"/v1/queue", "", http.StatusForbidden, `"list-jobs"`, "mine"},
		{"/v1/queue", "00000000-0000-0000-0000-000000000000", http.StatusForbidden, "", "mine"},
		{"/v1/gpus", userToken, http.StatusOK, "research/mine.v2", "secret"},
		{"/v1/gpus", b.Token, http.StatusOK, "default/secret", ""},
		{"/v1/gpus", "", http.StatusForbidden, "node", "GPU-"},
		{"/v1/job/mine.v2/explain?namespace=research", userToken, http.StatusOK, `"chosen"`, "secret"},
		{"/v1/job/secret/explain", userToken, http.StatusForbidden, `"read-job"`, "GPU-"},
		{"/v1/job/secret/explain", b.Token, http.StatusOK, `"chosen"`, ""},
		{"/v1/job/none/explain?namespace=research", userToken, http.StatusNotFound, "no job", ""},
		{"/v1/metrics?format=prometheus", "", http.StatusOK, "nomad_pal_gpus 8", "secret"},
		{"/v1/health", "", http.StatusOK, `"leader": true`, "secret"},
		{"/v1/admission", "", http.StatusNotFound, "", ""}, // off by default
	} {
		status, body := agent.ask(c.path, c.token)
		if status != c.status || !strings.Contains(body, c.has) || c.lacks != "" && strings.Contains(body, c.lacks) {
			t.Errorf("%s as %q: status %d, want %d with %q without %q:\n%.600s", c.path, c.token, status, c.status, c.has, c.lacks, body)
		}
	}
	var gpus []struct{ Job string }
	_, body := agent.ask("/v1/gpus", userToken)
	if err := json.Unmarshal([]byte(body), &gpus); err != nil || len(gpus) != 8 {
		t.Errorf("%d GPUs: %v", len(gpus), err)
	}
}

// testMissingRights removes the rights one by one: each time, the agent's log
// names the missing one.
func testMissingRights(t *testing.T, b *bed) {
	full := policyFile(t, "nomad-pal.policy.hcl")
	for i, c := range []struct {
		name, without, with string
		want                string
	}{
		// The agent deletes the records of jobs that no longer exist.
		{"variables destroy", `["list", "read", "write", "destroy"]`, `["list", "read", "write"]`, `the capability "destroy" of the variables`},
		{"list-jobs", `"list-jobs",`, ``, `the capability "list-jobs"`},
		{"read-job", `"read-job",`, ``, `the capability "read-job"`},
		{"submit-job", `"submit-job",`, ``, `the capability "submit-job"`},
		{"node", `policy = "read"`, `policy = "deny"`, `node { policy = "read" }`},
		{"variables write", `["list", "read", "write", "destroy"]`, `["list", "read"]`, `the capability "write" of the variables`},
		{"variables read", `["list", "read", "write", "destroy"]`, `["list", "write", "destroy"]`, `the capability "read" of the variables`},
		{"variables list", `["list", "read", "write", "destroy"]`, `["deny"]`, `of the variables "nomad-pal/*"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := strings.ReplaceAll(full, c.without, c.with)
			if rules == full {
				t.Fatalf("the policy has no %q", c.without)
			}
			id := fmt.Sprintf("waits-%d", i) // if the agent can do without the right, it places this job
			b.run(gang(id, 1, 1).hcl())
			defer b.purge(id)
			agent := b.startPal(t, edgeConfig, b.envAs(b.token("partial", rules)))
			sub := *b
			sub.t = t
			sub.until("the agent says what is missing", func() string {
				if text := agent.Log(); !strings.Contains(text, c.want) {
					return "the log ends with: " + text[max(0, len(text)-300):]
				}
				return ""
			})
		})
	}
}

// testNomadKeepsNoNulls: the agent survives the jobs that Nomad accepts with nulls.
func testNomadKeepsNoNulls(t *testing.T, b *bed, agent *palAgent) {
	const gated = `{"ID": "nulls", "Type": "batch", "Datacenters": ["*"],
		"Constraints": [{"LTarget": "${meta.pal_gate}", "RTarget": "open", "Operand": "="}],
		"TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/sleep", "args": ["3600"]},
			"Resources": {"Devices": [{"Name": "nvidia/gpu", "Count": 1}]}}]}]}`
	for _, c := range []struct{ name, job string }{
		{"constraints", strings.Replace(gated, `"Constraints": [`, `"Constraints": [null, `, 1)},
		{"devices", strings.Replace(gated, `"Devices": [`, `"Devices": [null, `, 1)},
		{"device constraints", strings.Replace(gated, `"Count": 1}]`, `"Count": 1, "Constraints": [null]}]`, 1)},
		{"spreads", strings.Replace(gated, `"Type"`, `"Spreads": [null], "Type"`, 1)},
		{"affinities", strings.Replace(gated, `"Type"`, `"Affinities": [null], "Type"`, 1)},
		{"tasks", strings.Replace(gated, `"Tasks": [`, `"Tasks": [null, `, 1)},
		{"groups", strings.Replace(gated, `"TaskGroups": [`, `"TaskGroups": [null, `, 1)},
		{"networks", strings.Replace(gated, `"Count": 1, "Tasks"`, `"Count": 1, "Networks": [null], "Tasks"`, 1)},
		{"services", strings.Replace(gated, `"Count": 1, "Tasks"`, `"Count": 1, "Services": [null], "Tasks"`, 1)},
	} {
		_, err := b.API().Raw().Write("/v1/jobs", rawJSON(`{"Job": `+c.job+`}`), nil, nil)
		job, _, found := b.API().Jobs().Info("nulls", nil)
		t.Logf("null in %s: Nomad says %v; it has the job: %v", c.name, err, found == nil && job != nil)
		if found == nil {
			b.deregister("nulls", true)
		}
	}
	if status, body := agent.ask("/v1/health", ""); status != http.StatusOK {
		t.Errorf("health %d: %s", status, body)
	}
	if status, body := agent.ask("/v1/gpus", b.Token); status != http.StatusOK {
		t.Errorf("GPUs: %d: %.300s", status, body)
	}
}

// rawJSON is encoded unchanged.
type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// testHealthTells: the agent's token loses its rights, and the health check fails.
func testHealthTells(t *testing.T, b *bed, agent *palAgent) {
	if _, err := b.API().ACLPolicies().Upsert(&api.ACLPolicy{Name: "agent", Rules: `namespace "none" { policy = "read" }`}, nil); err != nil {
		t.Fatal(err)
	}
	// Nomad ends a token's stream only when it checks the token again. A restart
	// of the server has the same effect.
	if err := b.Servers()[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Servers()[0].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("health is not", func() string {
		status, body := agent.ask("/v1/health", "")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "restart") {
			return fmt.Sprintf("status %d: %s", status, body)
		}
		return ""
	})
	if _, text := agent.ask("/v1/metrics?format=prometheus", ""); !strings.Contains(text, "nomad_pal_lost_connections_total") {
		t.Error(text)
	}
}
