// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// postgres is the address of an empty database of a real PostgreSQL that the test starts, below a
// socket of its own. Without the server's programs (Debian: postgresql) the test is skipped.
func postgres(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 && os.Getenv("POSTGRES_REQUIRED") == "" {
		t.Skip("needs PostgreSQL's server: apt-get install postgresql")
	}
	bin := filepath.Dir(slices.Max(found))
	dir, err := os.MkdirTemp("", "pg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	as := func(name string, args ...string) *exec.Cmd {
		if os.Getuid() != 0 {
			return exec.Command(name, args...)
		}
		return exec.Command("setpriv", slices.Concat([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", name}, args)...)
	}
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil {
			t.Skipf("there is no user postgres: %s", out)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := as(filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := as(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	var said output
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
	})
	said.waitFor(t, "ready to accept connections")
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s", dir)
}

// output is what a process says.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return o.text.Write(b)
}

func (o *output) waitFor(t *testing.T, text string) {
	t.Helper()
	for {
		o.mu.Lock()
		if bytes.Contains(o.text.Bytes(), []byte(text)) {
			o.mu.Unlock()
			return
		}
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed, is := o.changed, o.text.String()
		o.mu.Unlock()
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("PostgreSQL says:\n%s", is)
		}
	}
}
