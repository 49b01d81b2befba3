// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rivo/tview"

	"github.com/nomad-pal/nomad-pal/placer"
)

// topMost is the highest variability class that has a column: outliers are in it.
const topMost = 5

// topUnit is a rack or a node.
type topUnit struct {
	name, rack string
	nodes      int
	gpus       []placer.GPU
}

// arrangeHardware fills the upper list.
func (v *topView) arrangeHardware() {
	var shown []placer.GPU
	for _, g := range v.state.gpus {
		if (v.rack == "" || v.rack == rackOf(g)) && (v.node == "" || v.node == g.Node) && v.matches(g.Node, g.Rack, g.ID, g.Job, g.Unhealthy, g.Degraded) {
			shown = append(shown, g)
		}
	}
	switch v.level {
	case topRacks:
		v.listRacks(units(shown, rackOf))
	case topNodes:
		v.listNodes(units(shown, func(g placer.GPU) string { return g.Node }))
	default:
		v.listGPUs(shown)
	}
}

// rackOf is a GPU's rack; nodes of which none is known stand together.
func rackOf(g placer.GPU) string { return cmp.Or(g.Rack, "no rack") }

// units gathers GPUs by what they are in, in the order of racks and names.
func units(gpus []placer.GPU, in func(placer.GPU) string) []*topUnit {
	by := map[string]*topUnit{}
	last := map[string]string{} // the last node seen, by unit
	var out []*topUnit
	for _, g := range gpus {
		name := in(g)
		u := by[name]
		if u == nil {
			u = &topUnit{name: name, rack: rackOf(g)}
			by[name], out = u, append(out, u)
		}
		if u.gpus = append(u.gpus, g); last[name] != g.Node {
			last[name] = g.Node
			u.nodes++
		}
	}
	slices.SortStableFunc(out, func(a, b *topUnit) int {
		return cmp.Or(strings.Compare(a.rack, b.rack), cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
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
	out := make([]string, len(units))
	for i, u := range units {
		out[i] = u.name
	}
	return out
}

// listRacks shows of each class how many GPUs are free, of how many.
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

// listNodes shows each GPU of a node by its class and state.
func (v *topView) listNodes(nodes []*topUnit) {
	v.hardware.fill([]string{"Rack", "Node", "Free", fmt.Sprintf("GPUs by class for %s", v.class)}, unitNames(nodes), func(i int) []topCell {
		u := nodes[i]
		var b strings.Builder
		for _, g := range u.gpus {
			text, style := v.mark(g)
			if v.colored {
				text = map[rune]string{'g': "[green]", 'r': "[red]", 'y': "[yellow]"}[style] + text + "[-]"
			}
			if g.Job != "" && g.Job == v.hardware.mark {
				text = "[::r]" + text + "[::-]"
			}
			b.WriteString(text + " ")
		}
		return []topCell{{text: u.rack}, {text: u.name, style: bold}, {text: fmt.Sprintf("%d/%d", u.free(), len(u.gpus)), right: true}, {text: b.String(), tagged: true}}
	})
}

// mark is a GPU in two characters, and its colour.
func (v *topView) mark(g placer.GPU) (string, rune) {
	class := "."
	if k := g.Classes[v.class]; k > 0 {
		class = fmt.Sprint(min(int(k), 9))
	}
	switch {
	case !g.Healthy:
		return class + "!", 'r'
	case g.Quarantine != nil:
		return class + "q", 'y'
	case g.Job != "":
		return class + "*", ' '
	case !g.Available:
		return class + "~", 'y'
	}
	return class + " ", 'g'
}

func (v *topView) listGPUs(shown []placer.GPU) {
	slices.SortStableFunc(shown, func(a, b placer.GPU) int {
		return cmp.Or(strings.Compare(a.Rack, b.Rack), cmp.Compare(len(a.Node), len(b.Node)), strings.Compare(a.Node, b.Node))
	})
	keys := make([]string, len(shown))
	for i, g := range shown {
		keys[i] = g.ID
	}
	length := idLength(v.state.gpus)
	v.hardware.fill([]string{"GPU", "Node", string(v.class), "Score", "Job or state"}, keys, func(i int) []topCell {
		g := shown[i]
		state, style := tview.Escape(quoted(g.Job, "")), plain
		switch {
		case !g.Healthy:
			state, style = "unhealthy: "+tview.Escape(quoted(oneLine(g.Unhealthy), "")), red
		case g.Quarantine != nil:
			state, style = "quarantined: "+tview.Escape(quoted(oneLine(g.Quarantine.Reason), "")), yellow
		case g.Job == "" && !g.Available:
			state, style = "its node takes no jobs", yellow
		case g.Job == "":
			state, style = "free", green
		case g.Job == v.hardware.mark:
			state = "[::r]" + state + "[::-]"
		}
		return []topCell{{text: shortGPU(g.ID, length), style: bold}, {text: g.Node}, {text: class(g.Classes[v.class])}, {text: score(g.PMScores[v.class])}, {text: state, style: style, tagged: true}}
	})
}
