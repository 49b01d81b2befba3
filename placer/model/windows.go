// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
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

// OpenWindow describes a window that is open now.
type OpenWindow struct {
	Name string
	To   time.Time
	GPUs []int
	For  []string // who may use these GPUs: see [window.Window]
}

// OpenWindows returns the windows that are open now.
func (m *Model) OpenWindows(now time.Time) (open []OpenWindow) {
	for _, w := range m.Cfg.Windows {
		if from, to, ok := w.At(now); ok && !now.Before(from) {
			open = append(open, OpenWindow{w.Name, to, m.gpusOf(w), w.For})
		}
	}
	return open
}

// WindowOpened reports whether a window that keeps one of the GPUs from the job has begun after the
// cycle began.
func WindowOpened(m *Model, k cluster.JobKey, gpus []string, now time.Time) bool {
	if len(m.Cfg.Windows) == 0 {
		return false
	}
	began := gang.QueueTime(m.Time)
	return slices.ContainsFunc(m.Queue.KeptFrom(gang.QueueTime(now), k.String(), m.View.Cluster), func(w queue.WindowConflict) bool {
		opened := began < w.From && w.From <= gang.QueueTime(now)
		return opened && slices.ContainsFunc(GPUIDs(m.View, w.On), func(id string) bool { return slices.Contains(gpus, id) })
	})
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
