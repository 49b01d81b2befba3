// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// registered is what run sends to Nomad.
func (c *testCluster) registered(args ...string) (*api.JobRegisterRequest, string) {
	c.t.Helper()
	var sent *api.JobRegisterRequest
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = json.Unmarshal(body, &sent)
			}
			if err != nil {
				c.t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		c.nomad.ServeHTTP(w, r)
	}))
	defer between.Close()
	_, out, said := c.does(append([]string{"run", "-detach", "-address", between.URL}, args...)...)
	return sent, out + said
}

// The index of -check-index reaches Nomad.
func TestRunFlags(t *testing.T) {
	c := newCluster(t)
	path := c.job("default", "flags", 1)
	plain, said := c.registered(path)
	if plain == nil || plain.EnforceIndex {
		t.Fatalf("without flags: %+v\n%s", plain, said)
	}
	given := func(args ...string) *api.JobRegisterRequest {
		r, said := c.registered(append(args, path)...)
		if r == nil {
			t.Fatal(said)
		}
		return r
	}
	if r := given("-check-index", "0"); !r.EnforceIndex || r.JobModifyIndex != 0 {
		t.Errorf("with an index: %+v", r)
	}
	for args, want := range map[string]string{
		"run -detach -check-index 0":    "Enforcing job modify index 0: job already exists",
		"run -detach -check-index 9999": "job exists with conflicting job modify index",
		"run -check-index x":            `parsing check-index value "x"`,
	} {
		c.says(1, want, append(strings.Fields(args), path)...)
	}
	// plan shows the index to use.
	c.agent("", atAnyPort)
	_, out, _ := c.does("plan", path)
	said = regexp.MustCompile(`-check-index [1-9][0-9]*`).FindString(out)
	if said == "" {
		t.Fatalf("plan: %s", out)
	}
	if code, _, said := c.does(append([]string{"run", "-detach"}, append(strings.Fields(said), path)...)...); code != 0 {
		t.Errorf("as plan says: %d %s\n%s", code, said, out)
	}
}

// Jobs are read from files and standard input, in HCL and both kinds of JSON.
func TestJobSources(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	_, written, _ := c.does("run", "-output", c.job("default", "train", 2))
	var sent struct{ Job *api.Job }
	if err := json.Unmarshal([]byte(written), &sent); err != nil || *sent.Job.ID != "train" || sent.Job.Constraints == nil || c.nomad.Job(nomadtest.Key{Namespace: "default", ID: "train"}) != nil {
		t.Fatalf("run -output: %v\n%s", err, written)
	}
	bare, err := json.Marshal(sent.Job)
	if err != nil {
		t.Fatal(err)
	}
	asJSON := `{"job": {"train": {"type": "batch", "group": {"g": {"task": {"t": {"driver": "raw_exec", "config": {"command": "x"},
		"resources": {"device": {"nvidia/gpu": {"count": 2}}}}}}}}}}`
	const found = "2 GPUs, application class"
	for _, text := range []string{jobText("default", "train", 2), written, string(bare), asJSON} {
		if _, out, said := c.reads(text, "explain", "-verbose", "-what-if", "gpus=2", "-"); !strings.Contains(out, found) {
			t.Errorf("%s: %s%s", text, out, said)
		}
	}
	if code, _, said := c.reads(written, "plan", "-var", "a=b", "-"); code != 255 || !strings.Contains(said, "cannot use variables with JSON files") {
		t.Errorf("%d %s", code, said)
	}
	c.says(1, "reading jobspec", "explain", filepath.Join(t.TempDir(), "none.hcl"))
	for _, broken := range []string{`{"Job":{}}`, `{"ID":"x","TaskGroups":[null]}`, `{"Job":{"ID":"x","TaskGroups":[{}]}}`} {
		if code, _, said := c.reads(broken, "plan", "-"); code != 255 || !strings.Contains(said, "parsing jobspec -") {
			t.Errorf("%s: %d %s", broken, code, said)
		}
	}
}

// The error names each variable that is not set, and says how to set variables. The error omits the
// "<nil>" that HCL writes for a missing position.
func TestUnsetVariables(t *testing.T) {
	c := newCluster(t)
	job := "variable \"one\" {\n  type = string\n}\nvariable \"two\" {\n  type = string\n}\n" + strings.Replace(jobText("default", "j", 1), `"raw_exec"`, `"${var.one}${var.two}"`, 1)
	code, _, said := c.reads(job, "plan", "-")
	if code != 255 || strings.Contains(said, "<nil>") || !strings.Contains(said, `"one"`) || !strings.Contains(said, `"two"`) || !strings.Contains(said, "To set variables: -var <name>=<value>, or -var-file <file>\n") {
		t.Errorf("%d %s", code, said)
	}
	if code, out, said := c.reads(job, "run", "-output", "-var", "one=raw", "-var", "two=_exec", "-"); code != 0 || !strings.Contains(out, `"raw_exec"`) {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// reads runs a command with text on standard input.
func (c *testCluster) reads(text string, args ...string) (int, string, string) {
	c.t.Helper()
	var out, err bytes.Buffer
	code := run(c.t.Context(), args, streams{strings.NewReader(text), &out, &err, false})
	return code, out.String(), err.String()
}

// Who submits a script, as with sbatch, learns how to run it on GPUs.
func TestRunOfScript(t *testing.T) {
	c := newCluster(t)
	path := c.written("train it.sh", "#!/bin/sh\necho trained\n")
	for _, command := range []string{"run", "plan"} {
		code, out, said := c.does(command, path)
		if code == 0 || out != "" || !strings.Contains(said, "is a script, not a jobspec. ") || !strings.Contains(said, "nomad-pal shell -- '"+path+"'. For an example of a jobspec: nomad-pal init") {
			t.Errorf("%s: %d %s%s", command, code, out, said)
		}
	}
}

// Variables that a jobspec does not declare are refused. The values of others are stored with the
// job's source.
func TestDeclaredVariables(t *testing.T) {
	c := newCluster(t)
	path := c.job("default", "strict", 1)
	c.says(255, "nope", "plan", "-var", "nope=1", path)
	path = c.written("vars.nomad.hcl", "variable \"yes\" {}\nvariable \"some\" {}\n"+jobText("default", "vars", 1))
	values := c.written("values.hcl", "some = 2")
	t.Setenv("NOMAD_VAR_other", "3")
	r, said := c.registered("-var", "yes=1", "-var-file", values, path)
	if r == nil {
		t.Fatal(said)
	}
	if s := r.Submission; s.VariableFlags["yes"] != "1" || s.VariableFlags["other"] != "3" || !strings.Contains(s.Variables, "some = 2") || s.Format != "hcl2" {
		t.Errorf("%+v", s)
	}
}

// run refuses jobs that cannot start as they are written, and warns about unknown devices.
func TestRunRefuses(t *testing.T) {
	c := newCluster(t)
	text := jobText("default", "valid", 1)
	counted := func(count int) string {
		return strings.Replace(text, `group "g" {`, fmt.Sprintf("group \"g\" {\n    count = %d", count), 1)
	}
	for what, job := range map[string]string{
		"every group with GPUs has count = 0":                      strings.Replace(counted(0), `group "g" {`, "group \"web\" {\n    task \"t\" {\n      driver = \"raw_exec\"\n    }\n  }\n  group \"g\" {", 1),
		"its device blocks have count = 0":                         strings.Replace(text, "count = 1", "count = 0", 1),
		`group "g" has count = -1, but a count cannot be negative`: counted(-1),
		"pal_class":                         strings.Replace(text, `group "g" {`, "meta {\n    pal_class = \"Z\"\n  }\n  group \"g\" {", 1),
		"a sysbatch job runs on every node": strings.Replace(text, `"batch"`, "\"sysbatch\"\n  constraint {\n    attribute = \"${meta.pal_gate}\"\n    value = \"open\"\n  }", 1),
	} {
		if code, out, said := c.reads(job, "run", "-"); code != 2 || !strings.Contains(said, what) {
			t.Errorf("%s: %d %s%s", what, code, out, said)
		}
	}
	if _, out, said := c.reads(strings.Replace(text, "nvidia/gpu", "nvidia/gpus", 1), "run", "-detach", "-"); !strings.Contains(said, `device "nvidia/gpus" (did you mean "nvidia/gpu"?)`) {
		t.Errorf("a device: %s%s", out, said)
	}
	// A job with count 0 is valid, as in Nomad: somebody may scale it later.
	if code, out, said := c.reads(counted(0), "run", "-detach", "-"); code != 0 {
		t.Errorf("no members: %d %s%s", code, out, said)
	}
}
