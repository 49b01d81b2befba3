// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"os"
	"slices"
	"strings"
)

// Invocation is the command as a result file keeps it: without the flags that
// name files of this machine.
func Invocation(name string) []string {
	return append([]string{name}, portable(os.Args[1:])...)
}

func portable(args []string) []string {
	out := []string{}
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
