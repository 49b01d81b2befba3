// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestTerminal: what users do at a terminal with running jobs.
func TestTerminal(t *testing.T) {
	t.Parallel()
	b := newBed(t, [][]float64{{1, 1, 1, 1}, {1, 1, 1, 1}}, cluster.Options{})
	b.tell([]scene{
		{"a session in a script", "", testShellInScripts},
		{"a session at a terminal", "", testShellAtTerminal},
	})
	b.tellLong([]scene{
		{"sessions end", "", testShellEnds},
		{"a session waits", "", testShellWaits},
	})
}

// heard is the output so far of a command that runs beside the test.
type heard struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

// untilHeard waits until a command has printed these words.
func (b *bed) untilHeard(h *heard, words ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q is printed", words), func() string {
		text := h.String()
		if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			return "printed so far: " + text
		}
		return ""
	})
}
