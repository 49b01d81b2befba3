// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/cli"
)

var rewriteReference = flag.Bool("rewrite-reference", false, "write docs/reference/nomad-device-pal.md")

// docs/reference/nomad-device-pal.md lists the commands and their options, from their -help texts.
func TestCommandReference(t *testing.T) {
	const path = "../../../docs/reference/nomad-device-pal.md"
	all := commands(cli.NewMockUi())
	names := slices.Sorted(maps.Keys(all))
	var b strings.Builder
	b.WriteString(`<!-- Written by go test ./device-plugin/cmd/nomad-device-pal -run TestCommandReference -rewrite-reference. -->
# Commands of nomad-device-pal

Nomad's client starts the plugin without arguments. The commands in the table are for
people who are logged in on the node. ` + "`nomad-device-pal <command> -h`" + ` explains a command.

| command | does | options |
|---|---|---|
`)
	option := regexp.MustCompile(`(?m)^ +(-[a-z].*?)(?:  |$)`)
	for _, name := range names {
		c, _ := all[name]()
		if !strings.Contains(c.Help(), "Usage: nomad-device-pal "+name) {
			t.Errorf("%s: its help does not say how it is used: %q", name, c.Help())
		}
		var options []string
		for _, m := range option.FindAllStringSubmatch(c.Help(), -1) {
			options = append(options, "`"+m[1]+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, c.Synopsis(), strings.Join(options, ", "))
	}
	if *rewriteReference {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(got)); d != "" {
		t.Errorf("the page is not what the commands say; -rewrite-reference writes it (-commands +page):\n%s", d)
	}
}
