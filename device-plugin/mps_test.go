// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// program puts a control program with this body on PATH, and returns a pipe directory.
func mpsControl(t *testing.T, body string) (pipe string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, mpsProgram), []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return t.TempDir()
}

// The program gets the pipe directory and no other variable, such as the token of Nomad's client.
func TestProgramGetsNoEnvironment(t *testing.T) {
	out := filepath.Join(t.TempDir(), "env")
	pipe := mpsControl(t, fmt.Sprintf("cat /proc/$$/environ | tr '\\0' '\\n' > %s\n", out))
	t.Setenv("NOMAD_TOKEN", "secret")
	if err := daemonAnswers(t.Context(), pipe); err != nil {
		t.Fatal(err)
	}
	if env, _ := os.ReadFile(out); string(env) != envPipe+"="+pipe+"\n" {
		t.Errorf("it got %q", env)
	}
}

// Whatever a task puts into the pipe directory, the plugin does not open it: a FIFO would hang the
// plugin, and a link to an endless file would fill its memory.
func TestNothingInThePipeDirectoryIsOpened(t *testing.T) {
	pipe := mpsControl(t, "read -r command && [ \"$command\" = get_server_list ]\n")
	for _, name := range []string{"nvidia-cuda-mps-control.pid", "control", "log"} {
		if err := syscall.Mkfifo(filepath.Join(pipe, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(pipe, "servers")); err != nil {
		t.Fatal(err)
	}
	if err := daemonAnswers(t.Context(), pipe); err != nil {
		t.Error(err)
	}
}

func TestDaemonErrors(t *testing.T) {
	pipe := mpsControl(t, "echo Cannot find MPS control daemon process; exit 1\n")
	if err := daemonAnswers(t.Context(), pipe); err == nil || !strings.Contains(err.Error(), pipe+": exit status 1 Cannot find MPS control daemon process") {
		t.Errorf("no daemon: %v", err)
	}
	mpsControl(t, "head -c 100000000 /dev/zero | tr '\\0' x; exit 1\n")
	if err := daemonAnswers(t.Context(), pipe); err == nil || len(err.Error()) > 1000 {
		t.Errorf("endless output: an error of %d bytes", len(fmt.Sprint(err)))
	}
	t.Setenv("PATH", t.TempDir())
	if err := daemonAnswers(t.Context(), pipe); err == nil || !strings.Contains(err.Error(), mpsProgram) {
		t.Errorf("no program: %v", err)
	}
}
