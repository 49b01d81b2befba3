// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package manpagetest checks the manual pages of a program, and writes them for a
// release: go test -run TestManPages -man-dir=DIR (make man).
package manpagetest

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/manpage"
)

var (
	dir  = flag.String("man-dir", "", "write the manual pages into this folder")
	date = flag.String("man-date", "1970-01-01", "the date on manual pages")
)

// Check writes the pages and checks them with linters of manual pages.
func Check(t *testing.T, program, synopsis string, commands []manpage.Command) {
	t.Helper()
	to := *dir
	if to == "" {
		to = t.TempDir()
	}
	if err := manpage.Write(to, *date, program, synopsis, commands); err != nil {
		t.Fatal(err)
	}
	paths := []string{filepath.Join(to, program+".1")}
	for _, c := range commands {
		path := filepath.Join(to, program+"-"+strings.ReplaceAll(c.Name, " ", "-")+".1")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s has no manual page: %v", c.Name, err)
			continue
		}
		sections := []string{".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n"}
		for line := range strings.SplitSeq(c.Help, "\n") {
			if head, ok := strings.CutSuffix(line, " Options:"); ok {
				sections = append(sections, ".SH "+strings.ToUpper(head)+" OPTIONS\n.TP\n")
			}
		}
		for _, s := range sections {
			if !bytes.Contains(text, []byte(s)) {
				t.Errorf("%s: no %q in\n%s", path, s, text)
			}
		}
		paths = append(paths, path)
	}
	lint(t, paths)
}

// linters print the faults of manual pages, or nothing if there are none.
var linters = [][]string{{"mandoc", "-T", "lint", "-W", "warning"}, {"groff", "-man", "-z", "-ww", "-K", "utf8"}}

func lint(t *testing.T, paths []string) {
	t.Helper()
	for _, l := range linters {
		if _, err := exec.LookPath(l[0]); err != nil {
			t.Logf("%s is not installed: the pages are not checked with it", l[0])
			continue
		}
		if out, err := exec.Command(l[0], append(l[1:], paths...)...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", l[0], err, out)
		}
	}
}
