// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// TestOneDefault: without flags, the simulator uses the same default queue as the agent, whether
// jobs may be stopped or not.
func TestOneDefault(t *testing.T) {
	for _, args := range [][]string{nil, {"-preempt"}} {
		o, err := Command{}.parse(args, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(queue.Default(), o.rules.Queue, cmpopts.IgnoreFields(pal.Policy{}, "Sample", "Name")); d != "" {
			t.Errorf("%v (-default +simulated):\n%s", args, d)
		}
	}
}
