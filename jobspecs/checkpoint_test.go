// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package jobspecs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/guard"
)

func TestMain(m *testing.M) { os.Exit(guard.Main(m)) }

// The program of checkpoint.nomad.hcl, here without PyTorch, loses no step: on SIGTERM it writes a
// checkpoint and exits with an error, and its next run continues with the next step.
func TestCheckpointProgram(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not there")
	}
	dir := t.TempDir()
	env := append(os.Environ(), "CHECKPOINT="+filepath.Join(dir, "c"), "NOMAD_ALLOC_DIR="+dir)
	next := 1
	for range 3 {
		cmd := exec.Command(python, "checkpoint.py")
		cmd.Env = env
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		if want := fmt.Sprintf("runs from step %d", next); lines.Text() != want {
			t.Errorf("it says %q, want %q", lines.Text(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if after, ok := strings.CutPrefix(lines.Text(), "stopped after step "); ok {
				if _, err := fmt.Sscan(after, &next); err != nil {
					t.Fatal(err)
				}
				next++
			}
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 143 {
			t.Errorf("it ends with %d", code)
		}
	}
	cmd := exec.Command(python, "checkpoint.py")
	cmd.Env = append(env, fmt.Sprint("STEPS=", next+5))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Errorf("the last run: %v\n%s", err, out)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "pal-progress")); err != nil || string(got) != fmt.Sprintf("%d/%d\n", next, next+5) {
		t.Errorf("it reports %q, %v; the first step of that run is %d", got, err, next)
	}
}
