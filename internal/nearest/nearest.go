// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nearest guesses which existing name a misspelt name means: a hint, a job, a column, a
// GPU model, or an attribute of a constraint.
package nearest

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// Name returns the name that is most similar to an unknown one, or else the first that contains it;
// "" if there is none. Upper and lower case do not matter.
func Name(name string, names []string) string {
	name = strings.ToLower(name)
	lower, own := make([]string, len(names)), map[string]string{}
	for i, n := range names {
		lower[i] = strings.ToLower(n)
		own[lower[i]] = n
	}
	near := similar(name, lower)
	if near != "" {
		return own[near]
	}
	i := slices.IndexFunc(lower, func(n string) bool { return len(name) >= 3 && strings.Contains(n, name) })
	if i < 0 {
		return ""
	}
	return names[i]
}

// Misspells reports whether a text is probably one certain name, or a misspelling of it.
func Misspells(text, name string) bool { return similar(text, []string{name}) != "" }

// Question asks whether the most similar name was meant: ` (did you mean "train"?)`. Question
// returns "" if no name is similar. It belongs at the end of a text that quotes the unknown name.
func Question(name string, names []string) string {
	near := Name(name, names)
	if near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

// similar returns a name that begins with the unknown one, or else differs in the fewest letters; ""
// if too many differ.
func similar(name string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	for _, n := range names {
		if len(name) >= 2 && (strings.HasPrefix(n, name) || swapped(name, n)) {
			return n
		}
	}
	best := slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(levenshtein.Distance(name, a, nil), levenshtein.Distance(name, b, nil)), cmp.Compare(begun(name, b), begun(name, a)), strings.Compare(a, b))
	})
	shared := len(name)
	for _, n := range names {
		shared = min(shared, begun(name, n))
	}
	own := len(name) - 1 - strings.LastIndexByte(name[:shared], '_') // a word that begins all names says nothing
	d := levenshtein.Distance(name, best, nil)
	if d > max(1, own/3) || d >= own {
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
	near := Name(name, names)
	if near != "" {
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
