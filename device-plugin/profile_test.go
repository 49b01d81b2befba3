// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// A profile that is not a regular file of limited size (a named pipe, a directory, a file
// without end) delays nothing and is reported.
func TestProfileThatIsNoProfile(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<30); err != nil { // a sparse file
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ReadProfile(large); err == nil {
		t.Error("a file of 1 GiB is a profile")
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d bytes of memory went into refusing a file", after.TotalAlloc-before.TotalAlloc)
	}
	for path, want := range map[string]string{
		pipe: "not a regular file", dir: "not a regular file", large: "larger than 32 MiB", filepath.Join(dir, "none"): "no such file",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := DefaultConfig()
				cfg.ProfilePath = path
				p, _, log, _ := onStage(2, cfg)
				c, end := fingerprints(t, p)
				if got := next(t, c); len(got) != 1 || len(got[0].Devices) != 2 {
					t.Errorf("got %d groups, want both GPUs", len(got))
				}
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not say %q:\n%s", want, log)
				}
				end()
			})
		})
	}
}

// If a profile's file never answers, for example on a network file system that hangs, this
// delays neither the first message nor Reserve.
func TestProfileThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _, _ := onStage(1, DefaultConfig())
		p.cfg.ProfilePath = "/"
		hang := make(chan struct{})
		p.readProfile = func(string) (*profile.Profile, error) { <-hang; return nil, errors.New("too late") }
		c, end := fingerprints(t, p)
		got := next(t, c)
		if len(got) != 1 {
			t.Fatalf("got %d groups, want one", len(got))
		}
		if _, err := p.Reserve([]string{got[0].Devices[0].ID}); err != nil {
			t.Error(err)
		}
		end()
		close(hang)
	})
}

// A profile that could not be read is read when it can be, though its time and size are the same,
// as after a chmod.
func TestProfileThatBecomesReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	denied := true
	f := profileFile{path: path, read: func(string) (*profile.Profile, error) {
		if denied {
			return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrPermission}
		}
		return &profile.Profile{Version: 1}, nil
	}}
	for range 2 {
		if p, err := f.look(); p != nil || !errors.Is(err, os.ErrPermission) {
			t.Fatalf("got %v, %v, want permission denied", p, err)
		}
	}
	denied = false
	if p, err := f.look(); err != nil || p == nil {
		t.Errorf("got %v, %v, want the profile", p, err)
	}
	if p, err := f.look(); err != nil || p != nil {
		t.Errorf("unchanged: got %v, %v, want nothing", p, err)
	}
}

// A file that is no profile is read once, until it changes.
func TestBadProfileIsReadOnce(t *testing.T) {
	path, reads := filepath.Join(t.TempDir(), "profile.json"), 0
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := profileFile{path: path, read: func(path string) (*profile.Profile, error) { reads++; return ReadProfile(path) }}
	if _, err := f.look(); err == nil {
		t.Error("want an error")
	}
	if p, err := f.look(); p != nil || err != nil || reads != 1 {
		t.Errorf("got %v, %v after %d reads, want nothing after 1", p, err, reads)
	}
}
