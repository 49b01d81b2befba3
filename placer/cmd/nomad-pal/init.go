// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/nomad/api"
	"github.com/zclconf/go-cty/cty"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/deploy/acl"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

var helpInit = help("init [options]", `
Inspects the cluster, and writes the files that nomad-pal needs on it into a folder:
the configuration of the device plugin and of the agent (address, TLS, servers, racks),
and an example job. If Nomad has ACLs, it also writes
policies and a script that applies them and makes the tokens; the policy of users is for
-namespace. It changes nothing in Nomad. With a management token, init sees everything.

Init Options:

  -o=<dir>                 The folder, which must not exist. Default: nomad-pal.
`, examples(
	"Begin:", "nomad-pal init",
	"Write files for the cluster as it is now into another folder:", "nomad-pal init -o files",
	"Check the files that init wrote:", "nomad-pal doctor -config nomad-pal/agent.hcl",
), generalOptions)

// site describes a cluster as init finds it, and is the data for the templates of init's files.
type site struct {
	Nomad                *api.Config // how this command connects to Nomad
	Storage, TokenFile   string
	TLS, ACL             bool
	Servers              string // the servers' RPC addresses, separated by commas
	RackMeta             string // the node meta key that names racks, or "" if there is none
	Pool, Driver, Device string // of the node that the example fits
	Nodes, GPUs, Count   int
}

func runInit(b *base, args []string) int {
	fs := b.flagsWithoutJSON("init")
	dir := fs.String("o", "nomad-pal", "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	s, err := lookAround(b, client)
	if err != nil {
		return b.fail(err)
	}
	whole, err := filepath.Abs(*dir)
	if err != nil {
		return b.fail(err)
	}
	s.TokenFile = filepath.Join(whole, "agent.token")
	if err := os.Mkdir(*dir, 0o755); err != nil {
		return b.fail(fmt.Errorf("%w: -o names another folder", err))
	}
	files := s.files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(*dir, name)
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			return b.fail(err)
		}
		b.printf("Wrote %s\n", path)
	}
	b.write("\n")
	b.say(plain, fmt.Sprintf("%s has %s on %s. Access control: %s. Racks: %s.", s.Nomad.Address, pal.CountGPUs(s.GPUs), counted(s.Nodes, "node"),
		map[bool]string{true: "on", false: "off, so anybody may do everything"}[s.ACL], cmp.Or(s.RackMeta, "no meta key of the nodes names them")))
	printSteps(b, s.steps(*dir))
	return 0
}

// lookAround reads the cluster's nodes and servers.
func lookAround(b *base, client *nomad.Client) (*site, error) {
	s := &site{Nomad: b.config(), Storage: client.Namespace()}
	s.Nomad.Namespace, s.TLS = b.namespace, strings.HasPrefix(s.Nomad.Address, "https://")
	state, err := client.ReadNodes(b.ctx)
	if err != nil {
		return nil, err
	}
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	s.ACL = !aclDisabled(self, err)
	if peers, err := client.API().Status().Peers(); err == nil {
		slices.Sort(peers)
		s.Servers = strings.Join(peers, ",")
	}
	s.lookAt(each(slices.Sorted(maps.Keys(state.Nodes)), func(id string) *api.Node { return state.Nodes[id] }))
	return s, nil
}

// lookAt counts GPUs, finds the meta key that names racks, and fits the example to the node with the
// most GPUs.
func (s *site) lookAt(nodes []*api.Node) {
	s.Pool, s.Driver, s.Device, s.Nodes = "default", "raw_exec", "nvidia/gpu", len(nodes)
	racks, most := map[string]int{"": 0}, 0
	for _, n := range nodes {
		for k := range n.Meta {
			if strings.Contains(strings.ToLower(k), "rack") {
				racks[k]++
			}
		}
		for _, d := range cluster.GPUDevices(n) {
			s.GPUs += len(d.Instances)
			if len(d.Instances) > most {
				most, s.Pool, s.Device = len(d.Instances), cmp.Or(n.NodePool, "default"), d.Vendor+"/"+d.Type
				s.Driver = cmp.Or(firstHealthy(n.Drivers, "docker", "raw_exec", "exec"), "raw_exec")
			}
		}
	}
	s.Count = max(1, min(2, s.GPUs))
	s.RackMeta = slices.MaxFunc(slices.Sorted(maps.Keys(racks)), func(a, b string) int { return cmp.Compare(racks[a], racks[b]) })
}

// firstHealthy returns the first of the named task drivers that is healthy on a node, or "" if none
// is.
func firstHealthy(on map[string]*api.DriverInfo, names ...string) string {
	for _, name := range names {
		if d := on[name]; d != nil && d.Detected && d.Healthy {
			return name
		}
	}
	return ""
}

//go:embed initfiles
var initFiles embed.FS

// files returns the texts of the files for a site, by name.
func (s *site) files() map[string]string {
	files := map[string]string{"plugin.hcl": "", "agent.hcl": "", "example.nomad.hcl": ""}
	if s.ACL {
		files["acl.sh"] = ""
	}
	for name := range files {
		t := template.Must(template.New(name+".tmpl").Delims("<<", ">>").Funcs(template.FuncMap{"hcl": hclString}).ParseFS(initFiles, "initfiles/"+name+".tmpl"))
		var text strings.Builder
		if err := t.Execute(&text, s); err != nil {
			panic(err) // cannot fail, because the templates are embedded and tested
		}
		files[name] = text.String()
	}
	if s.ACL {
		of := strings.NewReplacer(`namespace "default"`, "namespace "+hclString(s.Storage), `namespace "research"`, "namespace "+hclString(s.Nomad.Namespace))
		files["nomad-pal.policy.hcl"], files["node.policy.hcl"], files["user.policy.hcl"] = of.Replace(acl.Agent), of.Replace(acl.Node), of.Replace(acl.User)
	}
	return files
}

// hclString quotes a string for HCL.
func hclString(s string) string {
	return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes())
}

// steps describes what the operator has to do with the files.
func (s *site) steps(dir string) []string {
	path := func(name string) string { return filepath.Join(dir, name) }
	steps := []string{
		"To measure GPUs and watch their health, you can install the device plugin: see " + path("plugin.hcl"),
		"Start the agent: nomad-pal agent -config " + path("agent.hcl"),
		"Check everything: nomad-pal doctor -config " + path("agent.hcl"),
		"Run a first gang: nomad-pal run " + path("example.nomad.hcl"),
	}
	if s.ACL {
		steps = append([]string{"Create the policies and tokens, with a management token: NOMAD_TOKEN=… sh " + path("acl.sh")}, steps...)
		steps[3] += ", with NOMAD_TOKEN=$(cat " + path("agent.token") + ")"
	}
	return steps
}
