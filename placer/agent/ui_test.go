// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The page needs nothing from elsewhere and is not allowed to ask.
func TestPageStandsAlone(t *testing.T) {
	w := httptest.NewRecorder()
	servePage(w, httptest.NewRequest(http.MethodGet, "/ui/", nil))
	body := w.Body.String()
	if w.Code != http.StatusOK || !strings.Contains(body, "<title>nomad-pal</title>") {
		t.Fatalf("status %d, %d bytes", w.Code, len(body))
	}
	for _, s := range []string{"http://", "https://", "src=", "@import"} {
		if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), s) {
			t.Errorf("the page holds %q", s)
		}
	}
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("content security policy %q", csp)
	}
}
