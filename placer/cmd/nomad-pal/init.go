// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/nomad-pal/nomad-pal/placer/deploy/acl"
)

var helpInit = help("init [options]", `
Inspects the cluster, and writes the files that nomad-pal needs on it into a folder:
the configuration of the device plugin and of the agent (address, TLS, servers, racks),
and an example job that fits the GPUs. If Nomad has ACLs, it also writes
policies and a script that applies them and makes the tokens; the policy of users is for
-namespace. It changes nothing in
Nomad, and overwrites files only with -force. With a management token, init sees
everything.

Init Options:

  -o=<dir>                 The folder. Default: nomad-pal.
  -force                   Overwrite existing files.
`, examples(
	"Begin:", "nomad-pal init",
	"Write files for the cluster as it is now into another folder:", "nomad-pal init -o files",
	"Check the files that init wrote:", "nomad-pal doctor -config nomad-pal/agent.hcl",
), generalOptions)

func runInit(b *base, args []string) int {
	fs := b.flagsWithoutJSON("init")
	dir := fs.String("o", "nomad-pal", "")
	force := fs.Bool("force", false, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	site, err := lookAround(b, client)
	if err != nil {
		return b.fail(err)
	}
	whole, err := filepath.Abs(*dir)
	if err != nil {
		return b.fail(err)
	}
	site.TokenFile = filepath.Join(whole, "agent.token")
	files := site.files()
	if err := writeFiles(*dir, files, *force); err != nil {
		return b.fail(err)
	}
	b.say(plain, site.found())
	b.write("\n")
	for _, f := range files {
		b.printf("Wrote %s\n", filepath.Join(*dir, f.name))
	}
	printSteps(b, site.steps(*dir))
	return 0
}

// file is a file that init writes.
type file struct{ name, text string }

//go:embed initfiles
var initFiles embed.FS

// files returns the files for a site.
func (s *site) files() []file {
	names := []string{"plugin.hcl", "agent.hcl", "example.nomad.hcl"}
	if s.ACL {
		names = append(names, "acl.sh")
	}
	var out []file
	for _, name := range names {
		t := template.Must(template.New(name+".tmpl").Delims("<<", ">>").Funcs(template.FuncMap{"hcl": hclString}).ParseFS(initFiles, "initfiles/"+name+".tmpl"))
		var text strings.Builder
		if err := t.Execute(&text, s); err != nil {
			panic(err) // cannot fail, because the templates are embedded and tested
		}
		out = append(out, file{name, text.String()})
	}
	if !s.ACL {
		return out
	}
	stored := func(policy string) string {
		return strings.ReplaceAll(policy, `namespace "default"`, "namespace "+hclString(s.Storage))
	}
	user := strings.Replace(stored(acl.User), `namespace "research"`, "namespace "+hclString(s.Namespace), 1)
	return append(out, file{"nomad-pal.policy.hcl", stored(acl.Agent)}, file{"node.policy.hcl", stored(acl.Node)}, file{"user.policy.hcl", user})
}

// hclString quotes a string for HCL.
func hclString(s string) string {
	return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes())
}

// writeFiles writes all the files, or none if one already exists and force is false.
func writeFiles(dir string, files []file, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			there = append(there, f.name)
		}
	}
	if len(there) > 0 && !force {
		return fmt.Errorf("%s already has %s: use -force to overwrite, or -o for another folder", dir, strings.Join(there, ", "))
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		_ = os.Remove(path) // do not write through a link
		if err := os.WriteFile(path, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// steps describes what the operator has to do with the files.
func (s *site) steps(dir string) []string {
	path := func(name string) string { return filepath.Join(dir, name) }
	tokens, token, copied := []string{}, "", ""
	if s.ACL {
		tokens = []string{"Create the policies and tokens, with a management token: NOMAD_TOKEN=… sh " + path("acl.sh")}
		copied = fmt.Sprintf(", copy %s to /etc/nomad.d/nomad-device-pal.token", path("node.token"))
		token = fmt.Sprintf("NOMAD_TOKEN=$(cat %s) ", path("agent.token"))
	}
	return append(tokens,
		fmt.Sprintf("To measure GPUs and watch their health, you can install the device plugin: on each client with GPUs, copy nomad-device-pal into the plugin_dir, add %s to the configuration%s, and restart Nomad", path("plugin.hcl"), copied),
		"Start the agent: nomad-pal agent -config "+path("agent.hcl"),
		fmt.Sprintf("Check everything: %snomad-pal doctor -config %s", token, path("agent.hcl")),
		"Run a first gang: nomad-pal run "+path("example.nomad.hcl"))
}
