// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// windowsInForce is what the queue was told of windows, and of which cluster.
type windowsInForce struct {
	view  *nomad.View
	epoch uint64
	next  time.Time // when one of them is over
	empty []string  // names of those that hold no GPU
}

// syncWindows tells the queue which windows there are, when that may have changed: the
// cluster was built again, other nodes came, or a window is over (then its next time
// counts).
func (p *Placer) syncWindows(now time.Time) {
	w := &p.windows
	known := w.view == p.view && w.epoch == p.view.Epoch() && (w.next.IsZero() || now.Before(w.next))
	if len(p.cfg.Windows) == 0 || known {
		return
	}
	w.view, w.epoch = p.view, p.view.Epoch()
	var list []queue.Window
	list, w.next, w.empty = window.Queue(p.cfg.Windows, now, since, p.gpusOf)
	p.queue.SetWindows(list)
}

// gpusOf lists the GPUs of the window's nodes.
func (p *Placer) gpusOf(w window.Window) []int {
	var gpus []int
	c := p.view.Cluster
	for u := range c.NumGPUs() {
		node, _ := c.Group(c.GroupOf(u))
		n := c.Node(node)
		chosen := window.Node{ID: n.ID, Name: n.Name, Rack: n.Rack, Datacenter: n.Datacenter}
		if known := p.state.Nodes[n.ID]; known != nil {
			chosen.Pool = known.NodePool
		}
		if w.Holds(chosen) {
			gpus = append(gpus, u)
		}
	}
	return gpus
}

// warnings say which windows hold nothing.
func (w windowsInForce) warnings() []string {
	var out []string
	for _, name := range w.empty {
		out = append(out, fmt.Sprintf("window %q holds no GPU: no node with GPUs is as it says", name))
	}
	return out
}

// noteWindows says which windows keep GPUs from a waiting job, and why.
func (s *Snapshot) noteWindows(e *Explanation, t *tracked) {
	for _, k := range s.p.queue.KeptFrom(since(s.now), t.Key.String()) {
		said := fmt.Sprintf("window %s: %d GPUs are kept from %s to %s. ", k.Window, k.GPUs, moment(k.From), moment(k.To))
		if k.From > since(s.now) {
			said += fmt.Sprintf("The job does not start on them, as it may run until %s: %.0f of 10 jobs like it end by then", moment(k.Until), 10*queue.WindowChance)
		} else {
			said += "The job does not start on them until then"
		}
		e.Note = strings.TrimPrefix(e.Note+"; "+said, "; ")
	}
}

// moment is a time of the queue's as people read it.
func moment(at time.Duration) string {
	return time.Unix(0, int64(at)).UTC().Format("2006-01-02 15:04 MST")
}
