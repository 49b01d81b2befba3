// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rivo/tview"

	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// topMost is the highest variability class that has a column; this column also counts GPUs of
// slower classes.
const topMost = 5

// topUnit is a rack or a node, with its GPUs.
type topUnit struct {
	name, rack string
	nodes      int
	gpus       []query.GPU
}

// arrangeHardware fills the upper list with racks, nodes or GPUs.
func (v *topView) arrangeHardware() {
	shown := v.state.gpus
	if v.rack != "" || v.node != "" || v.match != "" {
		shown = nil
		for i := range v.state.gpus {
			g := &v.state.gpus[i]
			if (v.rack == "" || v.rack == rackOf(*g)) && (v.node == "" || v.node == g.Node) && v.matches(g.Node, g.Rack, g.ID, g.Job, g.Unhealthy, g.Degraded) {
				shown = append(shown, *g)
			}
		}
	}
	switch v.level {
	case topRacks:
		v.listRacks(units(shown, rackOf))
	case topNodes:
		v.listNodes(units(shown, func(g query.GPU) string { return g.Node }))
	case topUse:
		v.listUse(units(shown, func(g query.GPU) string { return g.NodeID }))
	default:
		v.listGPUs(shown)
	}
}

// listUse lists the current load of GPUs, the busiest first. If the last refresh did not read the
// load of these nodes, listUse requests a refresh.
func (v *topView) listUse(nodes []*topUnit) {
	names := unitNames(nodes)
	if last := v.useOf.Load(); last == nil || !slices.Equal(*last, names) {
		v.useOf.Store(&names)
		select {
		case v.again <- struct{}{}:
		default: // a refresh is already requested
		}
	}
	var use []query.GPU
	for _, g := range v.state.use {
		if slices.Contains(names, g.NodeID) && v.matches(g.Node, g.Rack, g.ID, g.Job, g.Unhealthy, g.Degraded) {
			use = append(use, g)
		}
	}
	slices.SortStableFunc(use, func(a, b query.GPU) int { return cmp.Compare(percentOf(b), percentOf(a)) })
	if len(use) == 0 {
		text := cmp.Or(v.state.notUsed, "Asking …")
		v.hardware.fill([]string{"What GPUs do now"}, []string{""}, func(int) []topCell { return []topCell{{text: text}} })
		return
	}
	keys := each(use, func(g query.GPU) string { return g.ID })
	v.hardware.fill([]string{"GPU", "Node", "Utilization↓", "Memory", "Temp", "Power", "Job"}, keys, func(i int) []topCell {
		g := use[i]
		busy, job := utilization(g), v.reversed(g, tview.Escape(quoted(cmp.Or(g.Job, liveState(g, v.state.at).text), "")))
		return []topCell{{text: shortGPU(g.ID, v.state.idLength), style: bold}, {text: g.Node}, {text: busy.text, style: busy.style}, {text: memory(g.Live), right: true}, {text: temperature(g.Live), right: true}, {text: power(g.Live), right: true}, {text: job, tagged: true}}
	})
}

// reversed puts text into reverse video if the selected job holds the GPU.
func (v *topView) reversed(g query.GPU, text string) string {
	if g.Job != "" && g.Job == v.hardware.mark {
		return "[::r]" + text + "[::-]"
	}
	return text
}

// percentOf returns a GPU's utilization in percent, or -1 if it is unknown.
func percentOf(g query.GPU) int64 {
	if g.Live == nil || g.Live.Utilization == nil {
		return -1
	}
	return *g.Live.Utilization
}

// rackOf returns a GPU's rack. Nodes without a known rack count as one rack.
func rackOf(g query.GPU) string { return cmp.Or(g.Rack, "no rack") }

// units groups GPUs by rack or node, whose name the given function returns. GPUs of a group must be
// adjacent.
func units(gpus []query.GPU, in func(query.GPU) string) (out []*topUnit) {
	for i := range gpus {
		name := in(gpus[i])
		if n := len(out); n == 0 || out[n-1].name != name || out[n-1].rack != rackOf(gpus[i]) {
			out = append(out, &topUnit{name: name, rack: rackOf(gpus[i]), nodes: 1, gpus: gpus[i : i+1 : i+1]})
			continue
		}
		u := out[len(out)-1]
		first := i - len(u.gpus)
		if u.gpus = gpus[first : i+1 : i+1]; gpus[i].Node != gpus[i-1].Node {
			u.nodes++
		}
	}
	return out
}

func (u *topUnit) free() (n int) {
	for _, g := range u.gpus {
		if g.Available {
			n++
		}
	}
	return n
}

func unitNames(units []*topUnit) []string {
	return each(units, func(u *topUnit) string { return u.name })
}

// listRacks lists racks, and how many of their GPUs of each class are free.
func (v *topView) listRacks(racks []*topUnit) {
	heads := []string{"Rack", "Nodes", "Free"}
	for k := 1; k <= topMost; k++ {
		heads = append(heads, fmt.Sprintf("%s%d", v.class, k))
	}
	v.hardware.fill(append(heads, "not measured"), unitNames(racks), func(i int) []topCell {
		u := racks[i]
		var free, all [topMost + 1]int
		for _, g := range u.gpus {
			k := min(int(g.Classes[v.class]), topMost)
			if all[k]++; g.Available {
				free[k]++
			}
		}
		cells := []topCell{{text: u.name, style: bold}, {text: fmt.Sprint(u.nodes), right: true}, {text: fmt.Sprintf("%d/%d", u.free(), len(u.gpus)), right: true}}
		for k := 1; k <= topMost; k++ {
			cells = append(cells, topCell{text: freeOf(free[k], all[k]), right: true})
		}
		return append(cells, topCell{text: freeOf(free[0], all[0])})
	})
}

func freeOf(free, all int) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", free, all)
}

// listNodes lists nodes, and the class and state of each of their GPUs.
func (v *topView) listNodes(nodes []*topUnit) {
	v.hardware.fill([]string{"Rack", "Node", "Free", fmt.Sprintf("GPUs by class for %s (* allocated, ! unhealthy: see ?)", v.class)}, unitNames(nodes), func(i int) []topCell {
		u := nodes[i]
		var b strings.Builder
		for _, g := range u.gpus {
			text, style := v.mark(g)
			if v.colored {
				text = map[rune]string{'g': "[green]", 'r': "[red]", 'y': "[yellow]"}[style] + text + "[-]"
			}
			b.WriteString(v.reversed(g, text) + " ")
		}
		return []topCell{{text: u.rack}, {text: u.name, style: bold}, {text: fmt.Sprintf("%d/%d", u.free(), len(u.gpus)), right: true}, {text: b.String(), tagged: true}}
	})
}

// mark returns two characters for a GPU's class and state, and their colour.
func (v *topView) mark(g query.GPU) (string, rune) {
	class := "."
	if k := g.Classes[v.class]; k > 0 {
		class = fmt.Sprint(min(int(k), 9))
	}
	mark, style := " ", 'g'
	switch g.State {
	case model.GPUUnhealthy:
		mark, style = "!", 'r'
	case model.GPUQuarantined:
		mark, style = "q", 'y'
	case model.GPUAllocated:
		mark, style = "*", ' '
	case model.GPUUnavailable:
		mark, style = "~", 'y'
	}
	return class + mark, style
}

func (v *topView) listGPUs(shown []query.GPU) {
	keys := each(shown, func(g query.GPU) string { return g.ID })
	v.hardware.fill([]string{"GPU", "Node", string(v.class), "Score " + string(v.class), "State", "Job"}, keys, func(i int) []topCell {
		g := shown[i]
		state, job := gpuState(g), v.reversed(g, tview.Escape(quoted(g.Job, "")))
		return []topCell{{text: shortGPU(g.ID, v.state.idLength), style: bold}, {text: g.Node}, {text: class(g.Classes[v.class])}, {text: query.Score(g.PMScores[v.class])}, {text: state.text, style: state.style}, {text: job, tagged: true}}
	})
}
