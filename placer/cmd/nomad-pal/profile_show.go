// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

var errNoProfile = errors.New("there is no profile yet: the agent makes a profile from measurements that nodes publish, or that nomad-pal profile import stores")

var helpProfileShow = help("profile show [options]", `
Shows how much the GPUs of each model differ, for each application class. It lists how many
GPUs are in each variability class, and names the outliers. Last, it compares the models.
A PM score is the time on a GPU relative to the median GPU.

Show Options:

  -verbose                 List every GPU.
`, examples(
	"How different are the GPUs?", "nomad-pal profile show",
	"Every GPU:", "nomad-pal profile show -verbose",
), outputOptions, generalOptions)

func runProfileShow(b *base, args []string) int {
	fs := b.flags("profile show")
	verbose := fs.Bool("verbose", false, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	p, err := profileInForce(b)
	if err != nil {
		return b.fail(err)
	}
	groups := summarize(p)
	return b.show(groups, func() { printProfile(b, p, groups, *verbose) })
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

// summarize returns a summary of each group of the profile.
func summarize(p *profile.Profile) []groupSummary {
	out := []groupSummary{}
	for _, g := range p.Groups {
		s := groupSummary{Group: g, Members: members(p, g)}
		if r, ok := p.Rate(g.Model, g.App); ok {
			s.Rate = r.Rate
			s.Unit = attr.RateUnit(g.App)
			s.RatedGPUs = r.GPUs
			s.Speed = p.Speeds(g.App)[g.Model]
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

func printProfile(b *base, p *profile.Profile, groups []groupSummary, verbose bool) {
	rows := []string{row("Profile", fmt.Sprintf("version %d", p.Version))}
	if t, err := time.Parse(time.RFC3339, p.Created); err == nil {
		rows = append(rows, row("Built", clock(t)))
	}
	unmeasured := 0
	for _, g := range p.GPUs {
		if len(g.Entries) == 0 {
			unmeasured++
		}
	}
	b.io.pairs(append(rows, row("GPUs", fmt.Sprintf("%d, %d of them unmeasured", len(p.GPUs), unmeasured))))
	printSpeeds(b, modelSpeeds(p))
	for _, g := range groups {
		printGroup(b, g, verbose)
	}
}

// modelSpeeds returns the speeds of the profile's models, including models that the cluster no
// longer has.
func modelSpeeds(p *profile.Profile) (out []palapi.ModelSpeed) {
	for _, r := range p.Rates {
		out = append(out, palapi.ModelSpeed{Device: r.Model, Class: r.App, Rate: r.Rate, Unit: attr.RateUnit(r.App), GPUs: r.GPUs, Speed: p.Speeds(r.App)[r.Model]})
	}
	return out
}

func printGroup(b *base, g groupSummary, verbose bool) {
	key := ""
	if g.Key != "" {
		key = ", key " + g.Key
	}
	b.io.printf("\n")
	b.io.say(plain, fmt.Sprintf("%s, application %s%s", g.Model, g.App, key))
	remarks := fmt.Sprintf("%d GPUs, median time %.6g, spread %.1f %%", g.Measured, g.Reference, 100*g.Spread)
	if g.Provisional {
		remarks += ", provisional, because too few GPUs are measured"
	}
	if g.SingleClass {
		remarks += ", one class, because the spread is within the noise of the measurements"
	}
	b.io.say(plain, remarks)
	rows := []string{row("Class", "GPUs", "PM scores")}
	for class := range profile.MaxClass {
		of := slices.DeleteFunc(slices.Clone(g.Members), func(m memberSummary) bool { return m.Class != class+1 })
		span := "-"
		if len(of) > 0 {
			span = fmt.Sprintf("%.3f … %.3f", of[0].Score, of[len(of)-1].Score)
		}
		rows = append(rows, row(class+1, len(of), span))
	}
	b.io.table(rows)
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
		b.io.table(rows)
	}
}
