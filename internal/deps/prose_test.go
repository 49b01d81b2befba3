// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build prose

package deps

import (
	"regexp"
	"strings"
	"testing"
)

// phrases are phrases that readers had to read twice, each with a better one. The list
// grows with each finding.
var phrases = []struct{ phrase, better string }{
	{`for ever\b`, `forever, until it is stopped, or: deadlock`},
	{`at hand`, `available`},
	{`what came of (it|a|an|the)`, `the outcome of`},
	{`c[oa]mes? to nothing`, `fails`},
	{`[a-z]+ says whether`, `reports whether`},
	{`none such`, `is not a ..., no such ...`},
	{`to be had`, `available`},
	{`(those|members?|files|ones) that are there`, `the running members, existing files`},
	{`(may|can|might) die\b`, `can crash`},
	{`went? wrong with`, `failed`},
	{`takes in (that|how|whose|an?)`, `notes, adds, applies`},
	{`bec[oa]mes? of`, `happens to, the outcome of`},
	{`become of`, `happen to`},
	{`(is|are) told of`, `knows about, gets, sees`},
	{`of which (nothing|nobody)`, `without, unknown, or two sentences`},
	{`(for|by|of) which, or (for|by|of) which`, `two sentences`},
	{`(is|are) of (it|that|whom)\b`, `belongs to, comes from`},
	{`that it is of\b`, `that it belongs to`},
	{`(agents?|placers?|one|is|are|was|be) at work`, `active, in use`},
	{`(which|that|it|version) is no (number|time|pattern|rate|value|duration|hint|node|job|step)`, `is not a ...`},
	{`as is assumed`, `as assumed`},
	{`sign of life`, `does not move, does not answer`},
	{`(it|gang|job|member|version)s? goes at its`, `keeps its place`},
	{`runs? on elsewhere`, `keeps running outside its pins`},
	{`takes? (it|them|the job|jobs) in\b`, `accepts, reads, adds`},
	{`(is|are) taken for`, `counts as`},
	{`(wait|have waited) for each other for`, `deadlock`},
	{`it is (still )?that\b[.;,]`, `it is unchanged`},
	{`any ?more\b`, `no longer, has stopped`},
	{`anew\b`, `again, afresh`},
	{`let(ting)? go of`, `release, close`},
	{`is the beginning of`, `matches`},
	{`written down`, `stored, recorded`},
	{`(of|with|has|by|in|on|to|most|than|after) so (many|much)\b`, `n, this many: name the number`},
	{`the (former|latter)\b`, `name the thing again`},
	{`, say[,.)]`, `for example`},
}

// TestProse searches every Markdown page, and every comment and text of the product's code,
// for these phrases.
func TestProse(t *testing.T) {
	var any []string
	for _, p := range phrases {
		any = append(any, p.phrase)
	}
	banned := regexp.MustCompile(`(?i)\b(?:` + strings.Join(any, "|") + `)`)
	for _, name := range tracked(t, "*.md", "*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text := read(t, name)
		for _, at := range banned.FindAllStringIndex(text, -1) {
			found := text[at[0]:at[1]]
			t.Errorf("%s:%d: %q is read twice; better: %s",
				name, 1+strings.Count(text[:at[0]], "\n"), found, better(found))
		}
		if strings.HasSuffix(name, ".go") {
			continue
		}
		for _, s := range sentenceEnd.Split(strings.Join(paragraph.FindAllString(prose(text), -1), "\n"), -1) {
			if words := len(strings.Fields(s)); words > longest {
				t.Errorf("%s: split this sentence of %d words: %s", name, words, s)
			}
		}
	}
}

// longest is the most words that a sentence of the docs may have.
const longest = 40

var (
	// paragraph matches what is neither a table, a heading, an item of a list nor code.
	paragraph   = regexp.MustCompile("(?m)^[A-Z][^|\n`#]*(?:\n[^-|*#`\n][^|\n]*)*")
	sentenceEnd = regexp.MustCompile(`[.!?:][)"*]*\s`)
)

// better returns what to write instead of a banned phrase.
func better(found string) string {
	for _, p := range phrases {
		if regexp.MustCompile(`(?i)^` + p.phrase).MatchString(found) {
			return p.better
		}
	}
	return ""
}
