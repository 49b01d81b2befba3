// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// TestHeartbeatTimeout: a stream that sends nothing ends. A stream whose events are handled slowly
// does not.
func TestHeartbeatTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := &Stream{body: r, cancel: func() {}}
		ended := make(chan error)
		batches := 0
		go func() {
			ended <- s.Run(func([]cluster.Event) error {
				batches++
				time.Sleep(3 * heartbeat)
				return nil
			})
		}()
		for range 2 {
			fmt.Fprintln(w, `{"Index": 1, "Events": [{"Topic": "Job"}]}`)
		}
		began := time.Now()
		if err := <-ended; !errors.Is(err, ErrHeartbeatTimeout) {
			t.Errorf("ended with %v, want %v", err, ErrHeartbeatTimeout)
		}
		if took := time.Since(began); batches != 2 || took < 4*heartbeat {
			t.Errorf("ended after %d batches and %v", batches, took)
		}
	})
}

// Nomad refuses a stream by sending nothing on it, not even a heartbeat. The error names the
// permission that the token may lack.
func TestSilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []bool{false, true} {
			r, w := io.Pipe()
			s := &Stream{body: r, cancel: func() {}}
			if ends {
				w.Close()
			}
			err := s.Run(func([]cluster.Event) error { return nil })
			if err == nil || !strings.Contains(err.Error(), string(Events)) {
				t.Errorf("a silent stream, ended by Nomad %v: %v", ends, err)
			}
		}
	})
}
