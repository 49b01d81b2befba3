// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package process

import (
	"os"
	"testing"
	"time"
)

func TestThisProcess(t *testing.T) {
	t.Parallel()
	before, err := Of(os.Getpid())
	if err != nil || before.RSSMB < 1 || before.RSSMB > 10_000 || before.Threads < 1 || before.Files < 3 {
		t.Fatalf("%+v, %v", before, err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		if after, err := Of(os.Getpid()); err != nil || after.Files > before.Files && after.CPU > before.CPU {
			if err != nil || after.CPU-before.CPU > time.Minute {
				t.Errorf("%+v, then %+v, %v", before, after, err)
			}
			return
		}
	}
	t.Errorf("one more open file and a minute of work do not show: %+v", before)
}

func TestNoProcess(t *testing.T) {
	t.Parallel()
	const none = 1 << 30
	if _, err := Of(none); err == nil {
		t.Error("measuring a process that does not exist succeeds")
	}
}
