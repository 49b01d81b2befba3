// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// parseSpeeds normalizes the speeds of a job on GPU models, such as "NVIDIA A100-SXM4-80GB=1, Tesla
// T4=0.2".
func parseSpeeds(s string) (string, error) {
	said, err := pal.ParseSpeeds(s)
	if err != nil {
		return "", err
	}
	var all []string
	for _, model := range slices.Sorted(maps.Keys(said)) {
		all = append(all, fmt.Sprintf("%s=%v", model, said[model]))
	}
	return strings.Join(all, ","), nil
}

// Speeds returns the speeds in a hint (see [Hints.Speed]), by GPU model. Speeds returns nil for an
// empty hint.
func Speeds(hint string) map[string]float64 {
	if hint == "" {
		return nil
	}
	said, _ := pal.ParseSpeeds(hint) // parseSpeeds wrote the hint, so it is valid
	return said
}
