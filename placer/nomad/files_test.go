// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A file that does not exist reads as empty, whether Nomad answers with an error or with a message
// in place of the file.
func TestReadFile(t *testing.T) {
	path := "/var/lib/nomad/alloc/" + strings.Repeat("a", 200) + "/alloc/f"
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
		fails  bool
	}{
		{name: "whole", status: 200, body: "1/3000\n", want: "1/3000\n"},
		{name: "empty", status: 200},
		{name: "longer than requested", status: 200, body: strings.Repeat("7", 10_000), want: strings.Repeat("7", 64)},
		{name: "missing, a server's answer", status: 500, body: "stat " + path + ": no such file or directory"},
		{name: "missing, its own client's answer", status: 200, body: "stat " + path + ": no such file or directory"},
		{name: "quotes such an error", status: 200, body: "it failed: stat /f: no such file or directory", want: "it failed: stat /f: no such file or directory"},
		{name: "refused", status: 403, body: "Permission denied", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer srv.Close()
			client, err := NewClient(&api.Config{Address: srv.URL}, "default")
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.ReadFile(t.Context(), "default", "a", "alloc/f", 64)
			if string(got) != c.want || (err != nil) != c.fails {
				t.Errorf("ReadFile = %.80q, %v; want %.80q, error: %v", got, err, c.want, c.fails)
			}
		})
	}
}
