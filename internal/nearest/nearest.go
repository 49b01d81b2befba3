// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nearest guesses which existing name a misspelt name means.
package nearest

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// Name returns the most similar of the names; "" if none is similar.
func Name(name string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	best := slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(levenshtein.Distance(name, a, nil), levenshtein.Distance(name, b, nil)), cmp.Compare(begun(name, b), begun(name, a)), strings.Compare(a, b))
	})
	for _, n := range names {
		if len(name) >= 2 && (strings.HasPrefix(n, name) || swapped(name, n)) {
			return n
		}
	}
	shared := len(name)
	for _, n := range names {
		shared = min(shared, begun(name, n))
	}
	own := len(name) - 1 - strings.LastIndexByte(name[:shared], '_') // a word that begins all names says nothing
	if d := levenshtein.Distance(name, best, nil); d > max(1, own/3) || d >= own {
		return ""
	}
	return best
}

// Option returns a suggestion to append to an error of [flag.FlagSet.Parse] about an unknown
// option: the option with the most similar name. Option returns "" for other errors, or if no name
// is similar.
func Option(f *flag.FlagSet, err error) string {
	_, name, unknown := strings.Cut(err.Error(), "not defined: -")
	if !unknown {
		return ""
	}
	var names []string
	f.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near := Name(name, names); near != "" {
		return fmt.Sprintf(" (did you mean -%s?)", near)
	}
	return ""
}

// begun returns the length of the common prefix of two names.
func begun(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// swapped reports whether two names differ only by two swapped neighbouring letters.
func swapped(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) - 1 {
		if a[i] != b[i] {
			return a[:i]+a[i+1:i+2]+a[i:i+1]+a[i+2:] == b
		}
	}
	return false
}
