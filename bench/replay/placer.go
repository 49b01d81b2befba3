// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import "fmt"

// PlacerConfig is the placer's configuration of a run: its locality penalty and
// placement policy.
func PlacerConfig(penalty float64, placement string) string {
	return fmt.Sprintf("placement = %q\nlocality {\n  cluster = %v\n}\n", placement, penalty)
}
