// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// SetUse sets the utilization of a GPU, in percent. For a GPU without a utilization, the plugin
// sends no statistics.
func (s *Server) SetUse(gpu string, percent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses == nil {
		s.uses = map[string]int64{}
	}
	s.uses[gpu] = percent
}

// serveStats returns the statistics of the plugins on a client. A client that is down does not
// answer.
func (s *Server) serveStats(r *http.Request) (any, error) {
	if err := s.authorize(r, "", readNodes); err != nil {
		return nil, err
	}
	n := s.nodes[r.URL.Query().Get("node_id")]
	switch {
	case n == nil:
		return nil, httpError(http.StatusNotFound, "Unknown node %q", r.URL.Query().Get("node_id"))
	case !ready(n.Node):
		return nil, httpError(http.StatusNotFound, "No path to node")
	}
	stats := &api.HostStats{}
	for _, d := range cluster.GPUDevices(n.Node) {
		g := &api.DeviceGroupStats{Vendor: d.Vendor, Type: d.Type, Name: d.Name, InstanceStats: map[string]*api.DeviceStats{}}
		for _, in := range d.Instances {
			if u, told := s.uses[in.ID]; told {
				g.InstanceStats[in.ID] = &api.DeviceStats{Timestamp: s.now(), Stats: &api.StatObject{Attributes: map[string]*api.StatValue{
					attr.StatUtilization: {IntNumeratorVal: &u, Unit: "%"},
					attr.StatMemory:      {IntNumeratorVal: new(int64(1024)), IntDenominatorVal: new(int64(16384)), Unit: "MiB"},
				}}}
			}
		}
		stats.DeviceStats = append(stats.DeviceStats, g)
	}
	return stats, nil
}
