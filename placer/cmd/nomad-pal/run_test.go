// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Run repeats in plain words why Nomad refuses a job as invalid, as plan does, not Nomad's answer.
func TestRunOfInvalid(t *testing.T) {
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "empty.nomad.hcl")
	if err := os.WriteFile(file, []byte(`job "empty" { type = "batch" }`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, said := c.does("run", "-detach", file); code != 1 || said != "Error: registering job \"empty\": Nomad refuses the job: Missing job task groups\n" {
		t.Errorf("%d %q", code, said)
	}
}

// limitedText is a jobspec with a time limit.
func limitedText() string {
	return strings.Replace(jobText("default", "limited", 1), "group \"g\" {", "group \"g\" {\n    max_run_duration = \"6h\"", 1)
}

// Nomad before 2.0.3 drops a job's time limit without an error. The author learns that, and how to
// limit the run time without failing the job.
func TestRunWithoutTimeLimit(t *testing.T) {
	c := newCluster(t)
	limited := limitedText()
	const warning = "Warning: this Nomad ignores max_run_duration"
	if code, out, said := c.reads(limited, "run", "-detach", "-"); code != 0 || strings.Contains(said, warning) {
		t.Errorf("Nomad 2.0.3: %d %s%s", code, out, said)
	}
	to, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		body = regexp.MustCompile(`"MaxRunDuration": ?[0-9]+`).ReplaceAll(body, []byte(`"MaxRunDuration":null`))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return err
	}
	old := httptest.NewServer(proxy)
	t.Cleanup(old.Close)
	if code, out, said := c.reads(limited, "run", "-detach", "-address="+old.URL, "-"); code != 0 || !strings.Contains(said, warning) {
		t.Errorf("an old Nomad: %d %s%s", code, out, said)
	}
	for command, want := range map[string]bool{"timeout 0.01 sleep 1000 || test $? = 124": true, "timeout 1h false || test $? = 124": false} {
		if err := exec.Command("/bin/sh", "-c", command).Run(); (err == nil) != want {
			t.Errorf("%s: %v", command, err)
		}
	}
}
