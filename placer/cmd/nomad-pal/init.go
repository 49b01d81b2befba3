// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"github.com/nomad-pal/nomad-pal/placer/deploy/acl"
)

var helpInit = help("init [options]", `
Inspects the cluster, and writes the files that nomad-pal needs on it into a folder:
the configuration of the device plugin and of the agent (address, TLS, servers, racks,
namespaces), and an example job that fits the GPUs. If Nomad has ACLs, it also writes
policies and a script that applies them and makes the tokens. It changes nothing in
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
	fs := b.only(b.flags("init"))
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
type file struct {
	name, text string
	mode       os.FileMode
}

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
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		out = append(out, file{name, text.String(), mode})
	}
	if !s.ACL {
		return out
	}
	stored := func(policy string) string {
		return strings.ReplaceAll(policy, `namespace "default"`, "namespace "+hclString(s.Storage))
	}
	out = append(out, file{"nomad-pal.policy.hcl", stored(acl.Agent), 0o644}, file{"node.policy.hcl", stored(acl.Node), 0o644})
	for _, n := range s.Namespaces {
		name := "user-" + n + ".policy.hcl"
		text := strings.NewReplacer("research user.policy.hcl", "nomad-pal-user-"+n+" "+name, "research", n).Replace(stored(acl.User))
		out = append(out, file{name, text, 0o644})
	}
	return out
}

// hclString quotes a string for HCL, and escapes template sequences in it. HCL knows fewer escape
// sequences than Go.
func hclString(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return `"` + strings.NewReplacer("${", "$${", "%{", "%%{").Replace(b.String()) + `"`
}

// writeFiles writes all the files, or none if one already exists and force is false.
func writeFiles(dir string, files []file, force bool) error {
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			there = append(there, f.name)
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if len(there) > 0 && !force {
		return fmt.Errorf("%s already has %s: use -force to overwrite, or -o for another folder", dir, strings.Join(there, ", "))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if slices.Contains(there, f.name) {
			if err := os.Remove(path); err != nil { // if the path is a link, do not write to the link's target
				return err
			}
		}
		if err := os.WriteFile(path, []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return nil
}

// steps describes what the operator has to do with the files.
func (s *site) steps(dir string) []string {
	path := func(name string) string { return filepath.Join(dir, name) }
	var out []string
	if s.ACL {
		out = append(out, fmt.Sprintf("Create the policies and tokens, with a management token: NOMAD_TOKEN=… sh %s", path("acl.sh")))
	}
	plugin := fmt.Sprintf("Install the device plugin: on each client with GPUs, copy nomad-device-pal into the plugin_dir, add %s to the configuration", path("plugin.hcl"))
	if s.ACL {
		plugin += fmt.Sprintf(", copy %s to /etc/nomad.d/nomad-device-pal.token", path("node.token"))
	}
	token := ""
	if s.ACL {
		token = fmt.Sprintf("NOMAD_TOKEN=$(cat %s) ", path("agent.token"))
	}
	return append(out,
		plugin+", and restart Nomad",
		fmt.Sprintf("Start the agent: nomad-pal agent -config %s", path("agent.hcl")),
		fmt.Sprintf("Check everything: %snomad-pal doctor -config %s", token, path("agent.hcl")),
		fmt.Sprintf("Run a first gang: nomad-pal run %s", path("example.nomad.hcl")))
}
