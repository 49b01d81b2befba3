// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

var errNoProfile = errors.New("there is no profile yet: the agent makes a profile from measurements that nodes publish, or that nomad-pal profile import stores")

var helpProfileShow = help("profile show [options] [<file>]", `
Shows, for each GPU model and application, how PM scores (time relative to the
median GPU) are distributed over the variability classes, and names the
outliers; and compares GPU models whose rates were measured.
Without a file it shows the profile in force.

Show Options:

  -app=<name>              Only this application class or application.
  -verbose                 List every GPU.
`, examples(
	"How different are the GPUs?", "nomad-pal profile show",
	"Every GPU of one class:", "nomad-pal profile show -app A -verbose",
), outputOptions, generalOptions)

func runProfileShow(b *base, args []string) int {
	fs := b.flags("profile show")
	app := fs.String("app", "", "")
	verbose := fs.Bool("verbose", false, "")
	rest, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	p, err := readProfile(b, rest)
	if err != nil {
		return b.fail(err)
	}
	groups := summarize(p, *app)
	if len(groups) == 0 {
		return b.fail(fmt.Errorf("the profile has no measurements of application %q", *app))
	}
	return b.show(groups, func() { printProfile(b, p, *app, *verbose) })
}

func readProfile(b *base, files []string) (*profile.Profile, error) {
	switch len(files) {
	case 0:
		return profileInForce(b)
	case 1:
		return parseProfile(b, files[0], "the profile")
	}
	return nil, fmt.Errorf("nomad-pal profile show takes one file, got %d", len(files))
}

// parseProfile reads a profile from a file. An error uses the text in what as the name of the
// profile.
func parseProfile(b *base, path, what string) (*profile.Profile, error) {
	data, err := b.readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	p, err := profile.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// profileInForce reads the profile in force. The error explains why the profile is missing or
// cannot be read.
func profileInForce(b *base) (*profile.Profile, error) {
	client, err := b.client()
	if err != nil {
		return nil, err
	}
	p, err := store.In(client).Profile().ReadOrRefused(b.ctx)
	if err == nil && p == nil {
		err = errNoProfile
	}
	return p, err
}

// groupSummary compares the GPUs of one model by their PM scores for one application class,
// measured under one comparability key.
type groupSummary struct {
	profile.Group
	// Classes are all variability classes from 1 up, including classes without GPUs.
	Classes []classSummary `json:"classes"`
	// Rate, in Unit, is the median of the rates that RatedGPUs GPUs of this model reached for this
	// application. Speed is Rate divided by the rate of the fastest model. Rate, RatedGPUs and
	// Speed include GPUs that were measured under other keys.
	Rate      float64 `json:"rate,omitempty"`
	Unit      string  `json:"rate_unit,omitempty"`
	RatedGPUs int     `json:"rated_gpus,omitempty"`
	Speed     float64 `json:"speed,omitempty"`
	// Members are the GPUs, fastest first.
	Members []memberSummary `json:"gpus"`
}

// classSummary summarizes the GPUs of one variability class.
type classSummary struct {
	Class int         `json:"class"`         // the class, from 1 (the fastest) to 5
	GPUs  int         `json:"gpus"`          // number of GPUs in the class
	Min   pal.PMScore `json:"min,omitempty"` // lowest PM score; missing if there are no GPUs
	Max   pal.PMScore `json:"max,omitempty"` // highest PM score; missing if there are no GPUs
}

// memberSummary is one GPU in a group summary.
type memberSummary struct {
	ID      string      `json:"id"`                // the GPU's id
	Score   pal.PMScore `json:"pm_score"`          // the GPU's time relative to the median GPU
	Class   int         `json:"class"`             // the GPU's variability class; 1 is the fastest
	Outlier bool        `json:"outlier,omitempty"` // the GPU is an outlier
	// Pending is the class that one measuring session has indicated; 0 if none. A second session in
	// the same direction changes the class.
	Pending int `json:"pending_class,omitempty"`
}

// summarize returns a summary of each group of the profile or, if app is not "", of each group of
// this application class.
func summarize(p *profile.Profile, app string) []groupSummary {
	var out []groupSummary
	for _, g := range p.Groups {
		if app != "" && g.App != pal.AppClass(app) {
			continue
		}
		s := groupSummary{Group: g, Members: members(p, g)}
		if r, ok := p.Rate(g.Model, g.App); ok {
			s.Rate, s.Unit, s.RatedGPUs, s.Speed = r.Rate, attr.RateUnit(g.App), r.GPUs, p.Speeds(g.App)[g.Model]
		}
		for class := range profile.MaxClass {
			c := classSummary{Class: class + 1}
			for _, m := range s.Members {
				if m.Class != c.Class {
					continue
				}
				if c.GPUs == 0 {
					c.Min = m.Score
				}
				c.Max = m.Score
				c.GPUs++
			}
			s.Classes = append(s.Classes, c)
		}
		out = append(out, s)
	}
	return out
}

// members returns the group's GPUs sorted by PM score, the fastest first; equal scores by id.
func members(p *profile.Profile, g profile.Group) []memberSummary {
	ms := []memberSummary{}
	for _, u := range p.GPUs {
		if u.Model != g.Model {
			continue
		}
		for _, e := range u.Entries {
			if e.App == g.App && e.Key == g.Key {
				ms = append(ms, memberSummary{ID: u.ID, Score: e.Score, Class: e.Class, Outlier: e.Outlier, Pending: e.Pending})
			}
		}
	}
	slices.SortFunc(ms, func(a, b memberSummary) int { return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.ID, b.ID)) })
	return ms
}

// barWidth is the length, in characters, of the bar for the class with the most GPUs.
const barWidth = 40

func printProfile(b *base, p *profile.Profile, app string, verbose bool) {
	rows := []string{row("Profile", fmt.Sprintf("version %d, %s", p.Version, p.Options.Method))}
	if t, err := time.Parse(time.RFC3339, p.Created); err == nil {
		rows = append(rows, row("Built", clock(t)))
	}
	unmeasured := 0
	for _, g := range p.GPUs {
		if len(g.Entries) == 0 {
			unmeasured++
		}
	}
	b.pairs(append(rows, row("GPUs", fmt.Sprintf("%d, %d of them unmeasured", len(p.GPUs), unmeasured))))
	printSpeeds(b, modelSpeeds(p, app), 1)
	for _, g := range summarize(p, app) {
		printGroup(b, g, verbose)
	}
}

// modelSpeeds returns the speeds of the profile's models, including models that the cluster no
// longer has. If app is not "", modelSpeeds returns only the speeds for this application class.
func modelSpeeds(p *profile.Profile, app string) (out []palapi.ModelSpeed) {
	for _, r := range p.Rates {
		if app == "" || r.App == pal.AppClass(app) {
			out = append(out, palapi.ModelSpeed{Device: r.Model, Class: r.App, Rate: r.Rate, Unit: attr.RateUnit(r.App), GPUs: r.GPUs, Speed: p.Speeds(r.App)[r.Model]})
		}
	}
	return out
}

func printGroup(b *base, g groupSummary, verbose bool) {
	key := ""
	if g.Key != "" {
		key = ", key " + g.Key
	}
	b.printf("\n")
	b.say(plain, fmt.Sprintf("%s, application %s%s", g.Model, g.App, key))
	remarks := fmt.Sprintf("%d GPUs, median time %.6g, spread %.1f %%", g.Measured, g.Reference, 100*g.Spread)
	if g.Provisional {
		remarks += ", provisional, because too few GPUs are measured"
	}
	if g.SingleClass {
		remarks += ", one class, because the spread is within the noise of the measurements"
	}
	b.say(plain, remarks)
	most := 1
	for _, c := range g.Classes {
		most = max(most, c.GPUs)
	}
	rows := []string{row("Class", "GPUs", "PM scores", "Share")}
	for _, c := range g.Classes {
		span := "-"
		if c.GPUs > 0 {
			span = fmt.Sprintf("%.3f … %.3f", c.Min, c.Max)
		}
		bar := strings.Repeat("█", (c.GPUs*barWidth+most-1)/most)
		rows = append(rows, row(c.Class, c.GPUs, span, bar))
	}
	b.table(rows)
	printMembers(b, g, verbose)
}

// printMembers lists the group's outliers or, if verbose is set, all GPUs of the group.
func printMembers(b *base, g groupSummary, verbose bool) {
	rows := []string{row("GPU", "PM score", "Class", "Remark")}
	for _, m := range g.Members {
		remark := ""
		switch {
		case m.Outlier:
			remark = "outlier"
		case m.Pending > 0:
			remark = fmt.Sprintf("moves to class %d if a second session confirms this", m.Pending)
		}
		if verbose || m.Outlier {
			rows = append(rows, row(m.ID, fmt.Sprintf("%.3f", m.Score), m.Class, remark))
		}
	}
	if len(rows) > 1 {
		b.table(rows)
	}
}
