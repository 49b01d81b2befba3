// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"embed"
	"net/http"
)

// ui is the whole web page, as it is served: modules without a build step. It loads
// nothing but its own files and the API beside it, with the token that its reader gives
// it. See docs/design/page.md.
//
//go:embed ui
var ui embed.FS

func page() http.Handler {
	files := http.FileServerFS(ui)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}
