// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// The obstacles on nodes are listed one by one, with their numbers of nodes. Each node counts once,
// for the obstacle that most nodes have.
func TestObstacles(t *testing.T) {
	for name, c := range map[string]struct {
		extra  string
		change func(job *api.Job, nodes map[string]*api.Node)
		want   []string
	}{
		"nothing": {"", nil, nil},
		"driver": {"", func(j *api.Job, _ map[string]*api.Node) { j.TaskGroups[0].Tasks[0].Driver = "docker" },
			[]string{"missing drivers: docker (3 of 3 nodes)"}},
		"datacenter": {"", func(j *api.Job, _ map[string]*api.Node) { j.Datacenters = []string{"west"} },
			[]string{`datacenter "dc1" is not one of the job's datacenters (3 of 3 nodes)`}},
		"pool": {`node_pool = "other"`, nil, []string{`node pool "default" is not the job's node pool (3 of 3 nodes)`}},
		"constraint": {`constraint {
  attribute = "${meta.rack}"
  value     = "r0"
}`, nil, []string{`constraint "${meta.rack} = r0" (1 of 3 nodes)`}},
		"model": {"", func(j *api.Job, _ map[string]*api.Node) {
			j.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = "nvidia/gpu/H1000"
		}, []string{"missing devices: nvidia/gpu/H1000 (3 of 3 nodes)"}},
		"too many": {"", func(j *api.Job, _ map[string]*api.Node) {
			n := uint64(99)
			j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = &n
		}, []string{"only 4 GPUs of one model (3 of 3 nodes)"}},
		"device constraint": {"", func(j *api.Job, _ map[string]*api.Node) {
			j.TaskGroups[0].Tasks[0].Resources.Devices[0].Constraints = []*api.Constraint{{LTarget: "${device.attr.memory}", Operand: ">=", RTarget: "1 TiB"}}
		}, []string{`device constraint "${device.attr.memory} >= 1 TiB" (3 of 3 nodes): no GPU has ${device.attr.memory}`}},
		"resources": {"", func(j *api.Job, nodes map[string]*api.Node) {
			memory := 5000
			j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &memory
			nodes["id-0"].NodeResources.Memory.MemoryMB = 8000
		}, []string{"nodes have less than 5000 MB of memory (2 of 3 nodes)"}},
		"volume": {"", func(j *api.Job, nodes map[string]*api.Node) {
			j.TaskGroups[0].Volumes = map[string]*api.VolumeRequest{"d": {Type: "host", Source: "data"}}
			nodes["id-0"].HostVolumes = map[string]*api.HostVolumeInfo{"data": {}}
			nodes["id-1"].HostVolumes = map[string]*api.HostVolumeInfo{"data": {ReadOnly: true}}
		}, []string{"host volume data is read-only (1 of 3 nodes)", "missing host volume: data (1 of 3 nodes)"}},
		"CSI": {"", func(j *api.Job, nodes map[string]*api.Node) {
			j.TaskGroups[0].Volumes = map[string]*api.VolumeRequest{"d": {Type: "csi", Source: "models"}}
			nodes["id-0"].CSINodePlugins = map[string]*api.CSIInfo{"ebs": {}}
		}, []string{"no CSI plugin to mount volume models (2 of 3 nodes)"}},
		"nodes": {"", func(_ *api.Job, nodes map[string]*api.Node) {
			nodes["id-0"].Drain = true
			nodes["id-1"].Status = "down"
			nodes["id-2"].SchedulingEligibility = "ineligible"
		}, []string{"the node is down (1 of 3 nodes), for now", "the node is draining (1 of 3 nodes), for now", "the node is not eligible for scheduling (1 of 3 nodes), for now"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(3)
			job := addJob(t, s, clustertest.Jobspec("j", 1, 1, c.extra), 1)
			if c.change != nil {
				c.change(job, s.Nodes)
			}
			var got []string
			v := view(t, s)
			lasting(t, v, job)
			for _, o := range v.Obstacles(job, "") {
				text := o.String()
				if o.Now {
					text += ", for now"
				}
				got = append(got, text)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// lasting checks that the lasting obstacles are those that do not disappear when jobs end.
func lasting(t *testing.T, v *View, job *api.Job) {
	t.Helper()
	all := slices.DeleteFunc(v.Obstacles(job, ""), func(o palapi.Obstacle) bool { return o.Now && !o.Away })
	if d := cmp.Diff(all, v.LastingObstacles(job), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

// Jobs share cached obstacles only if their requests are the same, and until a node
// changes.
func TestLastingObstaclesAreOfTheAsk(t *testing.T) {
	s := world(3)
	s.Nodes["id-0"].HostVolumes = map[string]*api.HostVolumeInfo{"data": {ReadOnly: true}}
	var jobs []*api.Job
	for i, change := range []func(*api.TaskGroup){
		func(*api.TaskGroup) {},
		func(g *api.TaskGroup) { g.Name = new("other") },
		func(g *api.TaskGroup) { g.Tasks[0].Resources.Devices[0].Count = new(uint64(99)) },
		func(g *api.TaskGroup) { g.Tasks[0].Resources.MemoryMB = new(9_000_000) },
		func(g *api.TaskGroup) { g.Volumes = map[string]*api.VolumeRequest{"d": {Type: "host", Source: "data"}} },
		func(g *api.TaskGroup) {
			g.Volumes = map[string]*api.VolumeRequest{"d": {Type: "host", Source: "data", ReadOnly: true}}
		},
	} {
		job := addJob(t, s, clustertest.Jobspec(fmt.Sprint("j", i), 1, 1, ""), uint64(i+1))
		change(job.TaskGroups[0])
		jobs = append(jobs, job)
	}
	v := view(t, s)
	for range 2 {
		for _, job := range jobs {
			lasting(t, v, job)
		}
		n := *s.Nodes["id-1"]
		n.HostVolumes, n.ModifyIndex = map[string]*api.HostVolumeInfo{"data": {}}, n.ModifyIndex+1
		s.PutNode(&n)
		if !v.Update(s, v.opts) {
			t.Fatal("the view must be rebuilt")
		}
	}
}

// A static port that another job has on a node is named.
func TestObstaclesOfPorts(t *testing.T) {
	s := world(2)
	job := addJob(t, s, clustertest.Jobspec("j", 1, 1, ""), 1)
	job.TaskGroups[0].Networks = []*api.NetworkResource{{ReservedPorts: []api.Port{{Label: "http", Value: 8080}, {Label: "any"}}}}
	p := &cluster.AllocPayload{ID: "a", Namespace: "default", JobID: "web", NodeID: "id-1", ClientStatus: "running", DesiredStatus: "run",
		AllocatedResources: &api.AllocatedResources{Shared: api.AllocatedSharedResources{Ports: []api.PortMapping{{Label: "x", Value: 8080}}}}}
	s.PutAlloc(p.AsAlloc())
	if got := view(t, s).Obstacles(job, ""); len(got) != 1 || got[0].String() != "static port 8080 (http) is in use (1 of 2 nodes)" || !got[0].Now {
		t.Errorf("%+v", got)
	}
	p.ClientStatus = "complete"
	s.PutAlloc(p.AsAlloc())
	if got := view(t, s).Obstacles(job, ""); len(got) != 0 {
		t.Errorf("after it ended: %+v", got)
	}
}

// A node on which the job skips outliers is listed with that reason.
func TestObstaclesOfOutliers(t *testing.T) {
	s := world(1)
	job := addJob(t, s, clustertest.Jobspec("j", 1, 2, ""), 1)
	v := view(t, s)
	v.opts.OutlierThreshold = -1 // all GPUs count as outliers, measured or not
	want := "fewer than 2 matching GPUs are free, not counting outliers (outlier_threshold -1)"
	if got := v.Obstacles(job, pal.ClassA); len(got) != 1 || got[0].What != want || !got[0].Now {
		t.Errorf("%+v", got)
	}
	if got := v.Obstacles(job, ""); len(got) != 0 {
		t.Errorf("a job that may have outliers: %+v", got)
	}
}

// GPUs held by other jobs are a temporary obstacle.
func TestObstaclesOfUse(t *testing.T) {
	s := world(1)
	job := addJob(t, s, clustertest.Jobspec("j", 1, 2, ""), 1)
	v := view(t, s)
	for i := range v.Cluster.NumGPUs() - 1 {
		v.Cluster.SetTaken(i, true)
	}
	if got := v.Obstacles(job, ""); len(got) != 1 || got[0].What != "fewer than 2 matching GPUs are free" || !got[0].Now {
		t.Errorf("GPUs: %+v", got)
	}
	v.Cluster.SetFree(0, pal.Resources{})
	if got := v.Obstacles(job, ""); len(got) != 1 || got[0].What != "less than 100 MHz of CPU are free" || !got[0].Now {
		t.Errorf("CPU: %+v", got)
	}
}

// Each address of a node has a static port once. A gang that has no room because of its port, or
// because its members need hosts of their own, says so, also while other GPUs are in use.
func TestMembersPerNode(t *testing.T) {
	port := func(j *api.Job) {
		j.TaskGroups[0].Networks = []*api.NetworkResource{{ReservedPorts: []api.Port{{Label: "dist", Value: 29500}}}}
	}
	hosts := func(j *api.Job) {
		j.Constraints = append(j.Constraints, &api.Constraint{Operand: api.ConstraintDistinctHosts})
	}
	for _, c := range []struct {
		name      string
		addresses []string
		limit     func(*api.Job)
		members   int
		says      string // "" if the gang fits
	}{
		{"one on each", []string{"10.0.0.1"}, port, 2, ""},
		{"more than nodes", []string{"10.0.0.1"}, port, 3, "an idle cluster has room for 2 of 3 members: static port 29500 (dist) allows 1 member on each node"},
		{"two addresses", []string{"10.0.0.1", "fd00::1"}, port, 4, ""},
		{"two addresses, one of them named twice", []string{"10.0.0.1", "10.0.0.1"}, port, 3, "static port 29500 (dist) allows 1 member on each node"},
		{"no address known", nil, port, 3, "static port 29500 (dist) allows 1 member on each node"},
		{"distinct hosts", []string{"10.0.0.1", "fd00::1"}, hosts, 3, "distinct_hosts allows 1 member on each node"},
		{"the GPUs are the reason", []string{"10.0.0.1"}, port, 100, "needs 100 GPUs; the cluster has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := world(2)
			for id, n := range s.Nodes {
				own, r := *n, *n.NodeResources
				r.Networks = nil
				for _, ip := range c.addresses {
					r.Networks = append(r.Networks, &api.NetworkResource{IP: ip})
				}
				own.NodeResources, own.ModifyIndex = &r, n.ModifyIndex+1
				s.Nodes[id] = &own
			}
			job := addJob(t, s, clustertest.Jobspec("j", c.members, 1, ""), 1)
			c.limit(job)
			v := view(t, s)
			r, err := v.Request(job)
			if err != nil {
				t.Fatal(err)
			}
			_, fits := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL})
			if fits != (c.says == "") {
				t.Errorf("fits: %v", fits)
			}
			if _, why := pal.WhyNot(v.Cluster, r.Gang); !fits && (!strings.Contains(why.String(), c.says) || strings.Contains(why.String(), "port") != strings.Contains(c.says, "port")) {
				t.Errorf("says: %s", why)
			}
		})
	}
}
