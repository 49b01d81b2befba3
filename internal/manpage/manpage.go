// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package manpage turns the help of commands into manual pages, so that each command is described
// only once. man-pages(7) describes the form of the pages.
package manpage

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nomad-pal/nomad-pal/internal/version"
)

// Command is one command of a program.
type Command struct {
	// Name is the word to type after the program's name.
	Name string
	// Synopsis describes the command in one line.
	Synopsis string
	// Help begins with "Usage: ". The title of each section ends with a colon.
	Help string
}

// Write writes a page for the program and one for each of its commands into a folder. date is the
// release's date (YYYY-MM-DD).
func Write(dir, date, program, synopsis string, commands []Command) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString(page(program, synopsis, date, fmt.Sprintf("Usage: %s <command> [options]\n\nCommand x has a page of its own: man %s-x.\n\nCommands:\n", program, program)))
	for _, c := range commands {
		text.WriteString(".TP\n" + escape(c.Name) + "\n" + escape(c.Synopsis) + "\n")
		if err := write(dir, program+" "+c.Name, page(program+" "+c.Name, c.Synopsis, date, c.Help)); err != nil {
			return err
		}
	}
	return write(dir, program, text.String())
}

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, fileName(name)), []byte(text), 0o644)
}

// fileName returns the file name of the page of a program or command.
func fileName(name string) string { return strings.ReplaceAll(name, " ", "-") + ".1" }

var (
	title  = regexp.MustCompile(`^([A-Z][A-Za-z ]*):$`)
	option = regexp.MustCompile(`^  (-\S.*?)(?:  +(.*))?$`)
	// more matches a further line of an option's description.
	more = regexp.MustCompile(`^ {10,}\S`)
)

// page returns the text of one manual page.
func page(name, synopsis, date, help string) string {
	usage, text, _ := strings.Cut(strings.TrimPrefix(help, "Usage: "), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 %q %q\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s\n.SH DESCRIPTION\n",
		strings.ToUpper(strings.ReplaceAll(name, " ", "-")), date, "nomad-pal "+version.Number, escape(strings.ReplaceAll(name, " ", "-")), escape(synopsis), escape(usage))
	literal, wasOption, gap, headed := false, false, false, true // headed: the line follows a heading
	paragraph := func() {
		if !headed {
			b.WriteString(".PP\n")
		}
	}
	for line := range strings.SplitSeq(dedent(strings.Trim(text, "\n")), "\n") {
		indented := strings.HasPrefix(line, " ")
		if literal && !indented && line != "" {
			b.WriteString(".EE\n")
			literal = false
		}
		switch {
		case line == "":
			gap = true
			continue
		case title.MatchString(line):
			b.WriteString(".SH " + strings.ToUpper(title.FindStringSubmatch(line)[1]) + "\n")
			wasOption, headed, gap = false, true, false
			continue
		case !literal && option.MatchString(line):
			m := option.FindStringSubmatch(line)
			b.WriteString(".TP\n" + escape(m[1]) + "\n")
			if m[2] != "" {
				b.WriteString(escape(m[2]) + "\n")
			}
			wasOption = true
		case wasOption && more.MatchString(line):
			b.WriteString(escape(strings.TrimSpace(line)) + "\n")
		case indented:
			switch {
			case !literal:
				paragraph()
				b.WriteString(".EX\n")
			case gap:
				b.WriteString("\n")
			}
			b.WriteString(escape(line) + "\n")
			literal, wasOption = true, false
		default:
			if gap {
				paragraph()
			}
			b.WriteString(escape(line) + "\n")
			wasOption = false
		}
		gap, headed = false, false
	}
	if literal {
		b.WriteString(".EE\n")
	}
	return b.String()
}

var (
	titles = regexp.MustCompile(`(?m)` + title.String())
	indent = regexp.MustCompile(`(?m)^  ([^-])`)
)

// dedent removes the two leading spaces of each line in a help text without titles.
func dedent(text string) string {
	if titles.MatchString(text) {
		return text
	}
	return indent.ReplaceAllString(text, "$1")
}

// escape makes troff print a line unchanged.
func escape(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "\t", "    ").Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
