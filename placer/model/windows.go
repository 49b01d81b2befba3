// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// windowsInForce are the windows that the queue has, which are valid for one view.
type windowsInForce struct {
	view  *request.View
	epoch uint64
	list  []queue.Window // each open now, or later
}

// SyncWindows passes the windows to the queue if they may have changed: if the view was rebuilt,
// nodes were added, or a window has ended. The next occurrence of that window then follows.
func (m *Model) SyncWindows(now time.Time) {
	w := &m.Windows
	over := slices.ContainsFunc(w.list, func(o queue.Window) bool { return o.To <= gang.QueueTime(now) })
	if len(m.Cfg.Windows) == 0 || w.view == m.View && w.epoch == m.View.Epoch() && !over {
		return
	}
	*w = windowsInForce{view: m.View, epoch: m.View.Epoch()}
	for _, o := range m.Cfg.Windows {
		from, to, ok := o.At(now)
		if ok {
			w.list = append(w.list, queue.Window{Name: o.Name, From: gang.QueueTime(from), To: gang.QueueTime(to), GPUs: m.gpusOf(o), For: o.For})
		}
	}
	m.Queue.SetWindows(w.list)
}

// OpenWindows returns, by GPU, the window that reserves the GPU now, with its end.
func (m *Model) OpenWindows(now time.Time) map[int]string {
	open := map[int]string{}
	for _, w := range m.Windows.list {
		if w.From <= gang.QueueTime(now) {
			for _, u := range w.GPUs {
				open[u] = w.Name + " until " + Moment(w.To)
			}
		}
	}
	return open
}

// gpusOf returns the GPUs of the window's nodes, in ascending order.
func (m *Model) gpusOf(w window.Window) (gpus []int) {
	c := m.View.Cluster
	for u := range c.NumGPUs() {
		node, _ := c.Group(c.GroupOf(u))
		n, pool := c.Node(node), ""
		known := m.State.Nodes[n.ID]
		if known != nil {
			pool = known.NodePool
		}
		if w.Holds(n, pool) {
			gpus = append(gpus, u)
		}
	}
	return gpus
}

// Warnings returns warnings about windows whose nodes have no GPUs.
func (w windowsInForce) Warnings() (out []string) {
	for _, o := range w.list {
		if len(o.GPUs) == 0 {
			out = append(out, fmt.Sprintf("window %q covers no GPU: no node with GPUs matches it", o.Name))
		}
	}
	return out
}

// Moment formats a time of the queue for people.
func Moment(at time.Duration) string { return reason.Moment(time.Unix(0, int64(at))) }
