// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// windowsInForce records for which view and until which time the queue's windows are valid.
type windowsInForce struct {
	view  *request.View
	epoch uint64
	next  time.Time // when the first window ends
	empty []string  // names of windows without GPUs
}

// SyncWindows passes the windows to the queue if they may have changed. They may have changed if
// the view was rebuilt, nodes were added, or a window has ended. When a window has ended,
// SyncWindows passes its next occurrence.
func (m *Model) SyncWindows(now time.Time) {
	w := &m.Windows
	known := w.view == m.View && w.epoch == m.View.Epoch() && (w.next.IsZero() || now.Before(w.next))
	if len(m.Cfg.Windows) == 0 || known {
		return
	}
	w.view, w.epoch = m.View, m.View.Epoch()
	var list []queue.Window
	list, w.next, w.empty = window.ToQueue(m.Cfg.Windows, now, gang.QueueTime, m.gpusOf)
	m.Queue.SetWindows(list)
}

// OpenWindows returns, by GPU, the window that reserves the GPU now, with its end.
func (m *Model) OpenWindows(now time.Time) map[int]string {
	open := map[int]string{}
	for _, w := range m.Cfg.Windows {
		from, to, ok := w.At(now)
		if ok && !now.Before(from) {
			for _, u := range m.gpusOf(w) {
				open[u] = w.Name + " until " + reason.Moment(to)
			}
		}
	}
	return open
}

// gpusOf returns the GPUs of the window's nodes.
func (m *Model) gpusOf(w window.Window) []int {
	var gpus []int
	c := m.View.Cluster
	for u := range c.NumGPUs() {
		node, _ := c.Group(c.GroupOf(u))
		n := c.Node(node)
		chosen := window.Node{ID: n.ID, Name: n.Name, Rack: n.Rack, Datacenter: n.Datacenter}
		known := m.State.Nodes[n.ID]
		if known != nil {
			chosen.Pool = known.NodePool
		}
		if w.Holds(chosen) {
			gpus = append(gpus, u)
		}
	}
	return gpus
}

// Warnings returns warnings about windows whose nodes have no GPUs.
func (w windowsInForce) Warnings() []string {
	var out []string
	for _, name := range w.empty {
		out = append(out, fmt.Sprintf("window %q covers no GPU: no node with GPUs matches it", name))
	}
	return out
}

// Moment formats a time of the queue for people.
func Moment(at time.Duration) string { return reason.Moment(time.Unix(0, int64(at))) }
