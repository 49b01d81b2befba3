// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package guard

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

const actVariable = "GUARD_TEST_ACT"

// TestMain also acts as tests that start a process and end in different ways.
func TestMain(m *testing.M) {
	act := os.Getenv(actVariable)
	if act == "" {
		os.Exit(m.Run())
	}
	os.Exit(Main(act1(act)))
}

type act1 string

func (how act1) Run() int {
	cmd := exec.Command("sleep", "86397")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	switch how {
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "panics":
		panic("as go test's -timeout does")
	case "cleans":
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return 0
}

// However a test ends, its processes end, too. A test that passes but leaves processes fails.
func TestNothingOutlivesATest(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string]struct {
		code int
		says string
	}{
		"killed": {-1, ""}, "panics": {2, "as go test's"}, "leaves": {1, "left processes behind, which were killed:\n"}, "cleans": {0, ""},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), actVariable+"="+how)
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the test checks its exit code
			if got := cmd.ProcessState.ExitCode(); got != want.code || !strings.Contains(said.String(), want.says) {
				t.Errorf("exit code %d: %s", got, said.String())
			}
			pid := strings.TrimSpace(line)
			patience.Eventually(t, "the process ends", func() bool {
				state, err := os.ReadFile("/proc/" + pid + "/stat")
				return err != nil || strings.Contains(string(state), ") Z ") // it may be a zombie that nobody has waited for
			})
		})
	}
}
