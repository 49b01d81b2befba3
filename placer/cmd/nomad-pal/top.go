// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

type topCommand struct {
	base
	// screen is that of a test; nil: the terminal.
	screen tcell.Screen
}

var helpTop = help("top [options]", `
Shows racks, nodes and GPUs by variability class, and jobs: the waiting ones by
position, then those that run. Below stands why the selected one is as it is.
u shows what GPUs do now, as nvitop does: utilization, memory, temperature, power
and who holds them. Works in 80 columns and 24 lines, and without colours.
Without a terminal, it prints once what "nomad-pal gpus -live" does.

`+topHelp+`
Top Options:

  -interval=<duration>     How often to look. Default: 2s, and up to 20s on a cluster
                           about which it takes seconds to ask.
`, examples(
	"Watch the cluster:", "nomad-pal top",
	"Over the agent of another cluster:", "nomad-pal top -address https://nomad.example.com:4646",
), generalOptions)

func runTop(b *base, args []string) int { return (&topCommand{base: *b}).run(args) }

func (c *topCommand) run(args []string) int {
	fs := c.only(c.flags("top"))
	every := fs.Duration("interval", 2*time.Second, "")
	if _, ok := c.parse(fs, args, 0); !ok {
		return 1
	}
	switch {
	case *every <= 0:
		return c.fail(errors.New("-interval must be above 0"))
	case c.screen == nil && !c.io.terminal:
		return c.followGPUs(&gpuReader{b: &c.base, live: true}, *every)
	}
	a, err := c.ask()
	if err != nil {
		return c.fail(err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.ctx = ctx
	v := newTopView(c.colored() || c.forceColor, c.screen)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer v.app.Stop() // also if this panics: the terminal is as it was
		c.follow(v, a, *every)
	}()
	err = v.app.Run()
	cancel()
	<-ended
	if err != nil {
		return c.fail(fmt.Errorf("using the terminal: %w", err))
	}
	return 0
}

// topState is what is shown.
type topState struct {
	at   time.Time
	from string // who was asked
	jobs []model.JobStatus
	gpus []query.GPU // by rack and node
	// use are those of the nodes that are asked what their GPUs do, notUsed is why there are none.
	use      []query.GPU
	notUsed  string
	idLength int
	counts   gpuCounts

	activity heartbeat.Activity
	err      error
}

// follow looks again and again, until the command ends.
func (c *topCommand) follow(v *topView, a *answers, every time.Duration) {
	for c.ctx.Err() == nil {
		began, pause := time.Now(), every
		var s topState
		c.within(func() { s = c.look(&a, v.useOf.Load()) })
		v.on(c.ctx, func() { v.update(s) })
		if s.err == nil { // a look at a large cluster costs its servers
			pause = max(every, min(10*time.Since(began), topPause))
		}
		next := time.NewTimer(pause)
		for waits := true; waits; {
			select {
			case <-c.ctx.Done():
				waits = false
			case <-next.C:
				waits = false
			case <-v.again:
				waits = false
			case w := <-v.wants:
				c.within(func() { c.answer(a, v, w) })
			}
		}
		next.Stop()
	}
}

// topPause is the longest pause between two looks, if nobody asks for a longer one.
const topPause = 20 * time.Second

// topWithin is how long an answer may take until there is none.
const topWithin = 30 * time.Second

// within has f ask with that bound.
func (c *topCommand) within(f func()) {
	whole := c.ctx
	defer func() { c.ctx = whole }()
	ctx, cancel := context.WithTimeout(whole, topWithin)
	defer cancel()
	c.ctx = ctx
	f()
}

// look asks again whoever was asked before; after an error, it begins again. What GPUs do now is asked of
// the nodes that are shown so, nil for none.
func (c *topCommand) look(a **answers, useOf *[]string) (s topState) {
	s.at = time.Now()
	if *a, s.err = c.askAgain(*a); s.err == nil {
		s.jobs, s.err = (*a).Jobs()
	}
	if s.err == nil {
		s.gpus, s.err = (*a).GPUs()
	}
	if s.err != nil {
		*a = nil
		return s
	}
	s.arrange()
	if useOf != nil {
		use, err := (*a).SomeGPUs(query.GPUFilter{Nodes: *useOf}, true)
		if s.use = use; err != nil {
			s.notUsed = oneLine(err.Error())
		}
	}
	s.activity, s.from = (*a).activity, (*a).address
	return s
}

// arrange does what takes long if nobody waits for it: not for each key.
func (s *topState) arrange() {
	slices.SortStableFunc(s.gpus, func(a, b query.GPU) int {
		return cmp.Or(strings.Compare(rackOf(a), rackOf(b)), cmp.Compare(len(a.Node), len(b.Node)), strings.Compare(a.Node, b.Node))
	})
	s.idLength = idLength(s.gpus)
	s.counts = countGPUs(s.gpus)
}

// topWant is a job to be explained; whole: with the evidence.
type topWant struct {
	job   cluster.JobKey
	whole bool
}

func (c *topCommand) answer(a *answers, v *topView, w topWant) {
	text := "No answer."
	if a == nil {
		v.on(c.ctx, func() { v.explained(w, text) })
		return
	}
	e, err := a.Explain(w.job)
	switch {
	case err != nil:
		text = quoted(oneLine(err.Error()), "")
	case w.whole:
		var out bytes.Buffer
		printExplanation(&base{io: streams{out: &out, terminal: true}}, e)
		text = out.String()
	default:
		text = quoted(e.Headline(time.Now()), "")
	}
	v.on(c.ctx, func() { v.explained(w, text) })
}
