// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Files that the page takes from others are unchanged, in the versions that package-lock.json
// pins: uPlot byte by byte, and some values of HashiCorp's design system.
func TestVendored(t *testing.T) {
	modules, ui := filepath.Join("..", "..", "build", "browser", "node_modules"), filepath.Join("..", "..", "placer", "agent", "ui")
	read := func(path ...string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			without(t, "npm has not fetched the files to compare with: "+err.Error())
		}
		return string(text)
	}
	for ours, theirs := range map[string]string{"uplot.js": "uPlot.iife.min.js", "uplot.css": "uPlot.min.css"} {
		if read(ui, ours) != read(modules, "uplot", "dist", theirs) {
			t.Errorf("%s differs from %s of the package uplot", ours, theirs)
		}
	}
	value := regexp.MustCompile(`(?m)^\s+(--token-[\w-]+): ([^;]+);`)
	published := map[string]string{}
	for _, m := range value.FindAllStringSubmatch(read(modules, "@hashicorp", "design-system-tokens", "dist", "products", "css", "tokens.css"), -1) {
		published[m[1]] = m[2]
	}
	ours := value.FindAllStringSubmatch(read(ui, "tokens.css"), -1)
	if len(ours) < 10 {
		t.Errorf("tokens.css has %d values", len(ours))
	}
	for _, m := range ours {
		if published[m[1]] != m[2] {
			t.Errorf("%s is %s, but %q in the published file", m[1], m[2], published[m[1]])
		}
	}
}
