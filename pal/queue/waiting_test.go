// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"os"
	"regexp"
	"testing"
)

// Each reason has words of its own: one that was forgotten would be told as too few GPUs.
func TestReasonsHaveWords(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("waiting.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`Reason\w+ +Reason = `).FindAll(code, -1)
	if len(all) != len(Reasons) {
		t.Errorf("there are %d reasons, and %d in the list", len(all), len(Reasons))
	}
	said := map[string]Reason{}
	for _, r := range Reasons {
		why := Wait{Reason: r, GPUs: 4, Free: 2, Ahead: "a", Stopping: []string{"b"}}.Why()
		if other, ok := said[why]; ok {
			t.Errorf("%s and %s are told alike: %q", r, other, why)
		}
		said[why] = r
	}
}
