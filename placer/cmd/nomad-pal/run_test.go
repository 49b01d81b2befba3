// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"
	"time"
)

// Slow answers are asked for less often, but people never wait long for news.
func TestLookAgain(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 500 * time.Millisecond, 10 * time.Millisecond: 500 * time.Millisecond, 100 * time.Millisecond: time.Second,
		2 * time.Second: 5 * time.Second, time.Minute: 5 * time.Second,
	} {
		if got := lookAgain(took); got != want {
			t.Errorf("after a look of %v: %v, want %v", took, got, want)
		}
	}
}
