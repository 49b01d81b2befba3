// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// hostile are job names that Nomad accepts, each with its form in a table.
var hostile = map[string]string{
	"plain-job.v2":                   "plain-job.v2",
	"größe/作业":                       "größe/作业",
	"a|b":                            "a|b",
	"\x1b[2Jcleared":                 `\u001b[2Jcleared`,
	"csi\u009b31mred":                `csi\u009b31mred`,
	"forged\nroot  default  running": `forged\nroot  default  running`,
	"over\rwritten":                  `over\u000dwritten`,
	"tab\tbed":                       `tab\u0009bed`,
	"evil\u202etxt.exe":              `evil\u202etxt.exe`,
	"isolate\u2066x\u2069":           `isolate\u2066x\u2069`,
	"zero\u200bwidth":                `zero\u200bwidth`,
	"tag\U000e0041":                  `tag\udb40\udc41`,
	"line\u2028end":                  `line\u2028end`,
	"cell\x1fcell":                   `cell\u001fcell`,
	"no utf-8 \xff":                  `no utf-8 \xff`,
	"bell\a, nul\x00, del\x7f":       `bell\u0007, nul\u0000, del\u007f`,
}

func commandOn(out *bytes.Buffer) *base {
	return &base{ctx: context.Background(), verbose: true, io: streams{out: &quoting{w: out}, err: &quoting{w: out}}}
}

// printers print tables that contain a name.
func printers(name string) map[string]func(b *base) {
	return map[string]func(b *base){
		"jobs": func(b *base) {
			b.printJobs([]palapi.JobStatus{{Namespace: name, Job: name, Class: name, Reason: reason.Unread(name)}}, time.Now())
		},
		"explanation": func(b *base) {
			printExplanation(b, &palapi.Explanation{
				Namespace: name, Job: name, Mode: name, ClassFrom: name,
				Wait: &queue.Wait{Job: name, Reason: reason.Stopping, Ahead: name, Stopping: []string{"x"}},
				Decision: &pal.Decision{Policy: name, Chosen: &pal.Choice{Members: []pal.ChosenMember{
					{Group: name, Node: name, GPUs: []pal.ChosenGPU{{ID: name}}}}}},
				Allocations: []palapi.Allocation{{ID: "12345678", Group: name, Node: name, Status: name, GPUs: []string{name}}},
			})
		},
		"quarantine": func(b *base) { printQuarantine(b, map[string]palapi.Quarantine{name: {}}, nil) },
	}
}

// A name of any length leaves the other rows of a table readable.
func TestTablesShortenNames(t *testing.T) {
	name := strings.Repeat("ü", 100_000)
	for what, print := range printers(name) {
		var out bytes.Buffer
		print(commandOn(&out))
		for line := range strings.SplitSeq(out.String(), "\n") {
			// The headline of explain, which begins with the name, has the name in full.
			if n := len([]rune(line)); n > 5_000 && !strings.HasPrefix(line, "ü") {
				t.Errorf("%s: a line of %d runes: %.50q", what, n, line)
			}
		}
	}
}

// Any name stays in its cell, and only its printable characters reach a terminal.
func TestTablesQuoteNames(t *testing.T) {
	for name, want := range hostile {
		for what, print := range printers(name) {
			var out, plain bytes.Buffer
			print(commandOn(&out))
			printers("plain")[what](commandOn(&plain))
			text := out.String()
			if i := strings.IndexFunc(text, unseen); i >= 0 {
				t.Errorf("%s of %q: %q", what, name, text[i:])
			}
			if !strings.Contains(text, want) {
				t.Errorf("%s of %q lack %q:\n%s", what, name, want, text)
			}
			if got, want := strings.Count(text, "\n"), strings.Count(plain.String(), "\n"); got != want {
				t.Errorf("%s of %q have %d lines, not %d:\n%s", what, name, got, want, text)
			}
		}
		var out bytes.Buffer
		b := commandOn(&out)
		b.io.printf("Released %s\n", name)
		if got := out.String(); got != "Released "+want+"\n" {
			t.Errorf("a message with %q: %q", name, got)
		}
		b.fail(errors.New(name))
		if i := strings.IndexFunc(out.String(), unseen); i >= 0 {
			t.Errorf("messages with %q: %q", name, out.String())
		}
	}
}

// unseen are runes that must not reach a terminal, apart from line ends and
// tabs.
func unseen(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }

// JSON stays valid, with the same names.
func TestJSONQuotesNames(t *testing.T) {
	for name := range hostile {
		var out bytes.Buffer
		b := commandOn(&out)
		b.json = true
		b.printJSON([]string{name})
		if i := strings.IndexFunc(out.String(), unseen); i >= 0 {
			t.Errorf("%q: %q", name, out.String())
		}
		var got []string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 1 || got[0] != strings.ToValidUTF8(name, "\ufffd") {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// A text that is written in pieces is quoted as one text.
func TestQuotingPieces(t *testing.T) {
	const text = "größe \u202e作业 \x1b[0m \U000e0041 end\n"
	var whole, pieces bytes.Buffer
	if _, err := io.WriteString(&quoting{w: &whole}, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(&quoting{w: &pieces}, iotest.OneByteReader(strings.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	if whole.String() != pieces.String() || !strings.Contains(whole.String(), `größe \u202e作业 \u001b[0m`) {
		t.Errorf("%q, in pieces %q", whole.String(), pieces.String())
	}
}

// The agent's log is quoted, too.
func TestLogQuotesNames(t *testing.T) {
	for name := range hostile {
		var out bytes.Buffer
		b := commandOn(&out)
		log := hclog.New(&hclog.LoggerOptions{Output: b.io.err, TimeFn: func() time.Time { return time.Unix(0, 0) }})
		log.Info("placed", "job", name, "error", name)
		if i := strings.IndexFunc(out.String(), unseen); i >= 0 {
			t.Errorf("%q: %q", name, out.String())
		}
	}
}

// No command writes to output streams that do not quote.
func TestNobodyPrintsUnquoted(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") || name == "main.go" {
			continue
		}
		if found := regexp.MustCompile(`os\.Std(out|err)|fmt\.Print(f|ln)?\(`).FindString(string(text)); found != "" {
			t.Errorf("%s: %s", name, found)
		}
	}
}
