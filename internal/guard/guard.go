// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package guard ends the processes that tests start, even if the tests are killed or time out, and
// so run no cleanup.
package guard

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// markName is the environment variable that marks all processes that descend from a test.
const markName = "NOMAD_PAL_TEST_RUN"

// script reads from a pipe that only the test can write to. The pipe closes when the test ends or
// is killed. Then the script waits a moment for processes that are ending, prints the remaining
// processes, and kills them. Go code instead of this shell script would need support in each
// package's TestMain.
const script = `
mark=$1
trap '' PIPE # a dead test does not listen
while read -r _; do :; done
ours() { grep -slzxF -e "$mark" /proc/[0-9]*/environ 2>/dev/null | sed 's|/proc/\([0-9]*\)/.*|\1|'; }
tries=0
while pids=$(ours); [ -n "$pids" ]; do
  if [ $((tries += 1)) = 20 ]; then
    for pid in $pids; do
      said=$(tr '\0' ' ' 2>/dev/null </proc/$pid/cmdline) && [ -n "$said" ] && echo "$pid $said"
    done
  fi
  [ $tries -ge 20 ] && kill -9 $pids 2>/dev/null
  [ $tries -ge 400 ] && break # what is left is stuck in the kernel
  sleep 0.1
done
exit 0
`

// Main runs the tests, and fails if processes that the tests started still run. These processes end
// with the test process.
func Main(m interface{ Run() int }) int {
	end, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		return 1
	}
	code := m.Run()
	left := end()
	if left != "" {
		fmt.Fprintf(os.Stderr, "the tests left processes behind, which were killed:\n%s", left)
		code = max(code, 1)
	}
	return code
}

// start starts the guard. end stops the guard and returns which processes were left.
func start() (end func() string, err error) {
	mark := fmt.Sprintf("%s=%d", markName, os.Getpid())
	sh, err := StartShell(script, "nomad-pal-test-guard", mark)
	if err != nil {
		return nil, fmt.Errorf("starting the shell that ends leftover processes: %w", err)
	}
	name, value, _ := strings.Cut(mark, "=")
	if err := os.Setenv(name, value); err != nil { // for child processes; /proc/PID/environ of this process does not change, so the script spares this process
		return nil, err
	}
	return func() string {
		_ = sh.End() // only the script's output matters, not its exit code
		return sh.Said()
	}, nil
}

// Shell runs a script that cleans up when its standard input closes: after a call of End, or when
// the process that started the script is killed or crashes.
type Shell struct {
	pipe io.Closer
	cmd  *exec.Cmd
	said bytes.Buffer
}

// StartShell starts a script with a name and arguments. The script must first read its
// standard input to the end.
func StartShell(script, name string, args ...string) (*Shell, error) {
	s := &Shell{cmd: exec.Command("/bin/sh", append([]string{"-c", script, name}, args...)...)}
	s.cmd.Dir, s.cmd.Stdout = "/", &s.said
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a session of its own, so that neither Ctrl-C nor a closed terminal reaches the script
	var err error
	if s.pipe, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	return s, err
}

// End makes the script clean up, and waits for the script. If somebody killed the script, End runs
// it again.
func (s *Shell) End() error {
	_ = s.pipe.Close()
	if s.cmd.Wait() == nil {
		return nil
	}
	again := exec.Command(s.cmd.Path, s.cmd.Args[1:]...)
	again.Dir, again.Env = s.cmd.Dir, s.cmd.Env
	again.Stdout = &s.said
	return again.Run()
}

// Said returns the script's output, once the script has ended.
func (s *Shell) Said() string { return s.said.String() }
