// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// A configuration with more windows than the queue supports is refused. Otherwise the last windows
// would have no effect.
func TestTooManyWindows(t *testing.T) {
	c := DefaultConfig()
	for n := range queue.MaxWindows + 1 {
		if err := c.Validate(); err != nil {
			t.Fatalf("%d windows: %v", n, err)
		}
		c.Windows = append(c.Windows, window.Window{Name: fmt.Sprint("w", n), Start: time.Now().Add(time.Hour), Duration: time.Hour, Nodes: []string{fmt.Sprint("n", n)}})
	}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "65 windows, but at most 64 are allowed") {
		t.Errorf("%d windows: %v", len(c.Windows), err)
	}
}
