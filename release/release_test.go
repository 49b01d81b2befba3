// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Equal files give equal bytes at any time and place; another version gives others.
func TestSameBytes(t *testing.T) {
	first := sums(t, staged(t, "2.0.0-dev.1+0123456789ab", time.Hour))
	if len(first) != 9 {
		t.Errorf("got %d files, want two packages of two products for two architectures, and an image: %v", len(first), first)
	}
	if again := sums(t, staged(t, "2.0.0-dev.1+0123456789ab", 0)); !slices.Equal(first, again) {
		t.Errorf("packed twice:\n%s\n%s", strings.Join(first, "\n"), strings.Join(again, "\n"))
	}
	for _, line := range sums(t, staged(t, "2.0.0", 0)) {
		if sum, _, _ := strings.Cut(line, " "); strings.Contains(strings.Join(first, "\n"), sum) {
			t.Errorf("another version has the same bytes: %s", line)
		}
	}
}

// A binary's bill lists each module that it links, in the linked version, and the binary's
// own hash.
func TestBill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).Encode((release{version: "1.2.3"}).bill("tool", info, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	wants := []string{`"version":"1.2.3"`, `"content":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"`, `"purl":"pkg:golang/std@`}
	for _, m := range info.Deps {
		wants = append(wants, fmt.Sprintf("%q", "pkg:golang/"+actual(m).Path+"@"+actual(m).Version))
	}
	if len(wants) < 10 {
		t.Fatalf("the test links %d modules only", len(wants))
	}
	for _, want := range wants {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the bill lacks %s", want)
		}
	}
}

// A module without a licence is not shipped.
func TestLicence(t *testing.T) {
	dir := t.TempDir()
	var text bytes.Buffer
	if err := licence(&text, "m v1", dir); err == nil {
		t.Error("a folder without licence has one")
	}
	write(t, filepath.Join(dir, "LICENSE.md"), "do")
	write(t, filepath.Join(dir, "licenser.go"), "package x")
	if err := licence(&text, "m v1", dir); err != nil || text.String() != "==== m v1: LICENSE.md\n\ndo\n\n" {
		t.Errorf("got %v and\n%s", err, &text)
	}
}

// staged returns a release with small files in place of the binaries, written some time ago.
func staged(t *testing.T, version string, ago time.Duration) release {
	t.Helper()
	r := release{version: version, time: time.Unix(1_700_000_000, 0).UTC(), root: "..", stage: t.TempDir(), out: t.TempDir()}
	for _, name := range []string{"LICENSES.txt"} {
		write(t, filepath.Join(r.stage, name), name)
		age(t, filepath.Join(r.stage, name), ago)
	}
	for _, arch := range architectures {
		for _, name := range binaries {
			write(t, r.binary(name, arch), name+arch)
			age(t, r.binary(name, arch), ago)
		}
	}
	return r
}

func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sums returns the checksums of packages and image, by file name.
func sums(t *testing.T, r release) []string {
	t.Helper()
	for _, step := range []func() error{r.packages, r.image} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	entries, err := os.ReadDir(r.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		all = append(all, hex.EncodeToString(sum[:])+" "+e.Name())
	}
	return all
}
