// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	_ "embed"
	"net/http"
)

// page is the whole web page: it loads nothing but the API beside it, with the
// token that its reader gives it.
//
//go:embed ui/index.html
var page []byte

func servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(page) // a client that is gone
}
