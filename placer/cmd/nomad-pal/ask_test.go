// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// testCluster is an in-memory Nomad for trying commands: two nodes with four GPUs
// each.
type testCluster struct {
	t     *testing.T
	nomad *nomadtest.Server
	url   string
}

func newCluster(t *testing.T) *testCluster {
	t.Helper()
	return newClusterWith(t, nomadtest.Options{Seed: 1})
}

// newClusterWith is like newCluster, with options such as a slower Nomad.
func newClusterWith(t *testing.T, o nomadtest.Options) *testCluster {
	t.Helper()
	s := nomadtest.New(o)
	h := httptest.NewServer(s)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close(); s.Close() })
	for i := range 2 {
		s.AddNode(nomadtest.GPUNode(i, 4))
	}
	for _, name := range []string{"NOMAD_ADDR", "NOMAD_TOKEN", "NOMAD_NAMESPACE", "NOMAD_REGION", "NOMAD_PAL_ADDR", "NOMAD_PAL_TOKEN_PLAIN", "NOMAD_CACERT", "NOMAD_CLIENT_CERT", "NOMAD_HTTP_AUTH"} {
		t.Setenv(name, "")
	}
	t.Setenv("NOMAD_ADDR", h.URL)
	return &testCluster{t, s, h.URL}
}

// does runs a command and returns its exit code, output and errors.
func (c *testCluster) does(args ...string) (int, string, string) {
	c.t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := patience.Context(c.t.Context(), patience.Long)
	defer cancel()
	code := run(ctx, args, streams{strings.NewReader(""), &out, &err, false})
	if slices.Contains(args, "-json") && out.Len() > 0 {
		checkJSON(c.t, args, out.Bytes())
	}
	return code, out.String(), err.String()
}

// must runs a command that must succeed.
func (c *testCluster) must(args ...string) {
	c.t.Helper()
	if code, out, said := c.does(args...); code != 0 {
		c.t.Fatalf("%q: exit code %d\n%s%s", args, code, out, said)
	}
}

// says runs a command, and checks its exit code, and that it prints a text.
func (c *testCluster) says(want int, text string, args ...string) {
	c.t.Helper()
	if code, out, said := c.does(args...); code != want || !strings.Contains(out+said, text) {
		c.t.Errorf("%q: exit code %d, want %d and %q\n%s%s", args, code, want, text, out, said)
	}
}

// checkJSON checks that the output is JSON without null: lists can be empty, and unknown fields are
// left out.
func checkJSON(t *testing.T, args []string, output []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(output))
	for dec.More() {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil || bytes.Contains(v, []byte(": null")) {
			t.Errorf("%v: %v\n%s", args, err, output)
			return
		}
	}
}

// agent starts an agent, and waits until it is active.
func (c *testCluster) agent(token, config string) (url string) {
	c.t.Helper()
	text := fmt.Sprintf("%s\nnomad {\n  address = %q\n  token = %q\n}\n", config, c.url, token)
	return c.agentOf(token, c.written("agent.hcl", text))
}

// agentOf starts an agent with configuration files.
func (c *testCluster) agentOf(token string, paths ...string) (url string) {
	c.t.Helper()
	log := &testlog.Buffer{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.New(hclog.New(&hclog.LoggerOptions{Output: log}), placer.Hooks{}).Run(ctx, paths, nil)
	}()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the agent: %v", err)
		}
	})
	c.until("the agent is active", func() bool {
		if m := regexp.MustCompile(`HTTP API: address=(\S+)`).FindStringSubmatch(log.String()); m != nil {
			url = "http://" + m[1]
		}
		return url != "" && c.activity(token).Working
	})
	return url
}

func (c *testCluster) client(token string) *nomad.Client {
	c.t.Helper()
	client, err := nomad.NewClient(&api.Config{Address: c.url, SecretID: token}, "")
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

func (c *testCluster) activity(token string) palapi.Activity {
	c.t.Helper()
	a, err := heartbeat.ReadActivity(c.t.Context(), c.client(token), time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// beat writes a heartbeat as if it were an agent's.
func (c *testCluster) beat(b store.Heartbeat) {
	c.t.Helper()
	if err := store.In(c.client("root")).Heartbeat().Write(c.t.Context(), b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *testCluster) until(what string, ok func() bool) {
	c.t.Helper()
	patience.Eventually(c.t, what, ok)
}

// job writes a jobspec of one member with n GPUs.
func (c *testCluster) job(namespace, name string, gpus int) (path string) {
	c.t.Helper()
	return c.written(filepath.Base(name)+".hcl", jobText(namespace, name, gpus))
}

// written writes a text to a file and returns its path.
func (c *testCluster) written(name, text string) (path string) {
	c.t.Helper()
	path = filepath.Join(c.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// jobText is a jobspec of one member with n GPUs.
func jobText(namespace, name string, gpus int) string {
	return fmt.Sprintf(`job %q {
  namespace = %q
  type      = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 3600"]
      }
      resources {
        device "nvidia/gpu" {
          count = %d
        }
      }
    }
  }
}
`, name, namespace, gpus)
}

// atAnyPort is the configuration of an agent whose address the commands find in Nomad.
const atAnyPort = "http {\n  bind_port = 0\n}\n"

// If an agent knows of no active placer, the command prints its answers and ends with a special
// exit code. run -detach still registers the job.
func TestNoPlacer(t *testing.T) {
	c := newCluster(t)
	job := c.job("default", "train", 2)
	url := c.agent("", atAnyPort)
	if code, out, err := c.does("status"); code != 0 || !strings.Contains(out, "= active since") || err != "" {
		t.Errorf("with a placer: %d\n%s%s", code, out, err)
	}
	c.says(1, "would start now", "plan", c.job("default", "other", 2))
	c.runs(job, "train")
	// A proxy between the agent and the commands answers with this state of the
	// placer.
	says := palapi.Activity{Agent: "gone", Since: time.Now().Add(-3 * time.Hour), Trouble: "it hangs"}
	between := c.between(url, "/v1/agent", func(w http.ResponseWriter) { _ = json.NewEncoder(w).Encode(says) })
	t.Setenv("NOMAD_PAL_ADDR", between)
	for _, args := range [][]string{{"explain", "train"}, {"queue"}, {"queue", "-json"}, {"status"}, {"gpus"}, {"plan", c.job("default", "more", 2)}, {"events"}} {
		code, out, err := c.does(args...)
		if code != 3 || !strings.Contains(err, "(3h ago): until an agent is active, no job with a gate starts. The agent gone: it hangs.") || out == "" {
			t.Errorf("%v: %d\n%s%s", args, code, out, err)
		}
	}
}

// between proxies an agent, except for one path.
func (c *testCluster) between(url, path string, answer func(http.ResponseWriter)) string {
	c.t.Helper()
	to, err := neturl.Parse(url)
	if err != nil {
		c.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			answer(w)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	c.t.Cleanup(s.Close)
	return s.URL
}

// A job that Nomad alone places starts even if no placer is active.
func TestPlanOfNativeWithoutPlacer(t *testing.T) {
	c := newCluster(t)
	url := c.agent("", atAnyPort)
	t.Setenv("NOMAD_PAL_ADDR", c.between(url, "/v1/agent", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{}") }))
	web := c.written("web.nomad.hcl", `job "web" {
  group "g" {
    task "t" {
      driver = "raw_exec"
    }
  }
}
`)
	if code, out, err := c.does("plan", web); code != 0 || !strings.Contains(out, "leaves the job to Nomad") || strings.Contains(err, "nothing starts") {
		t.Errorf("%d\n%s%s", code, out, err)
	}
}

// A tenant's token cannot see what others hold in Nomad. The agent, asked with this token, knows
// it. If no agent answers, the commands read Nomad with the token and say that they show only a
// part.
func TestCommandsAskTheAgent(t *testing.T) {
	c := newCluster(t)
	c.nomad.SetTokens(map[string]nomadtest.Token{
		"root":  {Management: true},
		"blind": {Nodes: true},
		"user":  {Nodes: true, Namespaces: map[string][]string{"research": {"list-jobs", "read-job", "submit-job"}, "default": {"variables"}}},
	})
	c.nomad.AddNamespace("research")
	c.agent("root", atAnyPort)
	c.must("run", "-token", "root", c.job("secret", "held", 4))
	t.Setenv("NOMAD_TOKEN", "user")
	plan := c.job("research", "wants", 4)
	for args, want := range map[string]string{
		"status":                    "8: 4 allocated, 4 free",
		"gpus":                      palapi.Unseen,
		"queue":                     "No job waits",
		"plan -verbose " + plan:     "4 free of 8",
		"status -json":              `"free": 4`,
		"status -namespace=default": "No jobs with GPUs",
	} {
		code, out, said := c.does(strings.Fields(args)...)
		if code > 1 || !strings.Contains(out, want) || said != "" {
			t.Errorf("%s: %d\n%s%s", args, code, out, said)
		}
	}
	c.says(0, "GPUs         = ", "run", plan)
	c.until("explain by prefix", func() bool { // the agent's view may be 2 s old
		code, out, _ := c.does("explain", "-verbose", "-namespace=research", "wan")
		return code == 0 && strings.Contains(out, "= wants")
	})
	c.says(1, "permission denied", "explain", "-namespace=secret", "held")
	const noToken = "without a token, the address that an agent publishes in Nomad cannot be read: set NOMAD_TOKEN"
	if _, _, said := c.does("explain", "-namespace=secret", "held"); strings.Contains(said, noToken) {
		t.Errorf("with a token: %s", said)
	}
	t.Setenv("NOMAD_TOKEN", "")
	c.says(3, noToken, "queue")
	t.Setenv("NOMAD_TOKEN", "user")
}

// If a token may not read the profile, the error says that, and not that nothing is measured:
// Nomad shows such a token an empty list.
func TestHiddenProfileIsSaid(t *testing.T) {
	c := newCluster(t)
	c.nomad.SetTokens(map[string]nomadtest.Token{
		"root": {Management: true},
		"jobs": {Nodes: true, Namespaces: map[string][]string{"*": {"list-jobs", "read-job"}}},
	})
	t.Setenv("NOMAD_PAL_ADDR", c.agent("root", "http {\n  bind_port = 0\n}\n"))
	t.Setenv("NOMAD_TOKEN", "jobs")
	const right = `The token lacks the capability "read" of the variables "nomad-pal/*"`
	for _, args := range [][]string{{"profile", "show"}, {"profile", "export"}} {
		c.says(1, right, args...)
	}
	t.Setenv("NOMAD_TOKEN", "root") // root may read everything, and the list is empty
	c.says(1, "there is no profile yet", "profile", "show")
}

// The command does not claim that something does not exist if the token may not
// see it.
func TestHiddenIsNotMissing(t *testing.T) {
	c := newCluster(t)
	c.nomad.SetTokens(map[string]nomadtest.Token{
		"root":     {Management: true},
		"user":     {Nodes: true, Namespaces: map[string][]string{"research": {"list-jobs", "read-job"}, "default": {"variables"}}},
		"reader":   {Namespaces: map[string][]string{"research": {"read-job"}, "default": {"variables"}}},
		"nodeless": {Namespaces: map[string][]string{"research": {"list-jobs", "read-job"}, "default": {"variables"}}},
	})
	url := c.agent("root", "http {\n  bind_port = 0\n}\n")
	c.must("run", "-token", "root", c.job("secret", "held", 4))
	c.says(1, `lacks the capability "read-job"`, "release", "-token=user", "-namespace=secret", "held")
	c.must("run", "-detach", "-token", "root", c.job("research", "kept", 4))
	c.says(0, "kept", "explain", "-token=reader", "-namespace=research", "kept")
	c.says(1, `lacks the capability "submit-job"`, "cancel", "-token=user", "-namespace=research", "kept")
	for _, name := range []string{"GPU-0-0", "node-0"} {
		code, _, said := c.does("explain", "-token=nodeless", "-pal-address="+url, "-namespace=research", name)
		if code != 1 || !strings.Contains(said, `lacks node { policy = "read" }`) {
			t.Errorf("explain %s: %d %s", name, code, said)
		}
	}
	for _, of := range []struct{ token, namespace, says string }{
		{"reader", "research", `no job "none" in namespace "research"`},
		{"reader", "secret", `lacks the capability "read-job" in namespace "secret"`},
		{"nodeless", "secret", `lacks the capability "read-job" in namespace "secret"`},
	} {
		c.says(1, of.says, "explain", "-token="+of.token, "-namespace="+of.namespace, "none")
	}
	c.says(1, `no namespace "secret" that your token can see: there `, "queue", "-token=user", "-namespace=secret")
}
