// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package process reads what processes use from /proc.
package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what one process uses at a moment.
type Usage struct {
	RSSMB   float64 `json:"rss_mb"`
	Threads int     `json:"threads"`
	Files   int     `json:"open_files"`
}

// Of reads /proc/PID.
func Of(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("measure process %d: %w", pid, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("measure process %d: %w", pid, err)
	}
	return parseStatus(string(status), len(files)), nil
}

// parseStatus reads the text of /proc/PID/status; VmRSS is in KiB.
func parseStatus(status string, files int) Usage {
	p := Usage{Files: files}
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

// Wakeups is how often the threads that a process has now have begun to wait, and
// with that how often they were woken.
func Wakeups(pid int) (int64, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, path := range tasks {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(status)) {
			if count, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
				if err != nil {
					return 0, fmt.Errorf("read %q: %w", path, err)
				}
				sum += n
			}
		}
	}
	if len(tasks) == 0 {
		return 0, fmt.Errorf("measure process %d: it has no threads", pid)
	}
	return sum, nil
}

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// CPU is the processor time that a process has taken, from /proc/PID/stat.
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("measure process %d: %w", pid, err)
	}
	return parseStat(string(text))
}

// parseStat reads user and system time, the 12th and 13th field behind the name
// of the program, which may hold anything.
func parseStat(stat string) (time.Duration, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("read %q: no processor time", stat)
	}
	var sum time.Duration
	for _, text := range f[11:13] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %q: %w", stat, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
