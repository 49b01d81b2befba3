// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

var helpGPUs = help("gpus [options]", `
Shows every GPU with its variability class per application class (1 is the
fastest), its PM score for class A, its state (free, allocated, unhealthy,
quarantined, or unavailable, and why), and the job that holds it. A degraded GPU
is in the last class. Of several GPU models it also shows how fast they are, where
that was measured.
`, examples(
	"Which GPUs are there, and who holds them?", "nomad-pal gpus",
	"Which are not healthy?", "nomad-pal gpus | grep -e unhealthy -e degraded -e quarantined",
), exitCodes, outputOptions, generalOptions)

func (b *base) runGPUs(args []string) int {
	if _, ok := b.parse(b.flags("gpus"), args, 0); !ok {
		return 1
	}
	s, err := b.ask()
	if lacksAgent(err) {
		return b.plainGPUs(err)
	}
	if err != nil {
		return b.fail(err)
	}
	gpus, err := s.GPUs()
	if err != nil {
		return b.fail(err)
	}
	speeds, err := s.Models()
	if err != nil {
		return b.fail(err)
	}
	return s.close(b.show(gpus, func() {
		b.warn(s)
		b.printAllGPUs(gpus)
		b.printSpeeds(speeds, 2)
	}))
}

// plainGPUs shows what Nomad itself says, as no agent answers.
func (b *base) plainGPUs(why error) int {
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	s, err := b.plainly(client, nil)
	if err != nil {
		return b.fail(err)
	}
	gpus := s.GPUs()
	code := b.show(gpus, func() { b.printAllGPUs(gpus) })
	fmt.Fprintln(b.io.err, b.plainNote(client, why))
	return code
}

func (b *base) printAllGPUs(gpus []query.GPU) {
	if len(gpus) == 0 {
		b.printf("No GPUs. Is the device plugin installed on the clients?\n")
		return
	}
	b.printGPUs(gpus, idLength(gpus))
}

// idLength is how much of an id tells each of the GPUs from the others.
func idLength(gpus []query.GPU) int {
	return query.IDLength(each(gpus, func(g query.GPU) string { return g.ID }))
}

// printGPUs prints a table of GPUs, on a terminal with so much of their ids.
func (b *base) printGPUs(gpus []query.GPU, length int) {
	only := b.onlyModel(gpus)
	row := rowWith(true, true, only == "", true, true, true, true, true, true, true)
	rows := []string{row("GPU", "Node", "Device", "A", "B", "C", "D", "Score A", "State", "Job")}
	for _, g := range gpus {
		rows = append(rows, row(shortGPU(g.ID, b.idLength(length)), g.Node, g.Device,
			class(g.Classes[pal.ClassA]), class(g.Classes[pal.ClassB]), class(g.Classes[pal.ClassC]), class(g.Classes[pal.ClassD]),
			score(g.PMScores[pal.ClassA]), gpuState(g), g.Job))
	}
	b.table(rows)
	if only != "" {
		b.say(plain, "All are "+only+".")
	}
}

// digits is a number with three digits, or all before the point.
func digits(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// printSpeeds prints how fast GPU models are, if there are so many.
func (b *base) printSpeeds(speeds []ledger.ModelSpeed, least int) {
	head := []any{"GPU model"}
	for _, c := range pal.AppClasses() {
		head = append(head, fmt.Sprintf("%s (%s)", c, attr.RateUnit(c)))
	}
	rows, models := []string{row(append(head, "GPUs")...)}, map[string][]ledger.ModelSpeed{}
	for _, s := range speeds {
		models[s.Device] = append(models[s.Device], s)
	}
	for _, device := range slices.Sorted(maps.Keys(models)) {
		cells, gpus := []any{device}, 0
		for _, c := range pal.AppClasses() {
			cell := "-"
			for _, s := range models[device] {
				if s.Class == c {
					cell, gpus = fmt.Sprintf("%s (%s)", digits(s.Speed), digits(s.Rate)), max(gpus, s.GPUs)
				}
			}
			cells = append(cells, cell)
		}
		rows = append(rows, row(append(cells, gpus)...))
	}
	if len(models) >= least {
		b.section("GPU models, by application class: speed over the fastest (measured rate of the median GPU)", rows)
	}
}

// gpuState is a GPU's state, coloured, with the reason if there is one.
func gpuState(g query.GPU) painted {
	p := painted{plain, string(g.State)}
	switch {
	case g.State == model.GPUUnhealthy:
		p = painted{red, p.text + ": " + oneLine(g.Unhealthy)}
	case g.State == model.GPUQuarantined:
		p = painted{red, p.text}
	case g.State == model.GPUUnavailable:
		p = painted{yellow, p.text + ": " + g.Unavailable}
	case g.State == model.GPUFree:
		p.style = green
	}
	if g.Window != "" {
		p = painted{yellow, p.text + ", kept by window " + g.Window}
	}
	if g.Degraded != "" && g.State != model.GPUUnhealthy {
		p = painted{yellow, p.text + ", degraded: " + oneLine(g.Degraded)}
	}
	return p
}

// onlyModel is the model of all GPUs, on a terminal, where it would take a third of each
// line; "" if there are several.
func (b *base) onlyModel(gpus []query.GPU) string {
	if !b.io.terminal || len(gpus) == 0 || slices.ContainsFunc(gpus, func(g query.GPU) bool { return g.Device != gpus[0].Device }) {
		return ""
	}
	return gpus[0].Device
}
