// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"slices"
	"strings"
)

// Invocation is a command line as a result file keeps it: the program's name and
// its flags without those that name files of this machine.
func Invocation(name string, args []string) []string {
	out := []string{name}
	for i := 0; i < len(args); i++ {
		flag, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !slices.Contains([]string{"nomad", "bin", "json", "html", "svg", "workload", "from"}, flag) {
			out = append(out, args[i])
		} else if !joined {
			i++ // its value
		}
	}
	return out
}
