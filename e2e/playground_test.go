// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// TestPlayground types the commands that `make playground` prints, and checks that
// Ctrl-C leaves nothing behind.
func TestPlayground(t *testing.T) {
	t.Parallel()
	bin, temp := os.Getenv("E2E_BIN"), t.TempDir()
	if bin == "" {
		t.Skip("E2E_BIN names no folder with the binaries: run make e2e")
	}
	nomad, err := cluster.FindNomad()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "playground"), "-nomad", nomad, "-bin", bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var typed []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		if what, ok := strings.CutPrefix(line, "  "); ok && regexp.MustCompile(`^(export|cd|nomad-pal) `).MatchString(what) {
			typed = append(typed, what)
		}
		if strings.HasPrefix(line, "Ctrl-C") {
			break
		}
	}
	if len(typed) < 10 {
		t.Fatalf("make playground says to type %q", typed)
	}
	var script strings.Builder
	for _, what := range typed {
		code := "0"
		switch {
		case strings.Contains(what, "plan train"):
			code = "1" // the job would start now
		case strings.Contains(what, "plan never"):
			code = "2"
		}
		script.WriteString("echo '$ " + what + "'\n" + what + "\n[ $? = " + code + " ] || { echo it ended with another code than " + code + "; exit 1; }\nsleep 1\n")
	}
	sh := exec.CommandContext(t.Context(), "/bin/bash", "-c", script.String())
	said, err := sh.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	mentions(t, string(said), "would start now", "can never start here as written", "registered, waiting for nomad-pal", "needs 16 GPUs")
	// Whether the failing gang waits for another try at this moment is random.
	if !regexp.MustCompile(`1 job waits for 16 GPUs|2 jobs wait for 18 GPUs`).Match(said) {
		t.Errorf("the queue does not say how many wait:\n%s", said)
	}
	if strings.Contains(string(said), "did not take") {
		t.Errorf("%s", said)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	patient, ended := patience.Context(t.Context(), patience.Long)
	defer context.AfterFunc(patient, func() { _ = cmd.Process.Kill() })()
	defer ended()
	for lines.Scan() {
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("make playground ended with exit code %d", code)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
