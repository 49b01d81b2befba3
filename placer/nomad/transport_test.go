// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// TestTransport sends requests over TCP and over a Unix socket, both without compression.
func TestTransport(t *testing.T) {
	var asked []string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Accept-Encoding"))
		_, _ = w.Write([]byte("[]"))
	})
	tcp := httptest.NewServer(h)
	defer tcp.Close()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	unix := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	unix.Start()
	defer unix.Close()
	for _, address := range []string{tcp.URL, "unix://" + path} {
		c, err := NewClient(&api.Config{Address: address}, "")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, err := c.API().Nodes().List(nil); err != nil {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
	if len(asked) != 4 {
		t.Fatalf("got %d requests, want 4", len(asked))
	}
	for _, e := range asked {
		if e != "" {
			t.Errorf("requested compression %q", e)
		}
	}
}
