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
	_, err := rewrite.ParseHints(&api.Job{Meta: map[string]string{"pal_nonsense": "1"}})
	if err == nil {
		t.Fatal("pal_nonsense is a hint")
	}
	var known, documented []string
	for _, name := range regexp.MustCompile(`pal_\w+`).FindAllString(err.Error(), -1) {
		if name != "pal_nonsense" {
			known = append(known, name)
		}
	}
	page, err := os.ReadFile("../../docs/reference/hints.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(pal_\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(known)
	slices.Sort(documented)
	if d := cmp.Diff(known, documented); d != "" {
		t.Errorf("hints (-) and rows of the page (+):\n%s", d)
	}
	if len(known) < 10 {
		t.Errorf("found only %d hints", len(known))
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
