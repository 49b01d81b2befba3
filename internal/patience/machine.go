// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package patience

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"time"
)

// machine is a reading of the machine's load. waited is the time since boot in which some process
// waited for a CPU; counted is false if the kernel does not count this time. runnable is the number
// of processes that are ready to run, and running the number that can run at once.
type machine struct {
	waited            time.Duration
	counted           bool
	runnable, running int
}

var pressure = regexp.MustCompile(`(?m)^some .*total=([0-9]+)`)

func readMachine() machine {
	m := machine{running: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		total := pressure.FindSubmatch(text)
		if total != nil {
			us, err := strconv.ParseInt(string(total[1]), 10, 64)
			m.waited, m.counted = time.Duration(us)*time.Microsecond, err == nil
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		var a, b, c float64
		_, _ = fmt.Sscanf(string(text), "%g %g %g %d/", &a, &b, &c, &m.runnable) // 0 if unreadable
	}
	return m
}

// starved returns the share of the time between two readings in which processes waited for a CPU.
func starved(before, after machine, passed time.Duration) float64 {
	if before.counted && after.counted {
		return min(1, max(0, float64(after.waited-before.waited)/float64(max(passed, 1))))
	}
	if after.runnable > after.running {
		return 1 - float64(after.running)/float64(after.runnable)
	}
	return 0
}

// Starved returns a function that returns the share of the time since the call of Starved in which
// some process waited for a CPU.
func Starved() func() float64 {
	began, before := time.Now(), readMachine()
	return func() float64 { return starved(before, readMachine(), time.Since(began)) }
}

// Stopwatch starts a stopwatch. The returned function estimates how much time would have passed on
// an idle machine. Tests compare this estimate with their time limits, so that they do not fail on
// a busy machine.
func Stopwatch() func() time.Duration {
	began, busy := time.Now(), Starved()
	return func() time.Duration {
		return time.Duration(float64(time.Since(began)) * max(slowest, 1-busy()))
	}
}
