// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The columns of a table align although some cells have styles.
func TestTableOfStyles(t *testing.T) {
	rows := []string{row("Job", "Node", "State"), row("train", painted{red, "n1"}, painted{green, "running"}), row("t", "node-1", "waiting")}
	const want = `Job    Node    State
train  n1      running
t      node-1  waiting
`
	var out bytes.Buffer
	(&base{io: streams{out: &out}}).table(rows)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
