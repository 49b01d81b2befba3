// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
)

// If the configuration sets no address to publish, the agent publishes the one on which the API
// listens.
func TestPublishedAddress(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	local, other := issue(t, "localhost"), issue(t, "pal.example")
	for _, c := range []struct {
		h    *HTTP
		at   string
		want string
	}{
		{&HTTP{}, "127.0.0.1", "http://127.0.0.1:8090"},
		{&HTTP{}, "::1", "http://[::1]:8090"},
		{&HTTP{}, "192.0.2.1", "http://192.0.2.1:8090"},
		{&HTTP{CertFile: "c"}, "2001:db8::1", "https://[2001:db8::1]:8090"},
		{&HTTP{}, "0.0.0.0", "http://" + host + ":8090"},
		{&HTTP{CertFile: local.cert, KeyFile: local.key}, "127.0.0.1", "https://localhost:8090"},
		{&HTTP{CertFile: other.cert, KeyFile: other.key}, "127.0.0.1", "https://127.0.0.1:8090"},
		{&HTTP{Advertise: "https://pal.example.com/"}, "127.0.0.1", "https://pal.example.com"},
	} {
		if got := c.h.published(&net.TCPAddr{IP: net.ParseIP(c.at), Port: 8090}); got != c.want {
			t.Errorf("%+v at %s: %q, want %q", c.h, c.at, got, c.want)
		}
	}
	for text, ok := range map[string]bool{"https://pal.example.com": true, "http://10.0.0.1:1": true, "pal:8090": false, "ftp://x": false, "https://": false} {
		if err := checkAdvertise(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// If another program uses the default port, the agent runs without its API, reports what to set,
// and listens once that is set. If another program uses the configured port, that is an error.
func TestDefaultPortIsTaken(t *testing.T) {
	if other, err := net.Listen("tcp", (&HTTP{}).address()); err == nil { // otherwise another program already uses it
		defer other.Close()
	}
	var log testlog.Buffer
	a := New(hclog.New(&hclog.LoggerOptions{Output: &log}), placer.Hooks{})
	file := fileAt("http://127.0.0.1:1")
	if l, err := a.listen(file); l != nil || err != nil || !strings.Contains(log.String(), "set http { bind_port }") {
		t.Fatalf("%v, %v: %s", l, err, log.String())
	}
	file.HTTP = &HTTP{BindPort: new(int)}
	l, err := a.listen(file)
	if err != nil || l == nil {
		t.Fatal(err)
	}
	defer l.listener.Close()
	file.HTTP = &HTTP{BindPort: &l.listener.Addr().(*net.TCPAddr).Port}
	if l, err := a.listen(file); err == nil || l != nil {
		t.Errorf("a configured port is in use: %v, %v", l, err)
	}
}
