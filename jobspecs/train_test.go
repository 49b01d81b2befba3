// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package jobspecs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/guard"
)

func TestMain(m *testing.M) { os.Exit(guard.Main(m)) }

// train.py, as one process, loses no step: on SIGTERM it writes a checkpoint and exits with an error,
// and its next run continues with the next step. Its last loss is that of a run that nobody stopped.
// TestTraining in e2e runs it with several ranks.
func TestTrainProgram(t *testing.T) {
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import torch").Run() != nil {
		t.Skip("needs Debian's python3-torch: apt-get install python3-torch")
	}
	dir := t.TempDir()
	train := func(checkpoint, pause string) *exec.Cmd {
		cmd := exec.Command(python, "train.py")
		cmd.Env = append(os.Environ(), "CHECKPOINT="+filepath.Join(dir, checkpoint), "BACKEND=gloo", "STEPS=60", "STEP_SECONDS="+pause)
		return cmd
	}
	cmd := train("stopped", "0.1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last string
	for lines := bufio.NewScanner(out); lines.Scan(); last = lines.Text() {
		if strings.HasPrefix(lines.Text(), "step 5 ") {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	_ = cmd.Wait() // the exit code is checked
	after, wrote := strings.CutPrefix(last, "checkpoint after step ")
	if code := cmd.ProcessState.ExitCode(); code != 143 || !wrote {
		t.Fatalf("stopped, it ends with %d after %q", code, last)
	}
	text, err := train("stopped", "0").CombinedOutput()
	step, _ := strconv.Atoi(after)
	if err != nil || !strings.HasPrefix(string(text), fmt.Sprintf("1 ranks, gloo: runs from step %d of 60\n", step+1)) {
		t.Fatalf("the second run, after step %s: %v\n%s", after, err, text)
	}
	whole, err := train("whole", "0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, whole)
	}
	end := func(text []byte) string { return string(text)[strings.LastIndex(string(text), "step 60 of"):] }
	if end(text) != end(whole) {
		t.Errorf("stopped: %q, not stopped: %q", end(text), end(whole))
	}
}
