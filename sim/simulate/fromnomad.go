// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// readNomad reads the cluster from the server that Nomad's environment variables name. The ended
// jobs come from the same server, which soon forgets them, or, with -from-history, from the agent's
// history.
func (o *options) readNomad() (trace.Trace, []pal.Node, error) {
	client, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("connecting to Nomad: %w", err)
	}
	query := &api.QueryOptions{Namespace: "*", Params: map[string]string{"resources": "true", "meta": "true"}}
	nodes, _, err := client.Nodes().List(query)
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("listing nodes: %w", err)
	}
	sim, err := nomadNodes(nodes, o.rules.Calibration)
	if err != nil {
		return trace.Trace{}, nil, err
	}
	c, err := pal.NewCluster(sim, o.rules.Locality)
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("reading cluster: %w", err)
	}
	if o.fromHistory {
		runs, err := o.Past(o.since)
		return ofRuns(runs, c), sim, err
	}
	jobs, _, err := client.Jobs().List(query)
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("listing jobs: %w", err)
	}
	allocs, _, err := client.Allocations().List(query)
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("listing allocations: %w", err)
	}
	return pastJobs(jobs, allocs, c), sim, nil
}

// nomadNodes turns nodes with GPUs into nodes of package pal, calibrated from the raw
// measurements that they publish.
func nomadNodes(stubs []*api.NodeListStub, o profile.Options) ([]pal.Node, error) {
	var samples []profile.Sample
	var nodes []pal.Node
	slices.SortFunc(stubs, func(a, b *api.NodeListStub) int { return cmp.Compare(a.ID, b.ID) })
	for _, n := range stubs {
		if n.NodeResources == nil {
			continue
		}
		node := pal.Node{ID: n.ID, Name: n.Name, Datacenter: n.Datacenter}
		for _, d := range n.NodeResources.Devices {
			if d.Type != attr.Type || cluster.IsMIG(d) { // the simulator knows only whole GPUs
				continue
			}
			g := pal.DeviceGroup{Name: d.ID()}
			for _, in := range d.Instances {
				g.GPUs = append(g.GPUs, pal.GPU{ID: in.ID})
			}
			node.Groups = append(node.Groups, g)
			if a := d.Attributes[attr.Raw]; a != nil && a.StringVal != nil {
				ms, err := attr.ParseMeasurements(*a.StringVal)
				if err != nil {
					return nil, fmt.Errorf("node %q: attribute %s: %w", n.Name, attr.Raw, err)
				}
				samples = append(samples, profile.SamplesOf(d.ID(), ms)...)
			}
		}
		if len(node.Groups) > 0 {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("reading cluster: no node has a GPU")
	}
	return nodes, calibrate(nodes, samples, o)
}

// calibrate sets the scores and bins of GPUs with measurements.
func calibrate(nodes []pal.Node, samples []profile.Sample, o profile.Options) error {
	if len(samples) == 0 {
		return nil
	}
	p, err := profile.Build(samples, o, nil)
	if err != nil {
		return fmt.Errorf("calibrating measurements: %w", err)
	}
	for _, n := range nodes {
		for _, g := range n.Groups {
			for i := range g.GPUs {
				for k, class := range pal.AppClasses() {
					if e, ok := p.Lookup(g.GPUs[i].ID, class); ok {
						g.GPUs[i].Scores[k], g.GPUs[i].Binned[k] = e.Score, e.Value
					}
				}
			}
		}
	}
	return nil
}

// past is one version of a job in Nomad's history, with its allocations.
type past struct {
	key     string
	class   pal.AppClass
	name    string
	tenant  string
	submit  int64 // Unix nanoseconds
	members []pal.Member
	gpus    int // GPUs per member
	from    time.Time
	to      time.Time
	parts   bool   // whether allocations had GPUs that are not simulated: MIG instances, or parts of GPUs
	reason  string // why this job is left out
	speeds  pal.Speeds
}

// pastJobs turns finished batch jobs into a trace. The work is the time from the last start to the
// last end of an allocation's task, divided by the predicted cost on the GPUs of these allocations.
func pastJobs(jobs []*api.JobListStub, allocs []*api.AllocationListStub, c *pal.Cluster) trace.Trace {
	slices.SortFunc(allocs, func(a, b *api.AllocationListStub) int {
		return cmp.Or(cmp.Compare(a.CreateTime, b.CreateTime), cmp.Compare(a.ID, b.ID))
	})
	meta := map[string]*api.JobListStub{}
	for _, j := range jobs {
		meta[j.Namespace+"/"+j.ID] = j
	}
	runs, order := map[string]*past{}, []*past{}
	for _, a := range allocs {
		key := fmt.Sprintf("%s/%s@%d", a.Namespace, a.JobID, a.JobVersion)
		if runs[key] == nil {
			runs[key] = newPast(key, a, meta[a.Namespace+"/"+a.JobID])
			order = append(order, runs[key])
		}
		runs[key].add(a, c)
	}
	t := trace.Trace{Name: "Nomad's history", Begin: trace.Epoch}
	for _, p := range order {
		if j, ok := p.job(&t, c); ok {
			t.Jobs = append(t.Jobs, j)
		}
	}
	t.Rebase()
	return t
}

func newPast(key string, a *api.AllocationListStub, j *api.JobListStub) *past {
	p := &past{key: key, class: pal.ClassA, name: a.JobID, tenant: a.Namespace, submit: a.CreateTime}
	if a.JobType != api.JobTypeBatch {
		p.reason = "not a batch job"
	}
	if j != nil {
		if j.SubmitTime > 0 && j.SubmitTime < p.submit {
			p.submit = j.SubmitTime
		}
		if c, err := pal.ParseAppClass(j.Meta["pal_class"]); err == nil {
			p.class = c
		}
		if said, err := pal.ParseSpeeds(j.Meta["pal_speed"]); err == nil {
			p.speeds = pal.SpeedsOf(said)
		}
		if j.ParentID != "" {
			p.name = j.ParentID
		}
	}
	return p
}

// add adds an allocation: its GPUs, and when its tasks ran.
func (p *past) add(a *api.AllocationListStub, c *pal.Cluster) {
	var gpus []int
	if a.AllocatedResources != nil {
		for _, task := range a.AllocatedResources.Tasks {
			for _, d := range task.Devices {
				p.parts = p.parts || d.Type == attr.SharedType || cluster.IsMIG(&api.NodeDeviceResource{Name: d.Name})
				for _, id := range d.DeviceIDs {
					if u := c.Find(id); u >= 0 {
						gpus = append(gpus, u)
					}
				}
			}
		}
	}
	if len(gpus) == 0 || a.NextAllocation != "" { // if an allocation was replaced, only its successor counts
		return
	}
	slices.Sort(gpus)
	if a.ClientStatus != api.AllocClientStatusComplete && p.reason == "" {
		p.reason = "did not complete"
	}
	p.members = append(p.members, pal.Member{Group: c.GroupOf(gpus[0]), GPUs: gpus})
	p.gpus = max(p.gpus, len(gpus))
	for _, s := range a.TaskStates {
		if s.StartedAt.After(p.from) {
			p.from = s.StartedAt
		}
		if s.FinishedAt.After(p.to) {
			p.to = s.FinishedAt
		}
	}
}

// job turns the run into a job. If the run cannot become a job, the trace records that the run is
// left out.
func (p *past) job(t *trace.Trace, c *pal.Cluster) (trace.Job, bool) {
	reason := p.reason
	switch {
	case len(p.members) == 0 && p.parts:
		reason = "only parts of GPUs"
	case len(p.members) == 0:
		reason = "no GPU"
	case reason == "" && !p.to.After(p.from):
		reason = "no run time"
	}
	if reason != "" {
		t.Skip(reason, trace.Job{ID: p.key, Tenant: p.tenant})
		return trace.Job{}, false
	}
	n := 0
	for _, m := range p.members {
		n += len(m.GPUs)
	}
	g := pal.SingleGPUs(p.key, p.class, n)
	cost := pal.Predict(c, g, p.members).Cost()
	_, on := c.Group(p.members[0].Group)
	if s := p.speeds.On(trace.ModelName(on)); s > 0 {
		cost /= s
	}
	j := trace.Job{ID: p.key, Name: p.name, Tenant: p.tenant, Class: p.class, GPUs: n, SubmitS: float64(p.submit) / 1e9,
		Iterations: p.to.Sub(p.from).Seconds() / cost, IterTimeS: 1, Speeds: p.speeds}
	if n == p.gpus*len(p.members) {
		j.MemberGPUs = p.gpus
	}
	return j, true
}
