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
	// screen is the simulated screen in tests; nil means the terminal.
	screen tcell.Screen
}

var helpTop = help("top [options]", `
Shows racks, nodes and GPUs by variability class, and jobs: waiting jobs by position,
then running ones. Below them it explains the state of the selected job. u shows the
current load of GPUs, as nvitop does: utilization, memory, temperature, power and the
job that holds them. 80 columns, 24 lines and no colours are enough. Without
a terminal, it prints the output of "nomad-pal gpus -live" once.

`+topHelp+`
Top Options:

  -interval=<duration>     How often to refresh. Default: 2s; up to 20s on a cluster
                           that takes seconds to answer.
`, examples(
	"Watch the cluster:", "nomad-pal top",
	"Watch another cluster:", "nomad-pal top -address https://nomad.example.com:4646",
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
		defer v.app.Stop() // also after a panic, because Stop restores the terminal
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

// topState is one snapshot of the data on screen.
type topState struct {
	at   time.Time
	from string // address of the agent that answered
	jobs []model.JobStatus
	gpus []query.GPU // sorted by rack and node
	// use are the GPUs whose current load was read. notUsed is the error if reading the load
	// failed.
	use      []query.GPU
	notUsed  string
	idLength int
	counts   gpuCounts

	activity heartbeat.Activity
	err      error
}

// follow refreshes the screen until the command ends.
func (c *topCommand) follow(v *topView, a *answers, every time.Duration) {
	for c.ctx.Err() == nil {
		began, pause := time.Now(), every
		var s topState
		c.within(func() { s = c.look(&a, v.useOf.Load()) })
		v.on(c.ctx, func() { v.update(s) })
		if s.err == nil { // frequent polls would load the agent of a large cluster
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

// topPause is the longest pause between two refreshes, unless -interval is longer.
const topPause = 20 * time.Second

// topWithin is the time limit of one refresh.
const topWithin = 30 * time.Second

// within runs f with the time limit topWithin.
func (c *topCommand) within(f func()) {
	whole := c.ctx
	defer func() { c.ctx = whole }()
	ctx, cancel := context.WithTimeout(whole, topWithin)
	defer cancel()
	c.ctx = ctx
	f()
}

// look reads a new state from the agent that answered last; after an error, look finds an agent
// again. look reads the current load of GPUs only from the nodes in useOf.
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

// arrange sorts the GPUs. Sorting is slow on a large cluster, so it happens once per refresh and
// not at each key press.
func (s *topState) arrange() {
	slices.SortStableFunc(s.gpus, func(a, b query.GPU) int {
		return cmp.Or(strings.Compare(rackOf(a), rackOf(b)), cmp.Compare(len(a.Node), len(b.Node)), strings.Compare(a.Node, b.Node))
	})
	s.idLength = idLength(s.gpus)
	s.counts = countGPUs(s.gpus)
}

// topWant requests the explanation of a job: the whole explanation if whole is set, otherwise only
// the headline.
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
