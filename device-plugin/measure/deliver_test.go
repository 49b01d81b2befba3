// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// If root runs with -out=/dev/stdout, that link must not be replaced by a file.
func TestReportBehindALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Command{Stdout: io.Discard, Stderr: io.Discard}).deliver(options{out: link}, Report{}); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Lstat(link); err != nil || is.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v (%v)", is.Mode(), err)
	}
	if text, err := os.ReadFile(file); err != nil || len(text) == 0 {
		t.Errorf("the file behind the link holds %q (%v)", text, err)
	}
}
