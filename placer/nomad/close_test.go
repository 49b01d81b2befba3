// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Closing a client closes its connections, although the transport is wrapped. An agent that kept a
// connection for each request that it answered ran out of files.
func TestCloseClosesConnections(t *testing.T) {
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`"here"`)) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	c, err := NewClient(&api.Config{Address: server.URL}, "", NamesRegions("test"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.API().Status().Leader(); err != nil {
		t.Fatal(err)
	}
	c.API().Close()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the connection stays open")
	}
}
