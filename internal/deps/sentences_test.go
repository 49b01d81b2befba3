// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build prose

package deps

import (
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longest is the most words that a sentence in docs or comments may have. Aim at half of
// it: only lists come near.
const longest = 45

// mostPassives is how many passive verbs a sentence may have: a chain of them hides who does what.
const mostPassives = 3

// passive matches most passive verbs: a form of "to be" and a participle.
var passive = regexp.MustCompile(`(?i)\b(?:is|are|was|were|be|been|being)\s+(?:(?:not|also|then|only|still|never)\s+)?(?:\w+ed|made|given|taken|told|read|written|lost|put|kept|held|set|sent|seen|known|found|begun|run|left)\b`)

// TestSentencesAreShort counts the words and passive verbs of each sentence in the docs,
// and in the comments of all code except tests.
func TestSentencesAreShort(t *testing.T) {
	n := 0
	check := func(at, text string) {
		for s := range sentences(text) {
			n++
			if words := len(strings.Fields(s)); words > longest {
				t.Errorf("%s: a sentence of %d words, more than %d; split it: %s", at, words, longest, s)
			}
			if n := len(passive.FindAllString(s, -1)); n > mostPassives {
				t.Errorf("%s: a sentence with %d passive verbs, more than %d; say who does it: %s", at, n, mostPassives, s)
			}
		}
	}
	for _, name := range tracked(t, "*.md") {
		for text := range paragraphs(read(t, name)) {
			check(name, text)
		}
	}
	files, folders := parsed(t)
	for _, d := range folders {
		for name, f := range d.files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, c := range f.Comments {
				for text := range paragraphs(c.Text()) {
					check(files.Position(c.Pos()).String(), text)
				}
			}
		}
	}
	if n < 10000 {
		t.Fatalf("found %d sentences only", n)
	}
}

var (
	link  = regexp.MustCompile(`!?\[([^][]*)\]\([^()]*\)`)
	typed = regexp.MustCompile("`[^`]*`")
	begin = regexp.MustCompile(`^\s*([*-]|\d+\.|>|#+)\s+`)
	codes = regexp.MustCompile(`(?:Code,? (?:and |or )?)+Code`)
	ends  = regexp.MustCompile(`(?:[.!?][)"'*_]*|;)\s`)
)

// paragraphs splits a Markdown text, or a comment, into paragraphs, list items, headings
// and table cells. Inline code counts as one word; code blocks are left out.
func paragraphs(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		var lines []string
		flush := func() bool {
			text := codes.ReplaceAllString(typed.ReplaceAllString(strings.Join(lines, " "), "Code"), "Code")
			text = link.ReplaceAllString(text, "$1")
			lines = nil
			return text == "" || yield(text)
		}
		for line := range strings.SplitSeq(prose(text), "\n") {
			switch mark := begin.FindString(line); {
			case strings.TrimSpace(line) == "", mark == "" && strings.HasPrefix(line, "|"):
				if !flush() {
					return
				}
				for cell := range strings.SplitSeq(codes.ReplaceAllString(typed.ReplaceAllString(line, "Code"), "Code"), "|") {
					if strings.TrimSpace(cell) != "" && !yield(cell) {
						return
					}
				}
			case mark != "":
				if !flush() {
					return
				}
				lines = []string{line[len(mark):]}
			case len(lines) > 0 || !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "\t"):
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		flush()
	}
}

// sentences splits a paragraph. A semicolon ends a sentence, too.
func sentences(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			end := len(text)
			if at := ends.FindStringIndex(text); at != nil {
				end = at[1]
			}
			if !yield(strings.TrimSpace(text[:end])) {
				return
			}
			text = text[end:]
		}
	}
}

func TestSentences(t *testing.T) {
	text := "# Title\n\nOne `a b. C` two. Three\n(see [four five](x.md)). Six?\n\n| a | b c |\n* item\n  goes on\n\n```\ncode\n```\n"
	want := []string{"Title", "One Code two.", "Three (see four five).", "Six?", "a", "b c", "item goes on"}
	var got []string
	for p := range paragraphs(text) {
		got = slices.AppendSeq(got, sentences(p))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
