// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// smallShell is the start of the command line of a session on the small
// clients.
func smallShell(job string, args ...string) []string {
	return append([]string{"shell", "-job", job, "-var", "cpu=10", "-var", "memory=32"}, args...)
}

// openTerminal makes a pseudoterminal of this size.
func openTerminal(t *testing.T, rows, columns uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	var n int
	control(t, master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	resize(t, master, rows, columns)
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return master, terminal
}

func resize(t *testing.T, master *os.File, rows, columns uint16) {
	t.Helper()
	control(t, master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// control runs an ioctl on a terminal, and keeps its file in a mode in which Close ends a
// Read.
func control(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	c, err := f.SyscallConn()
	if err == nil {
		var failed error
		err = c.Control(func(fd uintptr) { failed = do(int(fd)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// atTerminal starts one of our commands at a terminal, and returns the terminal and
// its output.
func (b *bed) atTerminal(args ...string) (*exec.Cmd, *os.File, *heard) {
	b.t.Helper()
	master, terminal := openTerminal(b.t, 33, 101)
	cmd := b.Command(context.Background(), "nomad-pal", args...)
	cmd.Env = append(cmd.Env, "NOMAD_PAL_ADDR="+b.placer.URL(), "TERM=vt100")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	terminal.Close()
	shown := &heard{}
	go func() { // ends when one end of the terminal is closed
		p := make([]byte, 4096)
		for {
			n, err := master.Read(p)
			_, _ = shown.Write(p[:n])
			if err != nil {
				return
			}
		}
	}()
	return cmd, master, shown
}

// typed types text at a terminal.
func typed(t *testing.T, master *os.File, text string) {
	t.Helper()
	if _, err := master.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// sessions lists the processes that still run for a job's allocations, including those of shell
// sessions.
func (b *bed) sessions(id string) string {
	b.t.Helper()
	stubs, _, err := b.API().Jobs().Allocations(id, true, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	for _, s := range stubs {
		all = append(all, sessionsOf(s.ID)...)
	}
	return strings.Join(all, "; ")
}

// untilRuns waits until one of these processes runs this command.
func (b *bed) untilRuns(id, command string) {
	b.t.Helper()
	b.until(command+" runs", func() string {
		if all := b.sessions(id); !strings.Contains(all, command) {
			return "it runs " + all
		}
		return ""
	})
}

// untilEnded waits until a job has stopped and none of these processes is left.
func (b *bed) untilEnded(id string) {
	b.t.Helper()
	b.until(id+" has ended", func() string {
		if left := b.sessions(id); left != "" {
			return "processes are left: " + left
		}
		job, _, err := b.API().Jobs().Info(id, nil)
		if err != nil {
			return err.Error()
		}
		if *job.Status != "dead" {
			return "it is " + *job.Status
		}
		return ""
	})
}

// sessionsOf are the processes that have an allocation's id in their
// environment.
func sessionsOf(alloc string) (all []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		environ, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && bytes.Contains(environ, []byte("NOMAD_ALLOC_ID="+alloc)) {
			command, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			all = append(all, e.Name()+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
		}
	}
	return all
}

// Without a terminal, a session reads standard input, keeps standard output and error apart, and
// returns the command's exit code. Its job ends with the session.
func testShellInScripts(t *testing.T, b *bed) {
	cmd := b.Command(t.Context(), "nomad-pal", smallShell("piped", "-gpus", "2", "-var", `meta={pal_class="A"}`, "-time", "1h", "--",
		"sh", "-c", `echo "on $NVIDIA_VISIBLE_DEVICES"; cat; echo bad >&2; exit 7`)...)
	cmd.Env = append(cmd.Env, "NOMAD_PAL_ADDR="+b.placer.URL())
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("from here\n"), &out, &said
	_ = cmd.Run() // the exit code is checked below
	same(t, "exit code", 7, cmd.ProcessState.ExitCode())
	same(t, "standard output", true, strings.HasPrefix(out.String(), "on GPU-") && strings.HasSuffix(out.String(), "\nfrom here\n"))
	same(t, "GPUs", 2, strings.Count(out.String(), "GPU-"))
	mentions(t, said.String(), `Job "piped" runs on node node-`, "\nbad\n")
	b.untilEnded("piped")
	meta := b.info("piped").Meta
	same(t, "hints", "A 3600s false false", strings.Join([]string{meta["pal_class"], meta["pal_duration"], meta["pal_preempt"], meta["pal_migrate"]}, " "))
	b.purge("piped")
}

// A session at a terminal gets a terminal of the same size. Keys reach the command, and the
// session returns its exit code.
func testShellAtTerminal(t *testing.T, b *bed) {
	cmd, master, shown := b.atTerminal(smallShell("terminal", "--", "sh")...)
	b.untilHeard(shown, `Job "terminal" runs on node node-`, "# ")
	typed(t, master, "stty size; echo =$TERM\r")
	b.untilHeard(shown, "33 101\r\n", "=vt100\r\n")
	resize(t, master, 44, 77)
	b.until("the session's terminal has the new size", func() string {
		typed(t, master, "stty size\r")
		if !strings.Contains(shown.String(), "44 77\r\n") {
			return "shown: " + shown.String()
		}
		return ""
	})
	typed(t, master, "sleep 1000\r")
	b.untilRuns("terminal", "sleep 1000")
	typed(t, master, "\x03")
	b.until("sleep is interrupted", func() string {
		if left := b.sessions("terminal"); strings.Contains(left, "sleep 1000") {
			return left
		}
		return ""
	})
	typed(t, master, "exit 9\r")
	_ = cmd.Wait()
	same(t, "exit code", 9, cmd.ProcessState.ExitCode())
	b.untilEnded("terminal")
	b.purge("terminal")
}

// A session ends when its terminal is closed, when its time is over, and when its job is stopped.
// None of its processes stays.
func testShellEnds(t *testing.T, b *bed) {
	cmd, master, shown := b.atTerminal(smallShell("closed", "--", "sh")...)
	b.untilHeard(shown, "# ")
	typed(t, master, "sleep 1000\r")
	b.untilRuns("closed", "sleep 1000")
	master.Close()
	_ = cmd.Wait()
	b.untilEnded("closed")

	_, code := b.pal(smallShell("limited", "-time", "8s", "--", "sh", "-c", "sleep 1000; true")...)
	same(t, "killed", true, code > 128)
	b.untilEnded("limited")

	cmd, master, shown = b.atTerminal(smallShell("stopped", "--", "sh")...)
	b.untilHeard(shown, "# ")
	typed(t, master, "sleep 1000\r")
	b.untilRuns("stopped", "sleep 1000")
	b.deregister("stopped", false)
	_ = cmd.Wait()
	same(t, "killed", true, cmd.ProcessState.ExitCode() > 128)
	b.untilEnded("stopped")
	b.purge("closed", "limited", "stopped")
}

// While a session waits, it shows its place in the queue. Ctrl-C removes it. A session that
// cannot start leaves no job behind.
func testShellWaits(t *testing.T, b *bed) {
	b.fill("full", 2)
	cmd, master, shown := b.atTerminal(smallShell("waits", "--", "sh")...)
	b.untilHeard(shown, "waiting: ", "number 1 in the")
	typed(t, master, "\x03")
	_ = cmd.Wait()
	same(t, "exit code", 130, cmd.ProcessState.ExitCode())
	b.untilHeard(shown, `Interrupted: job "waits" is stopped.`)
	b.untilEnded("waits")
	out, code := b.pal(smallShell("huge", "-gpus", "5", "--", "true")...)
	same(t, "exit code", 2, code)
	mentions(t, out, "can never start here as written")
	b.untilEnded("huge")
	b.purge("full", "waits", "huge")
}
