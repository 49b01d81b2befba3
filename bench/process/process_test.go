// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package process

import (
	"os"
	"testing"
	"time"
)

func TestParseStatus(t *testing.T) {
	t.Parallel()
	got := parseStatus("Name:\tx y\nVmRSS:\t    1000 kB\nVmSwap:\t 5 kB\nThreads:\t7\nGroups:\t\n", 3)
	if want := (Usage{RSSMB: 1.024, Threads: 7, Files: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if self, err := Of(os.Getpid()); err != nil || self.RSSMB < 1 || self.Threads < 1 || self.Files < 3 {
		t.Errorf("this process: %+v, %v", self, err)
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	got, err := parseStat("7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 12 34 0 0 20 0 1 0 1")
	if want := 460 * time.Millisecond; got != want || err != nil {
		t.Errorf("%v (%v), want %v", got, err, want)
	}
	for _, bad := range []string{"", "7 (x) S 1 2", "7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 a 34 0"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q is understood as %v", bad, got)
		}
	}
	if self, err := CPU(os.Getpid()); err != nil || self < 0 {
		t.Errorf("this process: %v, %v", self, err)
	}
}
