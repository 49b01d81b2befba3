// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"io"
	"net/http"
	"strings"
)

// Nomad writes a number that is none, as a device plugin may report one in an
// attribute, as NaN, +Inf or -Inf, which is no JSON (its encoder does, in 1.11.3): one such node
// would make the list of nodes, and each event with it, unreadable. numbers makes
// them 0 while an answer is read.
type numbers struct {
	io.ReadCloser
	scan numberScan
}

func (n *numbers) Read(p []byte) (int, error) {
	got, err := n.ReadCloser.Read(p)
	n.scan.mend(p[:got])
	return got, err
}

// numberScan mends JSON in place, piece by piece. Outside strings, 'N', 'I' and a
// '+' that follows no 'e' only begin what is no number.
type numberScan struct {
	inString, escaped bool
	skip              int  // bytes of a word that is being replaced
	last              byte // outside strings
}

func (s *numberScan) mend(p []byte) {
	for i, b := range p {
		if s.inString {
			switch {
			case s.escaped:
				s.escaped = false
			case b == '\\':
				s.escaped = true
			case b == '"':
				s.inString = false
			}
			continue
		}
		switch {
		case s.skip > 0:
			s.skip--
			p[i] = ' '
		case b == '"':
			s.inString = true
		case b == 'N' || b == 'I':
			p[i], s.skip = '0', 2
		case b == '+' && s.last != 'e' && s.last != 'E':
			p[i] = ' '
		}
		s.last = b
	}
}

// mended has the answer's JSON mended as it is read.
func mended(r *http.Response) *http.Response {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		r.Body = &numbers{ReadCloser: r.Body}
	}
	return r
}
