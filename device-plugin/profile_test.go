// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"os"
	"path/filepath"
	"testing"
)

// A file that cannot be read is tried again. A file that is no profile is read once, until it changes.
func TestBadProfileIsReadOnce(t *testing.T) {
	f := profileFile{path: t.TempDir()}
	for range 2 {
		if _, err := f.look(); err == nil {
			t.Error("a directory is a profile")
		}
	}
	f.path = filepath.Join(f.path, "profile.json")
	if err := os.WriteFile(f.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.look(); err == nil {
		t.Error("want an error")
	}
	if p, err := f.look(); p != nil || err != nil {
		t.Errorf("got %v, %v, want nothing", p, err)
	}
}
