// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"io"
	"net/http"
	"strings"
)

// A device plugin may report NaN or an infinity in an attribute. Nomad's encoder (1.11.3)
// writes it as NaN, +Inf or -Inf, which is no JSON: one such node would make the list of
// nodes, and each event about it, unreadable. numbers makes them 0 while an answer is read.
type numbers struct {
	io.ReadCloser
	scan numberScan
}

func (n *numbers) Read(p []byte) (int, error) {
	got, err := n.ReadCloser.Read(p)
	n.scan.replaceNaN(p[:got])
	return got, err
}

// numberScan makes JSON of an answer in place, piece by piece. Outside strings, 'N', 'I'
// and a '+' that follows no 'e' only begin what is no number.
type numberScan struct {
	inString, escaped bool
	skip              int  // bytes of a word that is being replaced
	last              byte // outside strings
}

func (s *numberScan) replaceNaN(p []byte) {
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

// withoutNaN has NaN and infinities in an answer's JSON replaced by 0 as it is read.
func withoutNaN(r *http.Response) *http.Response {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		r.Body = &numbers{ReadCloser: r.Body}
	}
	return r
}
