// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// The agent stores running jobs, keeps them over a restart, and shows them to callers who may list
// their namespace.
func TestHistory(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}, "ops": {"*"}})
	f.has(gpuJob("research", "train", 1), "GPU-1")
	f.has(gpuJob("default", "other", 1), "GPU-2")
	file := filepath.Join(t.TempDir(), "below", "history.db")
	config := openConfig + fmt.Sprintf("history {\n  database = %q\n}\n", file)
	for range 2 {
		r := f.run(config).ready()
		runs := func(path, token string) (runs []palapi.Run) {
			status, text := r.send(http.MethodGet, path, token, "")
			if status == http.StatusServiceUnavailable {
				return nil
			}
			if err := json.Unmarshal([]byte(text), &runs); err != nil || status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, status, text)
			}
			return runs
		}
		until(t, "both jobs are recorded", func() bool { return len(runs("/v1/runs", "ops")) == 2 })
		if got := runs("/v1/runs", "alice"); len(got) != 1 || got[0].Job != "train" || got[0].State != palapi.RunRunning || got[0].GPUs != 1 || got[0].Model != "X" {
			t.Errorf("to a caller who may list one namespace: %+v", got)
		}
		if got := runs("/v1/runs?state=complete&state=failed", "ops"); len(got) != 0 {
			t.Errorf("runs that ended: %+v", got)
		}
		if got := runs("/v1/runs?job=tr", "ops"); len(got) != 1 {
			t.Errorf("by the beginning of an id: %+v", got)
		}
		for path, says := range map[string]string{
			"/v1/runs?state=gone": `state="gone" is none of`, "/v1/runs?since=yesterday": `since="yesterday" is not a time`,
			"/v1/runs?limit=0": `limit="0" is not a positive integer`, "/v1/usage?by=color": `by="color" is none of`,
		} {
			if status, text := r.send(http.MethodGet, path, "ops", ""); status != http.StatusBadRequest || !strings.Contains(text, says) {
				t.Errorf("%s: %d %s", path, status, text)
			}
		}
		var usage []palapi.Usage
		if status, text := r.send(http.MethodGet, "/v1/usage?by=namespace,model", "alice", ""); status != http.StatusOK || json.Unmarshal([]byte(text), &usage) != nil || len(usage) != 1 || usage[0].Of[0] != "research" || usage[0].GPUHours <= 0 {
			t.Errorf("usage: %d %s", status, text)
		}
		if status, text := r.send(http.MethodGet, "/v1/speed", "alice", ""); status != http.StatusOK || !strings.Contains(text, `"fast_runs": 0`) && !strings.Contains(text, `"fast_runs":0`) {
			t.Errorf("speed: %d %s", status, text)
		}
		if status, text := r.send(http.MethodGet, "/v1/speed?since=yesterday", "ops", ""); status != http.StatusBadRequest {
			t.Errorf("speed since yesterday: %d %s", status, text)
		}
		for _, path := range []string{"/v1/usage", "/v1/speed"} {
			if status, _ := r.send(http.MethodGet, path, "mallory", ""); status != http.StatusForbidden {
				t.Errorf("%s: a token that Nomad does not know gets %d", path, status)
			}
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent without the block reports how to configure it. If the database cannot be opened, the
// agent reports why, logs a warning, and still places jobs.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"ops": {"*"}})
	r := f.run(openConfig).ready()
	if status, text := r.send(http.MethodGet, "/v1/runs", "ops", ""); status != http.StatusNotImplemented || !strings.Contains(text, "keeps no history") {
		t.Errorf("without the block: %d %s", status, text)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r = f.run(openConfig + fmt.Sprintf("history {\n  database = %q\n}\n", filepath.Join(taken, "history.db"))).ready()
	until(t, "the error says where the cause is told", func() bool {
		status, text := r.send(http.MethodGet, "/v1/usage", "ops", "")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "see the agent's log and health") && !strings.Contains(text, taken)
	})
	until(t, "it warns", func() bool {
		_, text := r.send(http.MethodGet, "/v1/health", "ops", "")
		return strings.Contains(text, "cannot write the history") && strings.Contains(text, "making the directory")
	})
}

// A corrupt file is named in the log and set aside. Running jobs are written to a new file, with
// their true start times.
func TestCorruptHistory(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"ops": {"*"}})
	f.has(gpuJob("research", "train", 1), "GPU-1")
	file := filepath.Join(t.TempDir(), "history.db")
	damaged := []byte(strings.Repeat("this is no database\n", 1000))
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	r := f.run(openConfig + fmt.Sprintf("history {\n  database = %q\n}\n", file)).ready()
	var usage []palapi.Usage
	until(t, "running jobs are counted", func() bool {
		status, text := r.send(http.MethodGet, "/v1/usage?by=namespace", "ops", "")
		return status == http.StatusOK && json.Unmarshal([]byte(text), &usage) == nil && len(usage) == 1
	})
	if u := usage[0]; u.Of[0] != "research" || u.GPUHours <= 0 || u.GPUHours > 1 || u.Runs != 0 {
		t.Errorf("usage %+v", u)
	}
	aside, _ := filepath.Glob(file + ".corrupt-*Z")
	if len(aside) != 1 || !strings.Contains(r.log.String(), "the history was corrupt and starts empty: set_aside_as="+aside[0]) {
		t.Fatalf("set aside as %q, and not named in the log", aside)
	}
	if text, err := os.ReadFile(aside[0]); err != nil || string(text) != string(damaged) {
		t.Errorf("the file that was set aside is not the corrupt one: %v", err)
	}
}
