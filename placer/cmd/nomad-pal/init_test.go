// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// With the files that init writes, the agent runs, no check of doctor fails, and the
// example fits.
func TestInit(t *testing.T) {
	c := newCluster(t)
	dir := filepath.Join(t.TempDir(), "new")
	code, out, said := c.does("init", "-o", dir)
	if code != 0 || !strings.Contains(out, "has 8 GPUs on 2 nodes, racks in meta \"rack\"") || !strings.Contains(out, "init writes no policies") {
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
	if code, out, said := c.does("plan", "-verbose", filepath.Join(dir, "example.nomad.hcl")); code != 1 || !strings.Contains(out, "8 GPUs, application class A") {
		t.Errorf("the example: %d %s%s", code, out, said)
	}
}

// Without -force, init leaves all existing files as they are. With -force it never writes through a
// link.
func TestInitOverwrites(t *testing.T) {
	c := newCluster(t)
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	mine := filepath.Join(dir, "agent.hcl")
	if err := os.WriteFile(elsewhere, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, mine); err != nil {
		t.Fatal(err)
	}
	code, _, said := c.does("init", "-o", dir)
	if code != 1 || !strings.Contains(said, "has agent.hcl: use -force") || filesIn(t, dir) != "agent.hcl" {
		t.Errorf("%d %s; %s", code, said, filesIn(t, dir))
	}
	if code, _, said = c.does("init", "-o", dir, "-force"); code != 0 {
		t.Errorf("-force: %s", said)
	}
	if text, _ := os.ReadFile(elsewhere); string(text) != "mine" {
		t.Errorf("written through a link: %s", text)
	}
	if text, _ := os.ReadFile(mine); !strings.Contains(string(text), c.url) {
		t.Errorf("-force did not write: %s", text)
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
	same := func(*api.Node) {}
	s := &site{
		Address: "https://n:4646", TLS: true, CACert: "/ca.pem", ClientCert: "/c.pem", ClientKey: "/k.pem", Storage: "ops",
		ACL: true, TokenFile: "/t/agent.token", Namespace: "research", Servers: "a:4647,b:4647",
	}
	nodes := []*api.Node{
		node(0, 4, same), node(1, 8, func(n *api.Node) { n.NodePool = "gpu"; n.NodeResources.Devices[0].Name = "NVIDIA H100" }),
		node(2, 8, func(n *api.Node) {
			n.NodePool = "gpu"
			n.NodeResources.Devices[0].Name = "NVIDIA H100"
			n.Meta["unrelated"] = "x"
		}),
		node(3, 4, func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].Healthy = false }),
	}
	s.lookAtRacks(nodes)
	s.lookAtGPUs(nodes)
	files := s.files()
	texts := map[string]string{}
	dir := t.TempDir()
	for _, f := range files {
		texts[f.name] = f.text
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"agent.hcl":            {`rack_meta = "rack_id"`, `namespace = "ops"`, `token_file = "/t/agent.token"`, `# rpc_address = "a:4647,b:4647"`, `ca_cert     = "/ca.pem"`},
		"plugin.hcl":           {`address = "https://127.0.0.1:4646"`, `namespace = "ops"`, "token_file"},
		"example.nomad.hcl":    {`node_pool = "gpu"`, `device "nvidia/gpu/NVIDIA H100"`, "count = 2", "count = 8", `driver = "docker"`, `namespace = "research"`},
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

// Parts of shared GPUs count as their GPU, as in quotas. The example requests whole GPUs or, if all
// GPUs are shared, one part of each of two GPUs.
func TestInitWithSharedGPUs(t *testing.T) {
	t.Parallel()
	parts := func(n int) *api.Node { // one GPU of eight parts
		node := nomadtest.GPUNode(n, 8)
		d := node.NodeResources.Devices[0]
		d.Type, d.Name = attr.SharedType, d.Name+attr.SharedSuffix
		for i, in := range d.Instances {
			in.ID = fmt.Sprintf("GPU-%d::%d", n, i)
		}
		return node
	}
	whole := nomadtest.GPUNode(2, 2)
	for _, c := range []struct {
		nodes                 []*api.Node
		gpus, count, gpusEach int
		device, fits          string
	}{
		{[]*api.Node{parts(0), parts(1), whole}, 4, 1, 2, "nvidia/gpu/NVIDIA H200", "the cluster: 1 node with 2 × NVIDIA H200"},
		{[]*api.Node{parts(0), parts(1)}, 2, 2, 1, "nvidia/gpu.shared", "the cluster: 2 nodes with parts of NVIDIA H200-SHARED"},
	} {
		s := &site{}
		s.lookAtGPUs(c.nodes)
		if s.GPUs != c.gpus || s.Count != c.count || s.GPUsEach != c.gpusEach || s.Device != c.device || s.Fits != c.fits {
			t.Errorf("%+v, want %+v", s, c)
		}
	}
}

// init also writes files for a cluster without GPUs.
func TestInitWithoutGPUs(t *testing.T) {
	t.Parallel()
	s := &site{Address: "http://n:4646", Storage: "default", Namespace: "default"}
	s.lookAtGPUs(nil)
	if files := s.files(); len(files) != 3 || !strings.Contains(files[2].text, "this cluster has none yet") {
		t.Errorf("%+v", files)
	}
}

// A text from a node or a server never adds a line to a file, and no script runs it.
func TestInitQuotes(t *testing.T) {
	t.Parallel()
	const evil = "H100\njob \"evil\" {}\n${file(\"/etc/passwd\")}$${a}\x1b\a\v\x00\u202e\\\U000e0001"
	s := &site{Address: "http://n:4646", Storage: "default", ACL: true, TokenFile: "/t", Servers: evil, Namespace: evil}
	n := nomadtest.GPUNode(0, 2)
	n.Meta, n.NodePool = map[string]string{"rack" + evil: "r"}, evil
	n.NodeResources.Devices[0].Name = evil
	second := nomadtest.GPUNode(1, 1)
	second.Meta = n.Meta
	s.lookAtRacks([]*api.Node{n, second})
	s.lookAtGPUs([]*api.Node{n, second})
	files := s.files()
	for _, f := range files {
		for line := range strings.SplitSeq(f.text, "\n") {
			if strings.HasPrefix(line, "job \"evil") || strings.Contains(line, " ${file") || strings.Contains(line, "\"${file") {
				t.Errorf("%s: %s", f.name, line)
			}
		}
		path := filepath.Join(t.TempDir(), f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f.name == "example.nomad.hcl" {
			job, _, err := new(base).readJob(path, &jobFlags{})
			if err != nil || *job.NodePool != evil || *job.ID != "nomad-pal-example" {
				t.Errorf("%v\n%s", err, f.text)
			}
		}
		if f.name == "agent.hcl" {
			if file, err := agent.Load([]string{path}); err != nil {
				t.Errorf("%v\n%s", err, f.text)
			} else if cfg, _ := file.PlacerConfig(); cfg.RackMeta != "rack"+evil {
				t.Errorf("rack_meta %q", cfg.RackMeta)
			}
		}
	}
}
