// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// If a profile's file never answers, for example on a network file system that hangs, this
// delays neither the first message nor Reserve.
func TestProfileThatHangs(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ProfilePath = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(cfg.ProfilePath, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _, _, _ := onStage(1, cfg)
	c, end := fingerprints(t, p)
	got := next(t, c)
	if len(got) != 1 {
		t.Fatalf("got %d groups, want one", len(got))
	}
	if _, err := p.Reserve([]string{got[0].Devices[0].ID}); err != nil {
		t.Error(err)
	}
	end()
	pipe, err := os.OpenFile(cfg.ProfilePath, os.O_RDWR, 0) // ends the reading
	if err != nil {
		t.Fatal(err)
	}
	pipe.Close()
}

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
