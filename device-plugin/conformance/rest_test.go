// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

var restFlag = flag.Duration("rest", 10*time.Second, "how long to count a plugin's wakeups at rest")

// mostWakeups is the maximum per second: twice as many as nomad-device-nvidia has.
const mostWakeups = 62

// A plugin on an idle node lets the processor sleep, also if the driver takes its time for each call,
// and although Nomad's client reads the statistics every second.
func TestWakeupsAtRest(t *testing.T) {
	for _, gpus := range []int{1, 8} {
		for _, us := range []int{0, 50} {
			t.Run(fmt.Sprintf("%d GPUs, %d µs a call", gpus, us), func(t *testing.T) {
				state := nvmltest.H200(gpus)
				state.Own()
				state.Set("sys", "call_us", fmt.Sprint(us))
				w := start(t, state, "")
				w.fingerprint().until("all GPUs", listed(gpus))
				stats, err := w.Device.Stats(t.Context(), time.Second)
				if err != nil {
					t.Fatal(err)
				}
				<-stats
				before, begun := wakeups(t, w.PID()), time.Now()
				for time.Since(begun) < *restFlag {
					if m, open := <-stats; !open || m.Error != nil {
						t.Fatal("the statistics ended")
					}
				}
				n := float64(wakeups(t, w.PID())-before) / time.Since(begun).Seconds()
				t.Logf("%.0f wakeups a second", n)
				if n > mostWakeups && isOurs && !raceDetector && os.Geteuid() == 0 { // others may not set a thread's timer slack
					t.Errorf("%.0f wakeups a second, want at most %d", n, mostWakeups)
				}
			})
		}
	}
}

var voluntary = regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s*(\d+)$`)

// wakeups returns how often the threads of a process have gone to sleep, so how often they were woken.
func wakeups(t *testing.T, pid int) (sum int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, path := range threads {
		data, _ := os.ReadFile(path) // the thread may have ended
		if m := voluntary.FindSubmatch(data); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			sum += n
		}
	}
	return sum
}
