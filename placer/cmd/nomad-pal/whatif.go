// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/placer/query"
)

// changesSentence says what is tried; "" for nothing.
func changesSentence(c query.Changes) string {
	if len(c) == 0 {
		return ""
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(c)) {
		switch value := c[k]; {
		case value == "":
			parts = append(parts, "no "+k)
		case k == "without":
			parts = append(parts, "no constraint on "+value)
		default:
			parts = append(parts, k+" = "+value)
		}
	}
	return "With " + strings.Join(parts, " and ") + ": "
}

// isJobFile says whether an argument of explain is a jobspec: no name of a job that
// people use looks like one.
func isJobFile(name string) bool {
	for _, end := range []string{".hcl", ".nomad", ".json"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return name == "-" || isURL(name) || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}
