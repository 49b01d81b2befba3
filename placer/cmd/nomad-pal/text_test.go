// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The columns of a table align although some names have wide characters, combining accents, or
// styles.
func TestWideNames(t *testing.T) {
	rows := []string{
		row("Job", "Node", "State"), row("train", "n1", painted{green, "running"}), row("训练", "ノード", "waiting"),
		row("e\u0301te\u0301", painted{red, "n1"}, "waiting"), row("🚀", "n1", "waiting"),
	}
	const want = `Job    Node    State
train  n1      running
训练   ノード  waiting
e\u0301te\u0301    n1      waiting
🚀     n1      waiting
`
	var out bytes.Buffer
	(&base{io: streams{out: &out}}).table(rows)
	if diff := cmp.Diff(strings.ReplaceAll(want, `\u0301`, "\u0301"), out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A wide word is cut between characters, and no line is wider than its column.
func TestWideWordIsCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"训练任务", 5, []string{"训练", "任务"}},
		{"a训练任务", 5, []string{"a训练", "任务"}},
		{"训练", 1, []string{"训", "练"}}, // a character is never cut
		{"ee\u0301e\u0301e", 2, []string{"ee\u0301", "e\u0301e"}},
		{"train 训练任务 x", 9, []string{"train", "训练任务", "x"}},
		{paint(red, "abcdef"), 3, []string{string(rune(red)) + "abc", "def" + string(rune(plain))}},
	} {
		if diff := cmp.Diff(c.want, wrapped(c.text, c.width)); diff != "" {
			t.Errorf("%q in %d columns: -want +got:\n%s", c.text, c.width, diff)
		}
	}
}
