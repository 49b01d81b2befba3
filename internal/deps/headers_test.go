// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each file of code says whose it is, and under which licence: not so generated ones,
// and data.
func TestHeaders(t *testing.T) {
	root := filepath.Join("..", "..")
	cmd := exec.Command("git", "ls-files", "*.go", "*.sh", "*.mk", "*.c", "Makefile", ".ci/*")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Fields(string(out))
	if len(files) < 500 {
		t.Errorf("%d files", len(files))
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		head := text[:min(len(text), 300)]
		if !bytes.Contains(head, []byte("Copyright (c) The nomad-pal Authors")) || !bytes.Contains(head, []byte("SPDX-License-Identifier: MPL-2.0")) {
			t.Errorf("%s says nothing of its licence", name)
		}
	}
}
