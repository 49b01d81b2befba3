// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// tracked lists the files of the repository that match the patterns: files that git tracks,
// and new files that git does not ignore.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var there []string
	for name := range strings.FieldsSeq(string(out)) {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil { // not deleted in the working tree
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		t.Fatalf("no file matches %v", patterns)
	}
	return there
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prose returns a Markdown text without its code blocks.
func prose(text string) string {
	var out []string
	fence := ""
	for line := range strings.SplitSeq(text, "\n") {
		switch mark := strings.TrimLeft(line, " "); {
		case fence != "":
			if strings.HasPrefix(mark, fence) {
				fence = ""
			}
		case strings.HasPrefix(mark, "```"):
			fence = "```"
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// anchors returns the names by which links reach the headings of a Markdown text, as GitHub
// makes them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.SplitSeq(prose(text), "\n") {
		heading := strings.TrimLeft(line, "#")
		if heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		var b strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteByte('-')
			}
		}
		out[b.String()] = true
	}
	return out
}

var markdownLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// TestMarkdownLinks: each relative link in a Markdown file leads to a file or folder of the
// repository, and its anchor to a heading there.
func TestMarkdownLinks(t *testing.T) {
	links := 0
	for _, name := range tracked(t, "*.md") {
		for _, m := range markdownLink.FindAllStringSubmatch(prose(read(t, name)), -1) {
			target, anchor, hasAnchor := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if strings.HasPrefix(file, "../") {
				t.Errorf("%s: the link %s leaves the repository", name, m[1])
				continue
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
				continue
			}
			if hasAnchor && !anchors(read(t, file))[anchor] {
				t.Errorf("%s: %s has no heading %q", name, file, anchor)
			}
		}
	}
	if links < 100 {
		t.Errorf("found %d links only", links)
	}
}

// TestEveryPageIsReached: links from README.md lead, directly or through other pages, to
// each Markdown file.
func TestEveryPageIsReached(t *testing.T) {
	reached := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if reached[name] {
			return
		}
		reached[name] = true
		for _, m := range markdownLink.FindAllStringSubmatch(prose(read(t, name)), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			file := path.Join(path.Dir(name), target)
			if info, err := os.Stat(filepath.Join(root, file)); err == nil && info.IsDir() {
				file = path.Join(file, "README.md")
			}
			if _, err := os.Stat(filepath.Join(root, file)); err == nil && strings.HasSuffix(file, ".md") {
				visit(file)
			}
		}
	}
	visit("README.md")
	for _, name := range tracked(t, "*.md") {
		if !reached[name] {
			t.Errorf("no chain of links leads from README.md to %s", name)
		}
	}
}

// TestMakeTargets: each `make x` in the docs is a make target.
func TestMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, name := range tracked(t, "Makefile", "*.mk") {
		for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9. -]*):`).FindAllStringSubmatch(read(t, name), -1) {
			for target := range strings.FieldsSeq(m[1]) {
				targets[target] = true
			}
		}
	}
	named := 0
	for _, name := range tracked(t, "*.md") {
		for _, m := range regexp.MustCompile("(?m)(?:`|^ *\\$ |^    )make ([a-z][a-z0-9.-]*[a-z0-9])").FindAllStringSubmatch(read(t, name), -1) {
			if named++; !targets[m[1]] {
				t.Errorf("%s: there is no target %q", name, m[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("found %d targets only", named)
	}
}

// TestCommandsAreTyped: all our commands in code blocks begin with "$ ", except in the
// generated references, because TestDocs (e2e) types only such lines.
func TestCommandsAreTyped(t *testing.T) {
	typed := 0
	for _, name := range tracked(t, "README.md", "docs/*.md") {
		if strings.HasPrefix(name, "docs/reference/") {
			continue
		}
		text := read(t, name)
		typed += len(regexp.MustCompile(`(?m)^\$ nomad`).FindAllString(text, -1))
		for _, line := range regexp.MustCompile(`(?m)^ *(nomad|nomad-pal|nomad-device-pal) [a-z].*$`).FindAllString(text, -1) {
			if strings.HasPrefix(line, "    ") || !strings.Contains("\n"+prose(text)+"\n", "\n"+line+"\n") {
				t.Errorf("%s: write it as \"$ %s\" in a console block", name, strings.TrimSpace(line))
			}
		}
	}
	if typed < 20 {
		t.Errorf("found %d commands only", typed)
	}
}

// TestReadmeIsShort: longer texts belong in docs.
func TestReadmeIsShort(t *testing.T) {
	const most = 120
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > most {
		t.Errorf("README.md has %d lines, more than %d", lines, most)
	}
}

// TestMapOfRooms: the map in CONTRIBUTING.md has exactly one row for each folder with Go
// code, at most two levels deep.
func TestMapOfRooms(t *testing.T) {
	_, text, ok := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## The map\n")
	if !ok {
		t.Fatal("CONTRIBUTING.md has no section \"The map\"")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	rooms := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)/` \\| [^|]+ \\|$").FindAllStringSubmatch(text, -1) {
		if rooms[m[1]] {
			t.Errorf("the map has two rows for %s/", m[1])
		}
		rooms[m[1]] = true
	}
	there := map[string]bool{}
	for _, name := range tracked(t, "*.go") {
		parts := strings.Split(path.Dir(name), "/")
		if dir := strings.Join(parts[:min(2, len(parts))], "/"); dir != "." {
			there[dir] = true
		}
	}
	for dir := range there {
		if !rooms[dir] {
			t.Errorf("the map has no row for %s/", dir)
		}
	}
	for dir := range rooms {
		if !there[dir] {
			t.Errorf("the map has a row for %s/, which does not exist", dir)
		}
	}
}

// TestPathsInDocs: each file or folder that a Markdown file names in code, from the root
// on, exists.
func TestPathsInDocs(t *testing.T) {
	named := 0
	for _, name := range tracked(t, "*.md") {
		for _, m := range regexp.MustCompile("`((?:pal|placer|device-plugin|sim|bench|e2e|packs|release|internal|jobspecs|docs)/[\\w./-]+)`").FindAllStringSubmatch(read(t, name), -1) {
			named++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
	}
	if named < 100 {
		t.Errorf("found %d paths only", named)
	}
}

// TestCitedDocs: each Markdown file that Go code, configuration or a Makefile cites exists.
func TestCitedDocs(t *testing.T) {
	cited := 0
	for _, name := range tracked(t, "*.go", "*.hcl", "*.mk", "*.yml", "*.service", "Makefile", "NOTICE") {
		for _, m := range regexp.MustCompile(`\b(?:docs|placer|bench|device-plugin|pal|e2e)/[\w./-]*\w\.md\b`).FindAllString(read(t, name), -1) {
			cited++
			if _, err := os.Stat(filepath.Join(root, m)); err != nil {
				t.Errorf("%s cites %s, which does not exist", name, m)
			}
		}
	}
	if cited < 10 {
		t.Errorf("found %d citations only", cited)
	}
}
