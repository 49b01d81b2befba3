// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// GPU is one GPU as commands show it.
type GPU struct {
	ID        string                       `json:"id"`
	Node      string                       `json:"node"`
	Rack      string                       `json:"rack,omitempty"`
	NodeID    string                       `json:"node_id"`
	Index     int                          `json:"index"` // within the node, from 0
	Device    string                       `json:"device"`
	State     model.GPUState               `json:"state"`
	Healthy   bool                         `json:"healthy"`
	Job       string                       `json:"job,omitempty"`
	PMScores  map[pal.AppClass]pal.PMScore `json:"pm_scores,omitempty"`
	Classes   map[pal.AppClass]uint8       `json:"classes,omitempty"`
	Available bool                         `json:"available"`
	// Unhealthy and Unavailable say why the GPU is not chosen, Degraded why it is in the
	// last class; "" when it is not so.
	Unhealthy   string `json:"unhealthy,omitempty"`
	Unavailable string `json:"unavailable,omitempty"`
	Degraded    string `json:"degraded,omitempty"`
	// Quarantine says why the GPU is quarantined, and until when.
	Quarantine *failure.Quarantine `json:"quarantine,omitempty"`
}

// GPUs lists the cluster's GPUs.
func (s *Snapshot) GPUs() []GPU { return s.SomeGPUs(GPUFilter{}) }

// GPUFilter says which GPUs are asked for: those that meet all of it.
type GPUFilter struct {
	// Nodes are names or ids, of nodes as [MapNode] has them, too; none for all.
	Nodes []string
	// Job holds the GPU: namespace/id. ID is the GPU's.
	Job, ID string
	// Trouble: it is unhealthy, degraded, or in quarantine.
	Trouble bool
}

// SomeGPUs lists some of the cluster's GPUs.
func (s *Snapshot) SomeGPUs(f GPUFilter) []GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m.View.Cluster
	out, unhealthy, unique := []GPU{}, s.m.View.HealthDescriptions(), uniqueNames(c)
	for n, gpus := range nodeGPUs(c) {
		node := c.Node(n)
		if len(f.Nodes) > 0 && !slices.Contains(f.Nodes, node.Name) && !slices.Contains(f.Nodes, node.ID) && !slices.Contains(f.Nodes, unique[n]) {
			continue
		}
		for index, i := range gpus {
			if f.ID != "" && c.GPU(i).ID != f.ID || f.Job != "" && s.m.View.Owner(i).String() != f.Job {
				continue
			}
			g := s.gpu(i, unhealthy)
			g.NodeID, g.Index = node.ID, index
			if !f.Trouble || !g.Healthy || g.Degraded != "" || g.Quarantine != nil {
				out = append(out, g)
			}
		}
	}
	return out
}

// gpu is one GPU. Callers hold mu.
func (s *Snapshot) gpu(i int, unhealthy map[string]string) GPU {
	c := s.m.View.Cluster
	u := c.GPU(i)
	node, device := c.Group(c.GroupOf(i))
	g := GPU{
		ID: u.ID, Node: c.Node(node).Name, Rack: c.Node(node).Rack, Device: device, State: s.m.GPUState(i, s.m.Time), Healthy: !u.Unhealthy, Available: c.Available(i),
		Unhealthy: unhealthy[u.ID], Unavailable: s.m.View.Unavailable(i), Degraded: u.Degraded,
		PMScores: map[pal.AppClass]pal.PMScore{}, Classes: map[pal.AppClass]uint8{},
	}
	if q, ok := s.m.Quarantine[u.ID]; ok && s.m.Time.Before(q.Until) {
		g.Quarantine = &q
	}
	if o := s.m.View.Owner(i); o != (nomad.JobKey{}) {
		g.Job = o.String()
	}
	for k, class := range pal.AppClasses() {
		if u.Classes[k] != 0 {
			g.PMScores[class], g.Classes[class] = u.Scores[k], u.Classes[k]
		}
	}
	return g
}

// leastIDLength is how much of a GPU's id is shown at least: "GPU-" and eight digits.
const leastIDLength = len("GPU-12345678")

// IDLength is how many bytes of a GPU's id tell it from all others.
func IDLength(ids []string) int {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	n := leastIDLength
	for i := 1; i < len(ids); i++ {
		a, b, same := ids[i-1], ids[i], 0
		for same < len(a) && same < len(b) && a[same] == b[same] {
			same++
		}
		n = max(n, same+1)
	}
	return n
}

// idLength is that of the cluster's GPUs.
func (s *Snapshot) idLength() int {
	c := s.m.View.Cluster
	ids := make([]string, c.NumGPUs())
	for i := range ids {
		ids[i] = c.GPU(i).ID
	}
	return IDLength(ids)
}
