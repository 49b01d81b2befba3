// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

const openConfig = "http {\n  bind_port = 0\n}\nadmission {\n}\n"

// nulls contains jobs with null in a list, by the path of the null.
var nulls = map[string]string{
	"Job.Constraints[0]":                                             `{"ID":"x","Constraints":[null]}`,
	"Job.Affinities[0]":                                              `{"ID":"x","Affinities":[null]}`,
	"Job.Spreads[0]":                                                 `{"ID":"x","Spreads":[null]}`,
	"Job.Spreads[0].SpreadTarget[0]":                                 `{"ID":"x","Spreads":[{"SpreadTarget":[null]}]}`,
	"Job.TaskGroups[0]":                                              `{"ID":"x","TaskGroups":[null]}`,
	"Job.TaskGroups[0].Networks[0]":                                  `{"ID":"x","TaskGroups":[{"Name":"g","Networks":[null]}]}`,
	"Job.TaskGroups[0].Services[0]":                                  `{"ID":"x","TaskGroups":[{"Name":"g","Services":[null]}]}`,
	"Job.TaskGroups[0].Tasks[0]":                                     `{"ID":"x","TaskGroups":[{"Name":"g","Tasks":[null]}]}`,
	"Job.TaskGroups[0].Tasks[0].Templates[0]":                        `{"ID":"x","TaskGroups":[{"Name":"g","Tasks":[{"Templates":[null]}]}]}`,
	"Job.TaskGroups[0].Tasks[0].Resources.Devices[0]":                `{"ID":"x","TaskGroups":[{"Name":"g","Tasks":[{"Resources":{"Devices":[null]}}]}]}`,
	"Job.TaskGroups[0].Tasks[0].Resources.Devices[0].Constraints[0]": `{"ID":"x","TaskGroups":[{"Name":"g","Tasks":[{"Resources":{"Devices":[{"Name":"nvidia/gpu","Constraints":[null]}]}}]}]}`,
}

// Each endpoint rejects a job with a null in a list, without a token and before it asks Nomad
// anything. The error contains the path of the null.
func TestNullInJob(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	r := f.run(openConfig).ready()
	f.forget()
	for where, job := range nulls {
		for _, c := range []struct {
			method, path, body string
			status             int
		}{
			{http.MethodPost, "/v1/plan", `{"Job": %s}`, http.StatusBadRequest},
			{http.MethodPost, "/v1/admission", `{"job": %s}`, http.StatusOK},
		} {
			status, text := r.send(c.method, c.path, "", fmt.Sprintf(c.body, job))
			if want := "malformed job: " + where + " is null"; status != c.status || !strings.Contains(text, want) {
				t.Errorf("%s, %s: status %d, want %d with %q:\n%s", c.path, where, status, c.status, want, text)
			}
		}
	}
	if asked := f.askedFor("jobs|job/|plan"); len(asked) > 0 {
		t.Errorf("Nomad was asked: %v", asked)
	}
	if n := r.agent.panics.Load(); n > 0 {
		t.Errorf("%d panics", n)
	}
	r.ready()
}

// A request of a caller without the right costs Nomad one request, with the caller's token. The
// agent does not use its own token for it, and the job does not reach the queue.
func TestTokenIsJudgedFirst(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	r := f.run(openConfig).ready()
	body := `{"Job": ` + gpuJob("default", "evil", 2) + `}`
	for _, token := range []string{"", "nonsense", "alice"} {
		for _, c := range []struct{ method, path string }{
			{http.MethodGet, "/v1/queue"},
			{http.MethodGet, "/v1/gpus"},
			{http.MethodGet, "/v1/job/train/explain"},
			{http.MethodPost, "/v1/plan"},
		} {
			if token == "alice" && c.path == "/v1/queue" {
				continue // hers is not empty
			}
			f.forget()
			sent := ""
			if c.method != http.MethodGet {
				sent = body
			}
			status, text := r.send(c.method, c.path, token, sent)
			if status != http.StatusForbidden {
				t.Errorf("%s as %q: status %d: %s", c.path, token, status, text)
			}
			if asked := f.askedFor("^" + token + " "); len(asked) != 1 {
				t.Errorf("%s as %q: Nomad was asked %v with that token", c.path, token, asked)
			}
			heartbeat := func(asked string) bool { return strings.HasSuffix(asked, " PUT /v1/var/nomad-pal/agent") }
			if asked := slices.DeleteFunc(f.askedFor("^"+agentsToken), heartbeat); len(asked) > 0 {
				t.Errorf("%s as %q: the agent asked Nomad %v", c.path, token, asked)
			}
		}
	}
	if s := r.agent.current.Load().Status(); len(s.Jobs) > 0 {
		t.Errorf("the placer was told of %v", s.Jobs)
	}
}

// A job without a namespace is in that of the query, as in Nomad's API. Jobs whose ids no path can
// name are refused.
func TestJobsOfTheQuerysNamespace(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	r := f.run(openConfig).ready()
	job := func(id string) string {
		return `{"Job": ` + strings.Replace(strings.Replace(gpuJob("research", "one", 1), `"Namespace":"research",`, "", 1), `"one"`, id, 2) + `}`
	}
	if strings.Contains(job(`"one"`), "research") {
		t.Fatal(job(`"one"`))
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "/v1/plan?namespace=research", job(`"one"`), http.StatusOK},
		{http.MethodPost, "/v1/plan", job(`"one"`), http.StatusForbidden},
		{http.MethodPost, "/v1/plan?namespace=research", job(`".."`), http.StatusBadRequest},
	} {
		if status, text := r.send(c.method, c.path, "alice", c.body); status != c.status {
			t.Errorf("%s %s of %s: status %d, want %d: %s", c.method, c.path, c.body, status, c.status, text)
		}
	}
}

// A request that panics is answered with 500, logged with its stack and counted; later requests are
// not affected.
func TestPanicInRequest(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := &server{agent: New(hclog.New(&hclog.LoggerOptions{Output: &log}), placer.Hooks{}), snapshots: &snapshots{atWork: unknown}}
	panics := true
	h := s.recovered(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if panics {
			panic("index out of range")
		}
	}))
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/job/odd/explain", nil))
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `GET "/v1/job/odd/explain": the agent failed to answer this request`) {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	}
	panics = false
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/gpus", nil)); w.Code != http.StatusOK {
		t.Errorf("after it: status %d: %s", w.Code, w.Body)
	}
	// docs/operators/monitor.md tells operators to look for "a bug".
	if n := s.agent.panics.Load(); n != 3 || !strings.Contains(log.String(), "a bug while") || !strings.Contains(log.String(), "stack=") {
		t.Errorf("%d counted; log: %s", n, log.String())
	}
}

// unknown: no placer has read anything.
func unknown() *placer.Placer { return nil }

// Callers do not see the names of jobs in namespaces that they cannot list, neither in the reason
// why a job waits nor on GPUs.
func TestOtherNamespacesAreNotNamed(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research", "nodes"}})
	f.has(gpuJob("default", "secret-runs", 1), "GPU-1")
	f.has(gpuJob("default", "secret-waits", 2))
	f.has(gpuJob("research", "mine", 1))
	f.vars["nomad-pal/quarantine"] = `{"json": "{\"GPU-2\":{\"until\":\"2999-01-01T00:00:00Z\",\"strikes\":1,\"reason\":\"task secret-task failed\"}}"}`
	r := f.run("queue {\n  order = \"fifo\"\n  backfill = \"none\"\n}\n" + openConfig).ready()
	for _, path := range []string{"/v1/queue", "/v1/gpus", "/v1/job/mine/explain?namespace=research"} {
		status, all := r.send(http.MethodGet, path, agentsToken, "")
		if status != http.StatusOK || !strings.Contains(all, "secret-") {
			t.Errorf("%s as an operator: status %d: %s", path, status, all)
		}
		status, hers := r.send(http.MethodGet, path, "alice", "")
		if status != http.StatusOK || strings.Contains(hers, "secret") {
			t.Errorf("%s as alice: status %d: %s", path, status, hers)
		}
	}
	if status, all := r.send(http.MethodGet, "/v1/tenants", agentsToken, ""); status != http.StatusOK || !strings.Contains(all, `"tenant": "default"`) {
		t.Errorf("/v1/tenants as an operator: status %d: %s", status, all)
	}
	if status, hers := r.send(http.MethodGet, "/v1/tenants", "alice", ""); status != http.StatusOK || !strings.Contains(hers, `"tenant": "research"`) || strings.Contains(hers, "default") {
		t.Errorf("/v1/tenants as alice: status %d: %s", status, hers)
	}
	status, text := r.send(http.MethodPost, "/v1/plan", "alice", `{"Job": `+gpuJob("research", "planned", 1)+`}`)
	if status != http.StatusOK || !strings.Contains(text, `"state": "waiting"`) || strings.Contains(text, "secret") {
		t.Errorf("plan as alice: status %d: %s", status, text)
	}
	if _, text := r.send(http.MethodGet, "/v1/gpus", "alice", ""); !strings.Contains(text, palapi.Unseen) {
		t.Errorf("the GPU is shown as free: %s", text)
	}
}

// An agent that did not run when a job failed serves the stored failure, and only to callers who
// may see the job.
func TestStoredFailures(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research", "nodes"}})
	f.vars["nomad-pal/failures"] = `{"json": "[` +
		`{\"at\":\"2026-11-01T00:00:00Z\",\"namespace\":\"default\",\"job\":\"secret\",\"alloc\":\"a\",\"node\":\"node-1\",\"cause\":\"user\",\"reason\":\"exit code 1\"},` +
		`{\"at\":\"2026-11-02T00:00:00Z\",\"namespace\":\"research\",\"job\":\"mine\",\"alloc\":\"b\",\"node\":\"node-1\",\"cause\":\"user\",\"reason\":\"exit code 2\"}]"}`
	r := f.run(openConfig).ready()
	for token, want := range map[string][]string{agentsToken: {"secret", "mine"}, "alice": {"mine"}} {
		var got []string
		status, text := r.send(http.MethodGet, "/v1/failures", token, "")
		var failures []palapi.Failure
		if err := json.Unmarshal([]byte(text), &failures); err != nil || status != http.StatusOK {
			t.Fatalf("as %s: status %d: %s", token, status, text)
		}
		for _, f := range failures {
			got = append(got, f.Job)
		}
		if !slices.Equal(got, want) {
			t.Errorf("as %s: failures of %v, want %v", token, got, want)
		}
	}
}

// Reading requests cause no requests to Nomad, however many there are, and are answered even while
// Nomad does not answer the agent.
func TestReadersReadNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"ops": {"*"}})
	f.has(gpuJob("default", "waits", 99))
	r := f.run(openConfig).ready()
	f.set(func() { f.block, f.asked = regexp.MustCompile("^"+agentsToken+" GET"), nil })
	defer close(f.blocked)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for _, path := range []string{"/v1/queue", "/v1/gpus"} {
				if status, text := r.send(http.MethodGet, path, "ops", ""); status != http.StatusOK {
					t.Errorf("%s: status %d: %s", path, status, text)
				}
			}
		})
	}
	wg.Wait()
	if read := f.askedFor("^" + agentsToken + " GET /v1/(nodes?|jobs?|allocations?)(/|$)"); len(read) > 0 {
		t.Errorf("the agent read %v", read)
	}
}
