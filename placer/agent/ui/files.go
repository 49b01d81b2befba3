// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package ui has the files of the web page: JavaScript modules without a build step. The page loads
// only its own files and the agent's API, with the token that the reader enters. See
// docs/design/page.md; NOTICE lists the files that others wrote.
package ui

import "embed"

// Files are the files of the page.
//
//go:embed *.js *.css *.html
var Files embed.FS
