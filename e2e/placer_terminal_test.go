// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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
		{"logs of all ranks", "", testLogs},
		{"a session in a script", "", testShellInScripts},
		{"a session at a terminal", "", testShellAtTerminal},
	})
	b.tellLong([]scene{
		{"logs of members that end", "", testLogsOfTries},
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

// nodesOf are the nodes of the job's members, by rank.
func (b *bed) nodesOf(id string) map[int]string {
	b.t.Helper()
	stubs, _, err := b.API().Jobs().Allocations(id, false, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	nodes := map[int]string{}
	for _, s := range stubs {
		var rank int
		if _, err := fmt.Sscanf(strings.TrimPrefix(s.Name, id+"."+s.TaskGroup), "[%d]", &rank); err != nil {
			b.t.Fatalf("%s: %v", s.Name, err)
		}
		nodes[rank] = s.NodeName
	}
	return nodes
}

// The logs of all ranks are labelled. -n, -rank and -stderr select from them; -f follows them.
func testLogs(t *testing.T, b *bed) {
	j := gang("talk", 3, 1)
	j.script = `for i in $(seq 1 30); do echo rank $NOMAD_ALLOC_INDEX line $i; done; echo bad $NOMAD_ALLOC_INDEX >&2; ` +
		`until [ -e go ]; do sleep 0.1; done; printf 'more\nthe end'; sleep 3600`
	j.script = strings.ReplaceAll(j.script, "go ]", b.dir+"/go ]")
	b.runs(j, 3)
	b.until("all lines are there", func() string {
		out, code := b.pal("logs", "talk")
		if code != 0 || strings.Count(out, " line 30\n") != 3 {
			return fmt.Sprintf("exit code %d: %s", code, out)
		}
		return ""
	})
	out, _ := b.pal("logs", "-n", "2", "talk")
	var want strings.Builder
	nodes := b.nodesOf("talk")
	for rank := range 3 {
		fmt.Fprintf(&want, "workers[%d] %s | rank %d line 29\nworkers[%d] %s | rank %d line 30\n", rank, nodes[rank], rank, rank, nodes[rank], rank)
	}
	same(t, "the last two lines of each", want.String(), out)
	out, _ = b.pal("logs", "-stderr", "-rank", "1", "talk")
	same(t, "errors of rank 1", fmt.Sprintf("workers[1] %s | bad 1\n", nodes[1]), out)
	out, code := b.pal("logs", "-rank", "3", "talk")
	mentions(t, out, `job "talk" has no member 3; its members: workers[0], workers[1], workers[2]`)
	same(t, "exit code", 1, code)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	follows, printed, said := b.Command(ctx, "nomad-pal", "logs", "-f", "-n", "1", "talk"), &heard{}, &heard{}
	follows.Stdout, follows.Stderr = printed, said
	if err := follows.Start(); err != nil {
		t.Fatal(err)
	}
	b.untilHeard(printed, "rank 0 line 30\n", "rank 1 line 30\n", "rank 2 line 30\n")
	same(t, "lines before", 3, strings.Count(printed.String(), "\n"))
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.untilHeard(printed, "workers[0] "+nodes[0]+" | more\n", "workers[1] "+nodes[1]+" | more\n", "workers[2] "+nodes[2]+" | more\n")
	b.deregister("talk", false)
	if err := follows.Wait(); err != nil {
		t.Errorf("it ends with the job: %v", err)
	}
	same(t, "last lines without an end", 3, strings.Count(printed.String(), "| the end\n"))
	for rank := range 3 {
		who := fmt.Sprintf("workers[%d] %s", rank, nodes[rank])
		mentions(t, said.String(), who+": was stopped: ")
	}
	b.purge("talk")
}

// Members of a gang that is tried again are followed from one try to the next. Ctrl-C ends the
// command, not the job.
func testLogsOfTries(t *testing.T, b *bed) {
	j := gang("tries", 2, 1)
	j.script = `echo try of $NOMAD_ALLOC_INDEX; if [ $NOMAD_ALLOC_INDEX = 1 ] && mkdir ` + b.dir + `/tried; then exit 7; fi; sleep 3600`
	j.groups[0].extra = "restart {\n attempts = 0\n mode = \"fail\"\n}\n"
	b.run(j.hcl())
	follows, printed, said := b.Command(context.Background(), "nomad-pal", "logs", "-f", "tries"), &heard{}, &heard{}
	follows.Stdout, follows.Stderr = printed, said
	if err := follows.Start(); err != nil {
		t.Fatal(err)
	}
	b.untilHeard(said, ": failed: Exit Code: 7", "workers[1] node-")
	b.until("the second try is followed", func() string {
		if n := strings.Count(printed.String(), "try of 1\n"); n != 2 {
			return "printed so far: " + printed.String() + said.String()
		}
		return ""
	})
	if err := follows.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := follows.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	b.untilGPUs("tries", 2)
	b.purge("tries")
}
