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
	said := map[string]Reason{}
	for _, m := range regexp.MustCompile(`Reason\w+ +Reason = "(.+)"`).FindAllStringSubmatch(string(code), -1) {
		r := Reason(m[1])
		why := Wait{Reason: r, GPUs: 4, Free: 2, Ahead: "a", Stopping: []string{"b"}}.Why()
		if other, ok := said[why]; ok {
			t.Errorf("%s and %s are told alike: %q", r, other, why)
		}
		said[why] = r
	}
	if len(said) < 10 {
		t.Errorf("found %d reasons only", len(said))
	}
}
