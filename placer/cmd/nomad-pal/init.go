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
Writes the files that nomad-pal needs on this cluster into a folder: the configuration
of the agent and of the device plugin, and an example job. If Nomad has ACLs, it also writes
policies, for users of -namespace, and a script that makes the tokens. It changes nothing in
Nomad. With a management token, init sees everything.

Init Options:

  -o=<dir>                 The folder, which must not exist. Default: nomad-pal.
`, examples(
	"Begin:", "nomad-pal init",
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
	s.TokenFile, err = filepath.Abs(filepath.Join(*dir, "agent.token"))
	if err == nil {
		err = os.Mkdir(*dir, 0o755)
	}
	if err != nil {
		return b.fail(fmt.Errorf("%w: -o names another folder", err))
	}
	files := s.files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(*dir, name)
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			return b.fail(err)
		}
		b.io.printf("Wrote %s\n", path)
	}
	b.io.write("\n")
	b.io.say(plain, fmt.Sprintf("%s has %s on %s. Access control: %s. Racks: %s.", s.Nomad.Address, pal.CountGPUs(s.GPUs), counted(s.Nodes, "node"),
		map[bool]string{true: "on", false: "off, so anybody may do everything"}[s.ACL], cmp.Or(s.RackMeta, "no meta key of the nodes names them")))
	printSteps(b, s.steps(*dir))
	return 0
}

// lookAround reads the cluster's nodes and servers.
func lookAround(b *base, client *nomad.Client) (*site, error) {
	s := &site{Nomad: b.config(), Storage: client.Namespace()}
	s.Nomad.Namespace = b.namespace
	s.TLS = strings.HasPrefix(s.Nomad.Address, "https://")
	state, err := client.ReadNodes(b.ctx)
	if err != nil {
		return nil, err
	}
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	s.ACL = !aclDisabled(self, err)
	peers, _ := client.API().Status().Peers() // without an answer, the files name no servers
	s.Servers = strings.Join(slices.Sorted(slices.Values(peers)), ",")
	s.lookAt(slices.SortedFunc(maps.Values(state.Nodes), func(a, b *api.Node) int { return strings.Compare(a.ID, b.ID) }))
	return s, nil
}

// lookAt counts GPUs, finds the meta key that names racks, and fits the example to the node with the
// most GPUs.
func (s *site) lookAt(nodes []*api.Node) {
	s.Device, s.Nodes = "nvidia/gpu", len(nodes)
	s.Pool, s.Driver = "default", "raw_exec"
	racks, most := map[string]int{"": 0}, 0
	for _, n := range nodes {
		for k := range n.Meta {
			racks[k]++
		}
		for _, d := range cluster.GPUDevices(n) {
			s.GPUs += len(d.Instances)
			if len(d.Instances) > most {
				most = len(d.Instances)
				s.Device = d.Vendor + "/" + d.Type
				s.Pool = cmp.Or(n.NodePool, "default")
				s.Driver = cmp.Or(firstHealthy(n.Drivers, "docker", "raw_exec", "exec"), "raw_exec")
			}
		}
	}
	s.Count = max(1, min(2, s.GPUs))
	maps.DeleteFunc(racks, func(key string, _ int) bool { return key != "" && !strings.Contains(strings.ToLower(key), "rack") })
	s.RackMeta = slices.MaxFunc(slices.Sorted(maps.Keys(racks)), func(a, b string) int { return cmp.Compare(racks[a], racks[b]) })
}

// firstHealthy returns the first of the named task drivers that is healthy on a node, or "".
func firstHealthy(on map[string]*api.DriverInfo, names ...string) string {
	i := slices.IndexFunc(names, func(name string) bool { return on[name] != nil && on[name].Detected && on[name].Healthy })
	if i < 0 {
		return ""
	}
	return names[i]
}

//go:embed initfiles
var initFiles embed.FS

// files returns the texts of the files for a site, by name.
func (s *site) files() map[string]string {
	all := template.New("").Delims("<<", ">>").Funcs(template.FuncMap{"hcl": hclString})
	files := map[string]string{}
	for _, t := range template.Must(all.ParseFS(initFiles, "initfiles/*.tmpl")).Templates() {
		var text strings.Builder
		template.Must(t, t.Execute(&text, s)) // cannot fail, because the templates are embedded and tested
		files[strings.TrimSuffix(t.Name(), ".tmpl")] = text.String()
	}
	if !s.ACL {
		delete(files, "acl.sh")
		return files
	}
	of := strings.NewReplacer(`namespace "default"`, "namespace "+hclString(s.Storage), `namespace "research"`, "namespace "+hclString(s.Nomad.Namespace))
	for name, text := range map[string]string{"nomad-pal": acl.Agent, "node": acl.Node, "user": acl.User} {
		files[name+".policy.hcl"] = of.Replace(text)
	}
	return files
}

// hclString quotes a string for HCL.
func hclString(s string) string {
	return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes())
}

// steps describes what the operator has to do with the files.
func (s *site) steps(dir string) []string {
	agent, check := filepath.Join(dir, "agent.hcl"), ""
	var steps []string
	if s.ACL {
		steps = append(steps, "Create the policies and tokens, with a management token: NOMAD_TOKEN=… sh "+filepath.Join(dir, "acl.sh"))
		check = ", with NOMAD_TOKEN=$(cat " + filepath.Join(dir, "agent.token") + ")"
	}
	return append(steps, "To measure GPUs and watch their health, you can install the device plugin: see "+filepath.Join(dir, "plugin.hcl"),
		"Start the agent: nomad-pal agent -config "+agent, "Check everything: nomad-pal doctor -config "+agent+check,
		"Run a first gang: nomad-pal run "+filepath.Join(dir, "example.nomad.hcl"))
}
