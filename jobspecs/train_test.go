// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package jobspecs

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/guard"
)

func TestMain(m *testing.M) { os.Exit(guard.Main(m)) }

// train.py, as one process, loses no step: on SIGTERM it writes a checkpoint and exits with an error,
// and its next run continues with the next step. Its last loss is that of a run that nobody stopped.
// What goes wrong shows in its first seconds, with the file to look at. A signal ends a rank at once
// while it waits for the others, which may never come. TestTraining in e2e runs it with several ranks.
func TestTrainProgram(t *testing.T) {
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)").Run() != nil {
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
	if err := os.WriteFile(filepath.Join(dir, "broken"), []byte("PK\003\004half"), 0o644); err != nil {
		t.Fatal(err)
	}
	for checkpoint, c := range map[string]struct {
		says  string
		fails bool
	}{
		"missing/a.pt": {filepath.Join(dir, "missing", "a.pt"), true},
		"broken":       {"cannot read the checkpoint " + filepath.Join(dir, "broken"), true},
		"whole":        {"nothing to do: " + filepath.Join(dir, "whole"), false},
	} {
		out, err := train(checkpoint, "0").CombinedOutput()
		if (err != nil) != c.fails || !strings.Contains(string(out), c.says) || c.fails && strings.Contains(string(out), "step 1 of") {
			t.Errorf("%s: %v\n%s", checkpoint, err, out)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	waits := train("b.pt", "0")
	waits.Env = append(waits.Env, "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.Accept(); err != nil { // it has imported PyTorch
		t.Fatal(err)
	}
	_ = waits.Process.Signal(syscall.SIGTERM)
	defer time.AfterFunc(time.Minute, func() { _ = waits.Process.Kill() }).Stop()
	_ = waits.Wait() // the state is checked
	if state, _ := waits.ProcessState.Sys().(syscall.WaitStatus); state.Signal() != syscall.SIGTERM {
		t.Errorf("it ends with %v", waits.ProcessState)
	}
}
