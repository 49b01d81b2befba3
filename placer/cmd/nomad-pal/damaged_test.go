// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"
)

// Somebody has written nonsense into Nomad's variables. Commands report this, and show everything
// else.
func TestDamagedVariables(t *testing.T) {
	c := newCluster(t)
	for _, path := range []string{"profile/0000", "quarantine"} {
		c.nomad.SetVariable("default", "nomad-pal/"+path, map[string]string{"json": `{"until": [7`, "data": "nonsense"})
	}
	says := func(out, said string, args ...string) {
		t.Helper()
		if code, gotOut, gotSaid := c.does(args...); code != 0 || !strings.Contains(gotOut, out) || !strings.Contains(gotSaid, said) {
			t.Errorf("nomad-pal %s: exit code %d, want %q and %q in\n%s%s", strings.Join(args, " "), code, out, said, gotOut, gotSaid)
		}
	}
	counts := func(path string) string { return `Note: reading variable "nomad-pal/` + path + `": ` }
	says("No GPU is in quarantine.", counts("quarantine"), "quarantine")
	if _, _, said := c.does("doctor"); !strings.Contains(said, `Note: reading variable "nomad-pal/profile/`) {
		t.Errorf("doctor says %s", said)
	}
	c.agent("", "http {\n  bind_port = 0\n}\n")
	says("In quarantine: GPU-0-1", "", "quarantine", "-reason", "fan", "GPU-0-1")
}
