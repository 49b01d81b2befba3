// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package patience

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		err := Until(t.Context(), 20*time.Second, "it is there", func(context.Context) (string, error) { polls++; return "it is away", nil })
		if err == nil || !strings.HasSuffix(err.Error(), "waiting until it is there: the wait has lasted 20s; last: it is away") {
			t.Error(err)
		}
		if polls < 50 || polls > 200 {
			t.Errorf("%d polls in 20 s", polls)
		}
		broken := errors.New("broken")
		if err := Until(t.Context(), Long, "x", func(context.Context) (string, error) { return "", broken }); err == nil || errors.Is(err, broken) {
			t.Errorf("an error ended the wait: %v", err)
		}
		if err := Until(t.Context(), Long, "x", func(context.Context) (string, error) { return "", Fatal(broken) }); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}

// On a starved machine, a stopwatch counts less time.
func TestStarved(t *testing.T) {
	idle, busy := machine{counted: true}, machine{counted: true, waited: 750 * time.Millisecond}
	if got := starved(idle, busy, time.Second); got != 0.75 {
		t.Errorf("%v, want 0.75", got)
	}
	if got := starved(machine{}, machine{runnable: 8, running: 2}, time.Second); got != 0.75 {
		t.Errorf("by the number of processes: %v, want 0.75", got)
	}
}
