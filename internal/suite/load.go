// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// beside runs a command next to a process with n threads that use all the CPU time they get. Linux
// first shares the CPU time between sessions (autogroup); a nice value counts only within its
// session. apart puts the process into its own session, because in the same session, the process
// would leave a command at nice 19 about 0.1 % of a CPU.
func beside(number string, apart bool, args []string) (int, error) {
	if _, err := strconv.Atoi(number); err != nil {
		return 2, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	busy := exec.Command(self, "burn", number)
	busy.SysProcAttr = &syscall.SysProcAttr{Setsid: apart}
	if err := busy.Start(); err != nil {
		return 1, fmt.Errorf("starting %s busy threads: %w", number, err)
	}
	defer func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	}()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return exitCode(cmd.Run())
}

// burn keeps n threads busy until the parent process has ended.
func burn(number string) (int, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return 2, err
	}
	runtime.GOMAXPROCS(n + 1) // and one thread more to look for the parent
	for range n {
		go func() {
			for began := time.Now(); time.Since(began) >= 0; {
			}
		}()
	}
	for parent := os.Getppid(); os.Getppid() == parent; {
		time.Sleep(100 * time.Millisecond)
	}
	return 0, nil
}
