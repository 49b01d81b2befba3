// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import "testing"

// A part of the work is a number from 0 to 1, percent or so much of so much, on the first line. All else
// is refused; an empty file says nothing yet.
func TestParseProgress(t *testing.T) {
	for text, want := range map[string]float64{
		"0.42": 0.42, "42%": 0.42, "42 %\n": 0.42, " 420/1000\n": 0.42, "420 / 1000": 0.42, "1": 1, "0": 0, "100%": 1, "0/7": 0, "1e-3": 0.001, "0.5\nand more": 0.5,
	} {
		if got, ok, err := parseProgress([]byte(text)); err != nil || !ok || got != want {
			t.Errorf("%q: %v, %v, %v", text, got, ok, err)
		}
	}
	for _, text := range []string{"", "\n", " \n0.5"} {
		if _, ok, err := parseProgress([]byte(text)); ok || err != nil {
			t.Errorf("%q: %v, %v", text, ok, err)
		}
	}
	for _, text := range []string{"NaN", "Inf", "-Inf", "-0.1", "1.01", "101%", "42", "7/5", "1/0", "0/0", "-1/-2", "1/NaN", "Inf/Inf", "1/Inf", "1/", "/", "%", "half", "0,5", "\x00", "0.5 0.6", "1/2/3"} {
		if got, ok, err := parseProgress([]byte(text)); ok || err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
