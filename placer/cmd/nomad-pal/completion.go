// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/posener/complete"
)

// completeWithin is the maximum time for which a shell waits for ids.
const completeWithin = 3 * time.Second

// optionName matches the options in a help text.
var optionName = regexp.MustCompile(`(?:^|, |  )(-[a-z0-9-]+)(=?)`)

// AutocompleteFlags returns the options that the command's help describes.
func (c *command) AutocompleteFlags() complete.Flags {
	flags := complete.Flags{}
	for line := range strings.SplitSeq(c.help(), "\n") {
		if !strings.HasPrefix(line, "  -") {
			continue
		}
		head, _, _ := strings.Cut(line[2:], "  ")
		for _, m := range optionName.FindAllStringSubmatch(head, -1) {
			switch {
			case m[1] == "-job":
				flags[m[1]] = complete.PredictFunc(c.jobs)
			case m[2] == "=":
				flags[m[1]] = complete.PredictFiles("*")
			default:
				flags[m[1]] = complete.PredictNothing
			}
		}
	}
	return flags
}

// AutocompleteArgs completes what the command's usage asks for.
func (c *command) AutocompleteArgs() complete.Predictor {
	usage, _, _ := strings.Cut(c.help(), "\n\n")
	var all []complete.Predictor
	if strings.Contains(usage, "<job>") {
		all = append(all, complete.PredictFunc(c.jobs))
	}
	if strings.Contains(usage, "<gpu>") {
		all = append(all, complete.PredictFunc(c.gpus))
	}
	if strings.Contains(usage, "<jobspec>") || strings.Contains(usage, "<file>") {
		all = append(all, complete.PredictFiles("*"))
	}
	return complete.PredictOr(all...)
}

func (c *command) jobs(complete.Args) (ids []string) {
	c.forCompletion(func(a *answers) {
		jobs, _ := a.Jobs() // after an error there is nothing to offer
		for _, j := range jobs {
			if j.Namespace == usualNamespace() {
				ids = append(ids, j.Job)
			}
		}
	})
	return ids
}

func (c *command) gpus(complete.Args) (ids []string) {
	c.forCompletion(func(a *answers) {
		gpus, _ := a.GPUs()
		for _, g := range gpus {
			ids = append(ids, g.ID)
		}
	})
	return ids
}

// forCompletion calls f if an agent answers soon.
func (c *command) forCompletion(f func(*answers)) {
	ctx, cancel := context.WithTimeout(c.ctx, completeWithin)
	defer cancel()
	b := &base{ctx: ctx, io: streams{out: io.Discard, err: io.Discard}}
	b.flags("") // sets the options to their defaults
	if a, err := b.ask(); err == nil {
		f(a)
	}
}
