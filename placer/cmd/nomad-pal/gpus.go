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
Shows every GPU with its number in nvidia-smi (Index), its variability class per application class (1 is the
fastest), its PM score for class A, its state (free, allocated, unhealthy,
quarantined, or unavailable, and why), and the job that holds it. A degraded GPU
is in class 5, the slowest. With several GPU models, it also shows their measured speeds.

With -live, it shows the current load of GPUs instead: utilization, memory, temperature
and power, as the device plugins sample them. It reads at most 64 nodes, through Nomad.
The token needs the right to read nodes.

GPUs Options:

  -live                    Show the current load. On a terminal, refresh until Ctrl-C.
  -node=<name>             Only GPUs of this node; may be given several times.
  -job=<job>               Only GPUs that this job holds.
`, examples(
	"Which GPUs does the cluster have, and who holds them?", "nomad-pal gpus",
	"Which GPUs are not healthy?", "nomad-pal gpus | grep -e unhealthy -e degraded -e quarantined",
	"What are the GPUs of a job doing?", "nomad-pal gpus -live -job train",
), `
Exit code 3: an agent answers, but none is active. The answer is still printed.
`, outputOptions, generalOptions)

func runGPUs(b *base, args []string) int {
	fs := b.flags("gpus")
	r, nodes := gpuReader{b: b}, paths{}
	fs.BoolVar(&r.live, "live", false, "")
	fs.Var(&nodes, "node", "")
	job := fs.String("job", "", "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	r.filter.Nodes = nodes
	if *job != "" {
		r.filter.Job = keyOf(b, *job).String()
	}
	if r.live {
		return b.followGPUs(&r)
	}
	gpus, err := r.read()
	if err != nil {
		return b.fail(err)
	}
	var speeds []palapi.ModelSpeed
	if r.lacks == nil {
		if speeds, err = r.answers.Models(); err != nil {
			return b.fail(err)
		}
	}
	return r.close(b.show(gpus, func() {
		if r.lacks == nil {
			b.warn(r.answers)
		}
		printAllGPUs(b, gpus, r.filter)
		printSpeeds(b, speeds, 2)
	}))
}

func printAllGPUs(b *base, gpus []palapi.GPU, f palapi.GPUFilter) {
	if len(gpus) == 0 {
		printNoGPUs(b, f)
		return
	}
	printGPUs(b, gpus, idLength(gpus))
}

// printNoGPUs prints that no GPU matches the filter f.
func printNoGPUs(b *base, f palapi.GPUFilter) {
	of := ""
	if len(f.Nodes) > 0 {
		of = " is on " + strings.Join(f.Nodes, ", ")
	}
	if f.Job != "" {
		if of != "" {
			of += " and"
		}
		of += " is held by " + f.Job
	}
	if of == "" {
		b.printf("No GPUs. Is the device plugin installed on the clients?\n")
		return
	}
	b.printf("No GPU%s.\n", of)
}

// idLength returns the shortest length to which ids can be cut so that they still differ.
func idLength(gpus []palapi.GPU) int {
	return palapi.IDLength(each(gpus, func(g palapi.GPU) string { return g.ID }))
}

// printGPUs prints a table of GPUs. On a terminal, printGPUs cuts ids to the given length.
func printGPUs(b *base, gpus []palapi.GPU, length int) {
	only := onlyModel(b, gpus)
	index, bus := placeColumns(gpus)
	row := rowWith(true, true, index, bus, only == "", true, true, true, true, true, true, true)
	rows := []string{row("GPU", "Node", "Index", "Bus id", "Device", "A", "B", "C", "D", "Score A", "State", "Job")}
	for _, g := range gpus {
		rows = append(rows, row(shortGPU(g.ID, b.idLength(length)), g.Node, indexOf(g), g.BusID, g.Device,
			class(g.Classes[pal.ClassA]), class(g.Classes[pal.ClassB]), class(g.Classes[pal.ClassC]), class(g.Classes[pal.ClassD]),
			palapi.Score(g.PMScores[pal.ClassA]), liveState(g, time.Now()), g.Job))
	}
	b.table(rows)
	if only != "" {
		b.say(plain, "All are "+only+".")
	}
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
		b.say(plain, "Note: "+palapi.Uncapped(n)+".")
	}
}

// printSpeeds prints the speeds of the GPU models. If there are fewer models than least,
// printSpeeds prints nothing.
func printSpeeds(b *base, speeds []palapi.ModelSpeed, least int) {
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
	if len(models) >= least {
		b.section("GPU models, by application class: measured speed of the median GPU, relative to the fastest model", rows)
	}
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

// onlyModel returns the GPUs' model if the output is a terminal and all GPUs are of one model, and
// otherwise "". On a terminal, a column with the model would take a third of each line.
func onlyModel(b *base, gpus []palapi.GPU) string {
	if !b.io.terminal || len(gpus) == 0 || slices.ContainsFunc(gpus, func(g palapi.GPU) bool { return g.Device != gpus[0].Device }) {
		return ""
	}
	return gpus[0].Device
}
