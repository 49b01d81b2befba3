// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"strings"
)

// PlacerConfig is the placer's configuration of a run: its locality penalty,
// placement policy and queue order; "" leaves the default.
func PlacerConfig(penalty float64, placement, order string) string {
	var b strings.Builder
	if placement != "" {
		fmt.Fprintf(&b, "placement = %q\n", placement)
	}
	if order != "" {
		fmt.Fprintf(&b, "queue {\n  order = %q\n}\n", order)
	}
	fmt.Fprintf(&b, "locality {\n  cluster = %v\n}\nhttp {\n  bind_port = 0\n}\n", penalty)
	return b.String()
}
