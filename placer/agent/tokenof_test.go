// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"testing"
)

// Only a Bearer header carries a token; the credentials of a proxy before the agent are none.
func TestTokenOf(t *testing.T) {
	for header, want := range map[string]string{"Bearer secret": "secret", "Basic dXNlcjpwdw==": "", "": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/queue", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		if got := tokenOf(r); got != want {
			t.Errorf("%q: token %q, want %q", header, got, want)
		}
	}
}
