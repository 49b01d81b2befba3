// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"
	"time"
)

// The slower the answers, the less often run asks, but people never wait long
// for news.
func TestLookAgain(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 500 * time.Millisecond, 10 * time.Millisecond: 500 * time.Millisecond, 100 * time.Millisecond: time.Second,
		2 * time.Second: 5 * time.Second, time.Minute: 5 * time.Second,
	} {
		if got := lookAgain(took); got != want {
			t.Errorf("after an answer that took %v: next after %v, want %v", took, got, want)
		}
	}
}
