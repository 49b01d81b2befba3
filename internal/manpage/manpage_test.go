// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package manpage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Text that troff would read as a request stays text, options become tagged paragraphs, and
// examples stay unchanged.
func TestPage(t *testing.T) {
	got := page("x run", "Run x", "2026-01-02", `Usage: x run [options]

One.
.two \ 'three'

Run Options:

  -a=<b>                   Does
                           something.

Examples:

  Like this:

      $ x run -a=b
`)
	_, got, _ = strings.Cut(got, "\n")
	want := `.SH NAME
x\-run \- Run x
.SH SYNOPSIS
x run [options]
.SH DESCRIPTION
One.
\&.two \e 'three'
.SH RUN OPTIONS
.TP
\-a=<b>
Does
something.
.SH EXAMPLES
.EX
  Like this:

      $ x run \-a=b
.EE
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
