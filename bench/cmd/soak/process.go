// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// process is what one process uses at a moment.
type process struct {
	RSSMB   float64 `json:"rss_mb"`
	Threads int     `json:"threads"`
	Files   int     `json:"open_files"`
}

// measure reads /proc/PID.
func measure(pid int) (process, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return process{}, fmt.Errorf("measure process %d: %w", pid, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return process{}, fmt.Errorf("measure process %d: %w", pid, err)
	}
	return parseStatus(string(status), len(files)), nil
}

// parseStatus reads the text of /proc/PID/status; VmRSS is in KiB.
func parseStatus(status string, files int) process {
	p := process{Files: files}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) == 0 {
			continue
		}
		switch n, _ := strconv.ParseFloat(f[0], 64); name {
		case "VmRSS":
			p.RSSMB = n * 1024 / 1e6
		case "Threads":
			p.Threads = int(n)
		}
	}
	return p
}
