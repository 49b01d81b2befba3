// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/base64"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A caller who may register a job may hold it, requeue it and change its priority. Nobody else can
// even find out whether the job exists. Nomad stores these commands, and placers carry them out.
func TestControlRights(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}, "bob": {"sales"}})
	f.has(gpuJob("research", "mine", 4)) // more GPUs than exist: it waits
	f.has(strings.Replace(gpuJob("research", "web", 4), "batch", "service", 1))
	r := f.run(openConfig).ready()
	const hold = "/v1/job/mine/hold?namespace=research"
	for _, c := range []struct {
		token, path, body string
		status            int
		says              string
	}{
		{"bob", hold, `{}`, http.StatusForbidden, "permission denied"},
		{"", hold, `{}`, http.StatusForbidden, "permission denied"},
		{"alice", "/v1/job/none/hold?namespace=research", `{}`, http.StatusNotFound, `no job "none"`},
		{"alice", "/v1/job/mine/sing?namespace=research", `{}`, http.StatusNotFound, ""},
		{"alice", "/v1/job/mine/priority?namespace=research", `{"priority": 99999}`, http.StatusBadRequest, "a priority is a number"},
		{"alice", "/v1/job/mine/priority?namespace=research", `{"priority": 101}`, http.StatusBadRequest, "Nomad refuses this priority: job priority must be between [1, 100]\n"},
		{"alice", hold, `{"why": "` + strings.Repeat("x", 201) + `"}`, http.StatusBadRequest, "at most 200 bytes"},
		{"alice", hold, `{"Reason": "data"}`, http.StatusBadRequest, `unknown field "Reason"`},
		{"alice", "/v1/job/web/release?namespace=research", `{}`, http.StatusBadRequest, "version 0 failed its deployment"},
		{"alice", hold, `{"why": "data", "by": "alice"}`, http.StatusOK, `"why": "data"`},
		{"alice", "/v1/job/mine/priority?namespace=research", `{"priority": 70}`, http.StatusOK, `"priority": 70`},
		{"alice", "/v1/reread", `{}`, http.StatusForbidden, "permission denied"},
	} {
		status, text := r.send(http.MethodPut, c.path, c.token, c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %s", c.token, c.path, status, text)
		}
	}
	f.set(func() { f.broken = regexp.MustCompile("GET /v1/acl/token/self") })
	if status, text := r.send(http.MethodPut, hold, "alice", `{"by": "somebody else"}`); status != http.StatusBadGateway || !strings.Contains(text, "the name of the caller's token") {
		t.Errorf("the name of the token cannot be read: %d %s", status, text)
	}
	f.mu.Lock()
	kept := f.vars["nomad-pal/controls/research"]
	f.mu.Unlock()
	if strings.Contains(kept, "somebody else") || !strings.Contains(kept, "research/mine") || !strings.Contains(kept, "data") {
		t.Errorf("kept: %s", kept)
	}
}

// A task of a job may ask with its workload identity, which Nomad does not list as a token and for
// which it makes no dry runs.
func TestWorkloadIdentityAsks(t *testing.T) {
	t.Parallel()
	identity := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"nomad_namespace": "research", "nomad_job_id": "workflow"}`)) + ".c2ln"
	f := newFake(t, map[string][]string{identity: {"research"}, "a.b.c": {"research"}})
	f.has(gpuJob("research", "mine", 4))
	r := f.run(openConfig + "tenant \"research\" {\n  max_gpus_per_user = 2\n}\n").ready()
	for _, c := range []struct {
		token, method, path, body string
		status                    int
		says                      string
	}{
		{identity, http.MethodPut, "/v1/job/mine/hold?namespace=research", `{}`, http.StatusOK, `"by": "research/workflow"`},
		{"a.b.c", http.MethodPut, "/v1/job/mine/hold?namespace=research", `{}`, http.StatusForbidden, "Nomad does not know the token"},
		{identity, http.MethodPost, "/v1/plan", `{"Job": ` + gpuJob("research", "planned", 1) + `}`, http.StatusOK, `"job": "planned"`},
		{identity, http.MethodPost, "/v1/plan", `{"Job": ` + gpuJob("sales", "planned", 1) + `}`, http.StatusForbidden, `"submit-job"`},
	} {
		if status, text := r.send(c.method, c.path, c.token, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, text)
		}
	}
}

// A caller cancels a job with its runs, and quarantines a GPU, with the caller's own token. Who did it is
// in the log.
func TestActionsUseTheCallersToken(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice-secret": {"research", "nodes"}, "ops-secret": {"*"}})
	f.has(gpuJob("research", "mine", 4))
	f.has(strings.Replace(gpuJob("research", "mine/dispatch-1", 4), `"Type"`, `"ParentID":"mine","Type"`, 1))
	f.has(gpuJob("research", "mine/other", 4))
	r := f.run(openConfig).ready()
	const cancel, quarantine = "/v1/job/mine/cancel?namespace=research", "/v1/gpu/GPU-1/quarantine"
	for _, c := range []struct {
		token, path, body string
		status            int
		says              string
	}{
		{"", cancel, `{}`, http.StatusForbidden, "permission denied"},
		{"alice-secret", "/v1/job/none/cancel?namespace=research", `{}`, http.StatusNotFound, `no job "none"`},
		{"alice-secret", "/v1/job/mine/cancel", `{}`, http.StatusForbidden, "permission denied"},
		{"alice-secret", quarantine, `{"why": "fan"}`, http.StatusForbidden, `"write" of the variables`},
		{"ops-secret", quarantine, `{}`, http.StatusBadRequest, "1 to 200 bytes"},
		{"ops-secret", "/v1/gpu/GPU-9/quarantine", `{"why": "fan"}`, http.StatusNotFound, `no GPU "GPU-9"`},
		{"ops-secret", "/v1/gpu/GPU-9/lift", `{}`, http.StatusNotFound, `no GPU "GPU-9"`},
		{"ops-secret", "/v1/gpu/GPU-1/polish", `{}`, http.StatusNotFound, ""},
		{"ops-secret", "/v1/gpu/GPU-1/lift", `{}`, http.StatusBadRequest, `GPU "GPU-1" is not in quarantine`},
		{"ops-secret", quarantine, `{"why": "fan"}`, http.StatusOK, "{}"},
		{"ops-secret", "/v1/gpu/GPU-1/lift", `{}`, http.StatusOK, "{}"},
		{"alice-secret", cancel, `{}`, http.StatusOK, "[\n  \"research/mine\",\n  \"research/mine/dispatch-1\"\n]"},
	} {
		status, text := r.send(http.MethodPut, c.path, c.token, c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %s", c.token, c.path, status, text)
		}
		if status == http.StatusOK && strings.HasPrefix(c.path, quarantine) {
			if _, gpus := r.send(http.MethodGet, "/v1/gpus?gpu=GPU-1", c.token, ""); !strings.Contains(gpus, `"reason": "fan"`) {
				t.Errorf("the next answer shows no quarantine: %s", gpus)
			}
		}
	}
	f.mu.Lock()
	kept := slices.Sorted(maps.Keys(f.jobs))
	f.mu.Unlock()
	if log := r.log.String(); len(kept) != 1 || !strings.Contains(log, `gpu=GPU-1 what=quarantine why=fan by=ops`) || !strings.Contains(log, "cancelled jobs") {
		t.Errorf("kept %v: %s", kept, log)
	}
}
