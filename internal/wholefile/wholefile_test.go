// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{path, link} {
		if err := Write(to, []byte(to)); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != to {
			t.Errorf("after writing to %s the file holds %q (%v)", to, text, err)
		}
	}
	if is, err := os.Lstat(link); err != nil || is.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v (%v)", is.Mode(), err)
	}
	if is, err := os.ReadDir(dir); err != nil || len(is) != 2 {
		t.Errorf("the folder holds %v (%v), want the file and the link", is, err)
	}
	if Write(filepath.Join(dir, "no", "file"), nil) == nil {
		t.Error("a file in no folder was written")
	}
}

// Root writes into folders of other users: it must not follow links that they put beside the file.
func TestFollowsNothingBesideTheFile(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(other, []byte("theirs"), 0o600), os.Symlink(other, path+".new")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("ours")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "theirs" {
		t.Errorf("the file that a link beside ours points to holds %q (%v)", text, err)
	}
}

// A pipe represents everything that is not a regular file. Root's /dev/null was once
// replaced by a file.
func TestWriteToAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		f, err := os.Open(pipe)
		if err != nil {
			read <- err.Error()
			return
		}
		defer f.Close()
		text, _ := io.ReadAll(f)
		read <- string(text)
	}()
	if err := Write(pipe, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Lstat(pipe); err != nil || is.Mode()&os.ModeNamedPipe == 0 {
		t.Fatalf("the pipe is %v now (%v)", is.Mode(), err)
	}
	if got := <-read; got != "hello" {
		t.Errorf("the reader got %q", got)
	}
}
