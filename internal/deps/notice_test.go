// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNotice: NOTICE names each Nomad package that a binary links, and the licence of its files.
func TestNotice(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "NOTICE"))
	if err != nil {
		t.Fatal(err)
	}
	for binary, path := range map[string]string{"nomad-device-pal": "./device-plugin/cmd/nomad-device-pal", "nomad-pal": "./placer/cmd/nomad-pal"} {
		_, section, ok := strings.Cut(string(text), "\n"+binary+":\n")
		if !ok {
			t.Fatalf("NOTICE has no section on %s", binary)
		}
		section, _, _ = strings.Cut(section, "\n\n")
		var said []string
		for line := range strings.SplitSeq(section, "\n") {
			said = append(said, strings.Join(strings.Fields(line), " "))
		}
		if d := cmp.Diff(linked(t, path), said); d != "" {
			t.Errorf("%s: linked (-) and in NOTICE (+):\n%s", binary, d)
		}
	}
	if version := nomadVersion(t); !strings.Contains(string(text), version) {
		t.Errorf("NOTICE does not name Nomad %s", version)
	}
}

// linked returns the Nomad packages in a binary, each with its licence.
func linked(t *testing.T, path string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}}|{{.Dir}}|{{join .GoFiles ","}}|{{with .Module}}{{.Dir}}{{end}}`, path)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		f := strings.Split(line, "|")
		if strings.HasPrefix(f[0], "github.com/hashicorp/nomad/") {
			all = append(all, f[0]+" "+licence(t, f[1], f[3], split(f[2])))
		}
	}
	slices.Sort(all)
	return all
}

var spdx = regexp.MustCompile(`SPDX-License-Identifier: (\S+)`)

// licence returns the licence of a package's files: from their headers, or else from the
// LICENSE of the nearest parent folder.
func licence(t *testing.T, dir, root string, files []string) string {
	t.Helper()
	var found []string
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if m := spdx.FindSubmatch(text); m != nil && !slices.Contains(found, string(m[1])) {
			found = append(found, string(m[1]))
		}
	}
	for at := dir; len(found) == 0 && strings.HasPrefix(at, root); at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "LICENSE"))
		switch {
		case err != nil:
		case strings.Contains(string(text), "Mozilla Public License, version 2.0"):
			found = []string{"MPL-2.0"}
		case strings.Contains(string(text), "Business Source License"):
			found = []string{"BUSL-1.1"}
		}
	}
	slices.Sort(found)
	return strings.Join(found, " and ")
}

func nomadVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/hashicorp/nomad").Output()
	if err != nil {
		t.Fatalf("go list: %v", fmt.Errorf("%w: %s", err, out))
	}
	return strings.TrimSpace(string(out))
}
