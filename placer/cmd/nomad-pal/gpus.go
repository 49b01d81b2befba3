// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

var helpGPUs = help("gpus [options]", `
Shows every GPU: its number in nvidia-smi (Index), its state, and the job that holds it.
For each application class, it shows the GPU's variability class, from 1, the fastest, to 5.
It also shows the PM score for class A. A degraded GPU is in class 5. profile show compares
GPU models.

With -live, it shows the current load of GPUs instead: utilization, memory, temperature
and power, as the device plugins sample them. It reads at most 64 nodes, through Nomad.
The token needs the right to read nodes.

GPUs Options:

  -live                    Show the current load.
  -node=<name>             Only GPUs of this node; may be given several times.
  -job=<job>               Only GPUs that this job holds.
`, examples(
	"Which GPUs does the cluster have, and who holds them?", "nomad-pal gpus",
	"Which GPUs are not healthy?", "nomad-pal gpus | grep -e unhealthy -e degraded -e quarantined",
	"What are the GPUs of a job doing?", "watch nomad-pal gpus -live -job train",
), exitCodes, outputOptions, generalOptions)

func runGPUs(b *base, args []string) int {
	fs := b.flags("gpus")
	nodes := paths{}
	fs.Var(&nodes, "node", "")
	live := fs.Bool("live", false, "")
	job := fs.String("job", "", "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	f := palapi.GPUFilter{Nodes: nodes}
	if *job != "" {
		f.Job = keyOf(b, *job).String()
	}
	a, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	gpus, err := a.SomeGPUs(f, *live)
	if err != nil {
		return b.fail(err)
	}
	if *live {
		return a.close(b.show(gpus, func() { printLive(b, gpus) }))
	}
	return a.close(b.show(gpus, func() { printGPUs(b, gpus) }))
}

// printGPUs prints a table of GPUs. On a terminal, ids are cut so that they still differ.
func printGPUs(b *base, gpus []palapi.GPU) {
	if len(gpus) == 0 {
		b.io.printf("No GPU matches.\n")
		return
	}
	short := b.io.shortIDs(each(gpus, func(g palapi.GPU) string { return g.ID }))
	index, bus := placeColumns(gpus)
	row := rowWith(true, true, index, bus, true, true, true, true, true, true, true, true)
	rows := []string{row("GPU", "Node", "Index", "Bus id", "Model", "A", "B", "C", "D", "Score A", "Job", "State")}
	for _, g := range gpus {
		rows = append(rows, row(short(g.ID), g.Node, indexOf(g), g.BusID, modelOf(g.Device),
			class(g.Classes[pal.ClassA]), class(g.Classes[pal.ClassB]), class(g.Classes[pal.ClassC]), class(g.Classes[pal.ClassD]),
			palapi.Score(g.PMScores[pal.ClassA]), g.Job, liveState(g, time.Now())))
	}
	b.io.table(rows)
	sayUncapped(b, gpus...)
}

// sayUncapped prints for how many of the GPUs the scores of class A say little.
func sayUncapped(b *base, gpus ...palapi.GPU) {
	n := 0
	for _, g := range gpus {
		if g.Uncapped {
			n++
		}
	}
	if n > 0 {
		b.io.say(plain, "Note: "+palapi.Uncapped(n)+".")
	}
}

// printSpeeds prints the speeds of the GPU models.
func printSpeeds(b *base, speeds []palapi.ModelSpeed) {
	head := []any{"GPU model"}
	for _, c := range pal.AppClasses() {
		head = append(head, fmt.Sprintf("%s (%s)", c, attr.RateUnit(c)))
	}
	rows, models := []string{row(append(head, "GPUs")...)}, map[string][]palapi.ModelSpeed{}
	for _, s := range speeds {
		models[s.Device] = append(models[s.Device], s)
	}
	for _, device := range slices.Sorted(maps.Keys(models)) {
		cells, gpus := []any{device}, 0
		for _, c := range pal.AppClasses() {
			cell := "-"
			for _, s := range models[device] {
				if s.Class == c {
					cell, gpus = fmt.Sprintf("%s (%s)", palapi.Round3(s.Speed), palapi.Round3(s.Rate)), max(gpus, s.GPUs)
				}
			}
			cells = append(cells, cell)
		}
		rows = append(rows, row(append(cells, gpus)...))
	}
	b.io.section("GPU models, by application class: measured speed of the median GPU, relative to the fastest model", rows)
}

// gpuState returns a GPU's state in colour, and its reason if there is one.
func gpuState(g palapi.GPU) painted {
	p := painted{plain, string(g.State)}
	switch {
	case g.State == palapi.GPUUnhealthy:
		p = painted{red, p.text + ": " + oneLine(g.Unhealthy)}
	case g.State == palapi.GPUQuarantined && g.Quarantine != nil:
		p = painted{red, p.text + ": " + oneLine(g.Quarantine.Reason)}
	case g.State == palapi.GPUUnavailable:
		p = painted{yellow, p.text + ": " + g.Unavailable}
	case g.State == palapi.GPUFree:
		p.style = green
	}
	if g.Window != "" {
		p = painted{yellow, p.text + ", kept by window " + g.Window}
	}
	if g.Degraded != "" && g.State != palapi.GPUUnhealthy {
		p = painted{yellow, p.text + ", degraded: " + oneLine(g.Degraded)}
	}
	return p
}

// modelOf returns the model in a device's name.
func modelOf(device string) string { return device[strings.LastIndex(device, "/")+1:] }
