// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// parseSpeeds tidies an author's speeds on GPU models: "NVIDIA A100-SXM4-80GB=1, Tesla T4=0.2".
func parseSpeeds(s string) (string, error) {
	said, err := splitSpeeds(s)
	if err != nil {
		return "", err
	}
	var all []string
	for _, model := range slices.Sorted(maps.Keys(said)) {
		all = append(all, fmt.Sprintf("%s=%v", model, said[model]))
	}
	return strings.Join(all, ","), nil
}

// splitSpeeds reads them. Names of models are as in the last part of the device's name in Nomad.
func splitSpeeds(s string) (map[string]float64, error) {
	said := map[string]float64{}
	for part := range strings.SplitSeq(s, ",") {
		model, value, ok := strings.Cut(part, "=")
		model = strings.TrimSpace(model)
		speed, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		switch {
		case !ok || model == "":
			return nil, fmt.Errorf("%q is not MODEL=SPEED; example: NVIDIA A100-SXM4-80GB=1, Tesla T4=0.2", strings.TrimSpace(part))
		case err != nil || !(speed > 0) || math.IsInf(speed, 0) || speed < 1e-6 || speed > 1e6:
			return nil, fmt.Errorf("%s is no speed of %s: it is a number from 0.000001 to 1000000, such as 0.2", strings.TrimSpace(value), model)
		}
		if _, twice := said[model]; twice {
			return nil, fmt.Errorf("%s is there twice", model)
		}
		said[model] = speed
	}
	if len(said) < 2 {
		return nil, fmt.Errorf("it names one model: speeds compare two or more")
	}
	return said, nil
}

// Speeds are those of a hint (see [Hints.Speed]) by GPU model; nil of an empty one.
func Speeds(hint string) map[string]float64 {
	if hint == "" {
		return nil
	}
	said, _ := splitSpeeds(hint) // it was read before
	return said
}
