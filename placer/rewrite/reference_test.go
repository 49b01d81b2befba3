// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// docs/reference/hints.md has a row for each hint, and for no other. The error for
// an unknown hint lists the known ones.
func TestHintsReference(t *testing.T) {
	known, documented := hints(t), []string(nil)
	page, err := os.ReadFile("../../docs/reference/hints.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(pal_\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(documented)
	if d := cmp.Diff(known, documented); d != "" {
		t.Errorf("hints (-) and rows of the page (+):\n%s", d)
	}
}

// hints returns the names of all hints, sorted.
func hints(t *testing.T) (known []string) {
	t.Helper()
	_, err := rewrite.ParseHints(&api.Job{Meta: map[string]string{"pal_nonsense": "1"}})
	if err == nil {
		t.Fatal("pal_nonsense is a hint")
	}
	for _, name := range regexp.MustCompile(`pal_\w+`).FindAllString(err.Error(), -1) {
		if name != "pal_nonsense" {
			known = append(known, name)
		}
	}
	if slices.Sort(known); len(known) < 10 {
		t.Fatalf("found only %d hints", len(known))
	}
	return known
}

// The docs, the jobs to copy, and the help of the commands mention only hints that exist.
func TestMentionedHintsExist(t *testing.T) {
	known := append(hints(t), rewrite.GateMeta)
	name, found := regexp.MustCompile(`\bpal_[a-z_]+\b`), 0
	for _, root := range []string{"README.md", "docs", "jobspecs", "packs", "placer/deploy", "placer/cmd/nomad-pal"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, n := range name.FindAllString(string(text), -1) {
				if found++; !slices.Contains(known, n) {
					t.Errorf("%s mentions %s, which is not a hint", path, n)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 {
		t.Errorf("found only %d mentions", found)
	}
}

// Each hint has an effect: other packages use its value. A hint that is read but not
// used would be accepted without effect.
func TestEveryHintIsUsed(t *testing.T) {
	var code []byte
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "rewrite" {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code = append(code, text...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[rewrite.Hints]()) {
		if !regexp.MustCompile(`\b(h|Hints)\.` + f.Name + `\b`).Match(code) {
			t.Errorf("nothing uses %s: carry it on, for example into QueueJob of placer/gang/queue.go", f.Name)
		}
	}
}
