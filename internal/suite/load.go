// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// beside runs a command beside n processes that use all the CPU time they get.
func beside(number string, args []string) (int, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return 2, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	for range n {
		busy := exec.Command(self, "burn")
		if err := busy.Start(); err != nil {
			return 1, fmt.Errorf("start a busy process: %w", err)
		}
		defer func() {
			_ = busy.Process.Kill()
			_ = busy.Wait()
		}()
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return exitCode(cmd.Run())
}

// burn uses all the CPU time it gets until its parent has ended.
func burn(parent int) {
	for os.Getppid() == parent {
		for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
		}
	}
}
