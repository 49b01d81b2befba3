// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package advice

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func finder(t *testing.T) *Finder {
	t.Helper()
	f, err := NewFinder("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestGives(t *testing.T) {
	f := finder(t)
	for text, want := range map[string]bool{
		"no such file; say where it is": true, "Leave that out": true, "it runs": false, "placed and pending, say": false,
		"a drain of its node, say, or a stop": false, "(did you mean %q?)": true, "use": false,
		// A command to type is advice. The name of a program as the subject of a sentence is not.
		"nomad job eval -force-reschedule %s": true, "nomad server members": true, "nomad server: %w": false, "nomad version": false,
		"Nomad job control is off": false, "nomad-pal explain %s says more": true, "see nomad-pal %s -help": true, "nomad-pal -help": true,
		"nomad-pal is no device plugin": false, "nomad-pal runs jobs": false, "nomad-pal has no command %q": false,
		"; nomad-pal profile import": true, "to end the release: nomad-device-pal resume": true, "nomad-device-pal measures": false,
		"nvidia-smi -q shows it": true, "our scan agrees with nvidia-smi": false, "systemctl restart nvidia-imex": true,
		"Usage: nomad-pal run [options]": false, "\nJob Options:\n\n  -x  nomad-pal run": false,
	} {
		if f.Gives(Text{Text: text}) != want {
			t.Errorf("%q gives advice: %t", text, !want)
		}
	}
}

// Advice counts as followed if a test had it shown, with any values for its verbs and any
// line breaks. It does not count if the test followed another part of the same text.
func TestFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	code := "package x\nvar a, b, c = \"file %s is not there: say -o\", \"it has %d GPUs; ask for %d\", \"`use it`\"\nvar d = help(\"write it\")\n"
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	texts, err := finder(t).In(filepath.Dir(path))
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

// Texts in places where the code keeps advice count as advice, whatever their words.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	code := `package x
const remedyPower = "shut down, plug in"
func remedy() string { return "it is broken: " + "for return" }
func f() {
	_ = Check{Name: "a b", Next: "may it read them?"}
	_ = Check{"a b", Fail, "c d", "measure again"}
	c.Next = "is it running there?"
	d.add(s, "a b", "c d", "make room")
	add("a b", "c d")
}
`
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	texts, err := finder(t).In(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, text := range texts {
		got = append(got, text.Text)
	}
	want := []string{"shut down, plug in", "it is broken: ", "for return", "may it read them?", "measure again", "is it running there?", "make room"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
