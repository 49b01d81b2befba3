// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// Ctrl-C ends a simulation, here one that waits for its trace.
func TestSimulateInterrupted(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.csv")
	if err := syscall.Mkfifo(trace, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"simulate", "-trace", trace}, streams{strings.NewReader(""), &out, &errs, false})
	}()
	stop()
	select {
	case got := <-code:
		if got != exitInterrupted {
			t.Errorf("exit code %d", got)
		}
	case <-patience.Over(t):
		t.Error("simulate goes on")
	}
	if f, err := os.OpenFile(trace, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // what still reads the trace ends
		f.Close()
	}
}
