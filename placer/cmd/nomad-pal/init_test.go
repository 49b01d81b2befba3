// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// With the files that init writes, the agent runs, no check of doctor fails, and the
// example fits.
func TestInit(t *testing.T) {
	c := newCluster(t)
	dir := filepath.Join(t.TempDir(), "new")
	code, out, said := c.does("init", "-o", dir)
	if code != 0 || !strings.Contains(out, "has 8 GPUs on 2 nodes. Access control: off, so anybody may do everything. Racks: rack.") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	if names := filesIn(t, dir); names != "agent.hcl example.nomad.hcl plugin.hcl" {
		t.Errorf("init wrote %s", names)
	}
	port := c.written("port.hcl", "http {\n  bind_port = 0\n}\n")
	written := filepath.Join(dir, "agent.hcl")
	if file, err := agent.Load([]string{written}); err != nil {
		t.Fatal(err)
	} else if cfg, err := file.PlacerConfig(); err != nil || cfg.RackMeta != "rack" {
		t.Errorf("rack_meta %q: %v", cfg.RackMeta, err)
	}
	url := c.agentOf("", written, port)
	if code, out, said := c.does("doctor", "-config", written, "-pal-address", url); code != 0 || strings.Contains(out, "FAIL ") {
		t.Errorf("doctor: %d %s%s", code, out, said)
	}
	c.says(1, "2 GPUs, application class A", "plan", "-verbose", filepath.Join(dir, "example.nomad.hcl"))
}

// init writes into no folder that exists, so it overwrites nothing.
func TestInitOverwritesNothing(t *testing.T) {
	c, dir := newCluster(t), t.TempDir()
	code, _, said := c.does("init", "-o", dir)
	if code != 1 || !strings.Contains(said, "file exists: -o names another folder") || filesIn(t, dir) != "" {
		t.Errorf("%d %s; %s", code, said, filesIn(t, dir))
	}
}

func filesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// The files contain what init finds: TLS, access control, the namespace, racks, other plugins, the
// kind of node with the most GPUs.
func TestSiteFiles(t *testing.T) {
	t.Parallel()
	node := func(n, gpus int, change func(*api.Node)) *api.Node {
		out := nomadtest.GPUNode(n, gpus)
		out.Meta = map[string]string{"rack_id": "r1"}
		out.Drivers = map[string]*api.DriverInfo{"docker": {Detected: true, Healthy: true}}
		change(out)
		return out
	}
	s := &site{
		Nomad: &api.Config{Address: "https://n:4646", Namespace: "research", TLSConfig: &api.TLSConfig{CACert: "/ca.pem", ClientCert: "/c.pem", ClientKey: "/k.pem"}},
		TLS:   true, Storage: "ops", ACL: true, TokenFile: "/t/agent.token", Servers: "a:4647,b:4647",
	}
	s.lookAt([]*api.Node{node(0, 4, func(*api.Node) {}), node(1, 8, func(n *api.Node) { n.NodePool = "gpu"; n.Meta["unrelated"] = "x" })})
	texts, dir := s.files(), t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"agent.hcl":            {`rack_meta = "rack_id"`, `namespace = "ops"`, `token_file = "/t/agent.token"`, `# rpc_address = "a:4647,b:4647"`, `ca_cert     = "/ca.pem"`},
		"plugin.hcl":           {`address = "https://127.0.0.1:4646"`, `namespace = "ops"`, "token_file"},
		"example.nomad.hcl":    {`node_pool = "gpu"`, `device "nvidia/gpu"`, "count = 2", `driver = "docker"`, `namespace = "research"`},
		"acl.sh":               {"nomad-pal-user user.policy.hcl"},
		"nomad-pal.policy.hcl": {`namespace "ops"`},
		"user.policy.hcl":      {`namespace "research"`, `namespace "ops"`},
	} {
		for _, w := range want {
			if !strings.Contains(texts[name], w) {
				t.Errorf("%s lacks %q:\n%s", name, w, texts[name])
			}
		}
	}
	for line := range strings.Lines(texts["plugin.hcl"]) {
		if strings.HasPrefix(strings.TrimSpace(line), "mode") {
			t.Errorf("plugin.hcl measures GPUs that nobody has asked to measure: %s", line)
		}
	}
	if file, err := agent.Load([]string{filepath.Join(dir, "agent.hcl")}); err != nil {
		t.Error(err)
	} else if _, err := file.PlacerConfig(); err != nil {
		t.Error(err)
	}
	if _, _, err := new(base).readJob(filepath.Join(dir, "example.nomad.hcl"), &jobFlags{}); err != nil {
		t.Error(err)
	}
}

// A text from a node or a server never adds a line to a file, and no script runs it.
func TestInitQuotes(t *testing.T) {
	t.Parallel()
	const evil = "H100\njob \"evil\" {}\n${file(\"/etc/passwd\")}$${a}\x1b\a\v\x00\u202e\\\U000e0001"
	s := &site{Nomad: &api.Config{Address: "http://n:4646", Namespace: evil, TLSConfig: &api.TLSConfig{}}, Storage: "default", ACL: true, TokenFile: "/t", Servers: evil}
	n := nomadtest.GPUNode(0, 2)
	n.Meta, n.NodePool = map[string]string{"rack" + evil: "r"}, evil
	s.lookAt([]*api.Node{n})
	for name, text := range s.files() {
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "job \"evil") || strings.Contains(line, " ${file") || strings.Contains(line, "\"${file") {
				t.Errorf("%s: %s", name, line)
			}
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if name == "example.nomad.hcl" {
			job, _, err := new(base).readJob(path, &jobFlags{})
			if err != nil || *job.NodePool != evil || *job.ID != "nomad-pal-example" {
				t.Errorf("%v\n%s", err, text)
			}
		}
		if name == "agent.hcl" {
			if file, err := agent.Load([]string{path}); err != nil {
				t.Errorf("%v\n%s", err, text)
			} else if cfg, _ := file.PlacerConfig(); cfg.RackMeta != "rack"+evil {
				t.Errorf("rack_meta %q", cfg.RackMeta)
			}
		}
	}
}
