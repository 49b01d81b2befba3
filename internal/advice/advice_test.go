// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package advice

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGives(t *testing.T) {
	for text, want := range map[string]bool{
		"no such file; say where it is": true, "Leave that out": true, "it runs": false, "placed and pending, say": false,
		"a drain of its node, say, or a stop": false, "(did you mean %q?)": true, "use": false,
	} {
		if Gives(text) != want {
			t.Errorf("%q gives advice: %t", text, !want)
		}
	}
}

// Advice is followed if a test had it shown, with whatever stands for its verbs and wherever its
// lines broke, and not if another part of the same text was followed.
func TestFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	code := "package x\nvar a, b, c = \"file %s is not there: say -o\", \"it has %d GPUs; ask for %d\", \"`use it`\"\nvar d = help(\"write it\")\n"
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	texts, err := In(nil, filepath.Dir(path))
	if err != nil || len(texts) != 2 || texts[0].Where != path+":2" {
		t.Fatal(texts, err)
	}
	var f Followed
	const shown = "File a.hcl is not there:\n  say -o. It has 3 GPUs; ask for 2."
	if f.Add(shown, "say -x") || !f.Add(shown, "say -o") {
		t.Error("what is shown")
	}
	if rest := f.Rest(texts); len(rest) != 1 || rest[0].Text != "it has %d GPUs; ask for %d" {
		t.Error(rest)
	}
}
