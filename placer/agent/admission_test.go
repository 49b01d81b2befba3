// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"
)

// TestAdmission runs scripts: `config` contains the admission block as JSON, `review` sends a job
// in HCL, and `review-json` one in JSON.
func TestAdmission(t *testing.T) {
	var a *Admission
	datadriven.RunTest(t, "testdata/admission", func(t *testing.T, d *datadriven.TestData) string {
		var job *api.Job
		switch d.Cmd {
		case "config":
			a = &Admission{}
			if err := json.Unmarshal([]byte(d.Input), a); err != nil {
				t.Fatal(err)
			}
			if err := a.Validate(); err != nil {
				return "error: " + err.Error() + "\n"
			}
			return ""
		case "review":
			parsed, err := jobspec2.Parse(d.Pos, strings.NewReader(d.Input))
			if err != nil {
				t.Fatal(err)
			}
			job = parsed
		case "review-json":
			if err := json.Unmarshal([]byte(d.Input), &job); err != nil {
				t.Fatal(err)
			}
		}
		return show(t, a.Review(job, !d.HasArg("no-rpc")))
	})
}

// show formats a review as text, with one line for each operation, error and warning.
func show(t *testing.T, r Review) string {
	t.Helper()
	var b strings.Builder
	for _, p := range r.Patch {
		value, err := json.Marshal(p.Value)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s %s\n", p.Op, p.Path, value)
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "error: %s\n", e)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if b.Len() == 0 {
		return "left alone\n"
	}
	return b.String()
}

// The endpoint speaks the proxy's protocol: lists are never null.
func TestServeAdmission(t *testing.T) {
	s := &server{agent: &Agent{}, file: blank(), bodies: newBodies()}
	s.file.Admission = &Admission{}
	ask := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/admission", strings.NewReader(body)))
		return w
	}
	for _, c := range []struct {
		name, body, want string
		status           int
	}{
		{"no GPUs", `{"job": {"ID": "web", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t"}]}]}, "context": {"clientIP": "192.0.2.1"}}`,
			`{"patch":[],"warnings":[],"errors":[]}`, http.StatusOK},
		{"no job", `{}`, `{"patch":[],"warnings":[],"errors":["nomad-pal: malformed job: there is no job"]}`, http.StatusOK},
		{"no name", `{"job": {"ID": "web", "TaskGroups": [{}]}}`, `{"patch":[],"warnings":[],"errors":["nomad-pal: malformed job: Job.TaskGroups[0].Name is missing"]}`, http.StatusOK},
		{"no JSON", `job "x" {}`, "", http.StatusBadRequest},
		{"too large", `{"job": {"ID": "` + strings.Repeat("x", bodyBytes) + `"}}`, "", http.StatusRequestEntityTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ask(c.body)
			if w.Code != c.status {
				t.Fatalf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if c.status != http.StatusOK {
				return
			}
			var v any
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			var want any
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if got, wanted := fmt.Sprint(v), fmt.Sprint(want); got != wanted {
				t.Errorf("got %s, want %s", got, wanted)
			}
		})
	}
	s.file.Admission = nil
	if w := ask(`{}`); w.Code != http.StatusNotFound {
		t.Errorf("the endpoint answers %d though it is off", w.Code)
	}
}
