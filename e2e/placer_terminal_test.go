// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	hooks := &heard{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(hooks, r.Body)
		_, _ = io.WriteString(hooks, "\n")
	}))
	t.Cleanup(receiver.Close)
	b.tell([]scene{
		{"webhooks", fmt.Sprintf("notify \"test\" {\n  url = %q\n  body = \"{{ .Kind }} {{ .Job }}{{ .GPUs }}\"\n  headers = { Content-Type = \"text/plain\" }\n}\n", receiver.URL),
			func(t *testing.T, b *bed) { testNotify(t, b, hooks) }},
		{"a session in a script", "", testShellInScripts},
		{"a session at a terminal", "", testShellAtTerminal},
	})
	b.tellLong([]scene{
		{"sessions end", "", testShellEnds},
		{"a session waits", "", testShellWaits},
	})
}

// The agent notifies a receiver when a job starts and ends, and when a GPU becomes unhealthy
// and healthy again.
func testNotify(t *testing.T, b *bed, hooks *heard) {
	j := gang("told", 2, 1)
	j.script = "exit 0"
	b.run(j.hcl())
	b.untilHeard(hooks, "started told[]\n", "ended told[]\n")
	b.inventory(1, []float64{1, 1, 1, 1}, map[int]bool{2: true})
	b.untilHeard(hooks, "unhealthy ["+gpu(1, 2)+"]\n")
	b.inventory(1, []float64{1, 1, 1, 1}, nil)
	b.untilHeard(hooks, "healthy ["+gpu(1, 2)+"]\n")
	b.purge("told")
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
