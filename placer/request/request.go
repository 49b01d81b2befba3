// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Request is a job in the form that the core needs.
type Request struct {
	Key   cluster.JobKey
	Job   *api.Job // the job as Nomad has it
	Gang  pal.Gang
	Hints rewrite.Hints
	// PreemptFrom is the configuration key that allows the placer to stop the gang; "" if the
	// author decided, or if the placer must not stop the gang.
	PreemptFrom string
	Mode        rewrite.Mode
	// Modelled is false if the job uses something that only Nomad's dry run can check.
	Modelled bool
	// Elastic is the range of an elastic gang's size; nil for other gangs. The size of Gang is the
	// job's current number of members or, while the job waits, the maximum.
	Elastic *rewrite.Elastic
	// Best is the gang's cost on the best GPUs of the empty cluster; 0 if unknown, or without
	// pal_duration.
	Best float64
	// SpeedsFrom describes, for each GPU model, the source of the gang's speed on it.
	SpeedsFrom map[string]string
	// NeighboursFrom describes, for each class of neighbours, the earlier runs from which the cost
	// of sharing a GPU is known: see [pal.Sharing].
	NeighboursFrom map[pal.AppClass]string
}

// Sized returns the gang. An elastic gang gets the given number of members.
func (r Request) Sized(members int) pal.Gang {
	g := r.Gang
	if r.Elastic != nil {
		g.MemberSets = slices.Clone(g.MemberSets)
		g.MemberSets[0].Members = members
	}
	return g
}

// Full returns the gang with its maximum number of members.
func (r Request) Full() pal.Gang {
	if r.Elastic == nil {
		return r.Gang
	}
	return r.Sized(r.Elastic.Most)
}

// Least returns the gang with its minimum number of members.
func (r Request) Least() pal.Gang {
	if r.Elastic == nil {
		return r.Gang
	}
	return r.Sized(r.Elastic.Least)
}

// Request reads what the job requests. If the placer cannot serve the job, the error explains why.
func (v *View) Request(job *api.Job) (Request, error) {
	r := Request{Key: cluster.KeyOf(job), Job: job, Modelled: modelled(job)}
	if err := Servable(job); err != nil {
		return r, err
	}
	open := rewrite.OpenGroups(job)
	if rewrite.Gated(job) && len(open) > 0 {
		return r, fmt.Errorf("group %q has no gate, but other groups have a gate, so Nomad runs that group at once; put the gate on the job, because all groups start together", open[0])
	}
	if err := v.servesChild(job); err != nil {
		return r, err
	}
	var err error
	if r.Hints, err = rewrite.ParseHints(job); err != nil {
		return r, err
	}
	class, _, err := v.opts.classOf(job, r.Hints)
	if err != nil {
		return r, err
	}
	ask := v.opts.DefaultPreempt
	if ask != nil && !r.Hints.PreemptSaid && *job.Type == api.JobTypeBatch {
		r.Hints.Preempt, r.PreemptFrom = ask(r.Key.Namespace, class)
	}
	r.Mode = modeOf(job, r.Hints)
	r.Gang = pal.Gang{ID: r.Key.String(), Class: class, MaxTier: r.Hints.Locality, Replicas: *job.Type == api.JobTypeService && r.Hints.Independent(job), Sharing: sharing(job, r.Hints)}
	r.Elastic = elasticOf(job)
	author := rewrite.Author(job)
	var asks []eligibility
	for _, g := range author.TaskGroups {
		a, err := gpuRequestOf(g)
		if err != nil {
			return r, err
		}
		if a.gpus == 0 {
			continue
		}
		// A group whose members have all finished also gets a member set, so that each member set
		// keeps its number.
		need, limit := v.needWithin(author, g)
		set := pal.MemberSet{Name: *g.Name, Members: max(0, r.membersOf(g)-v.finished(job, *g.Name)), GPUs: a.gpus, Need: need, Limit: limit}
		if set.Members > 0 { // a group without members must not restrict the other groups
			e := v.eligible(author, a)
			r.Gang.Share = max(r.Gang.Share, v.Cluster.LargestShare(e.could))
			set.Eligible = e.may
			set.Prefer = e.prefer
			set.Spreads = v.spreads(author, a, e)
			asks = append(asks, e)
		}
		r.Gang.MemberSets = append(r.Gang.MemberSets, set)
	}
	if err := cmp.Or(Empty(author), apart(author, r.Gang)); err != nil {
		return r, err
	}
	if r.Gang.Speeds, r.SpeedsFrom, err = v.speeds(job, &r, modelsOf(asks)); err != nil {
		return r, err
	}
	v.recall(job, &r)
	return r, r.Gang.Validate()
}

// recall looks up what earlier runs of the job's name show about the cost of neighbours, and stores
// it in r.
func (v *View) recall(job *api.Job, r *Request) {
	if r.Gang.Sharing != nil && v.opts.Runs != nil {
		runs := v.opts.Runs(job, r.Full().GPUs()).Beside
		r.Gang.Sharing.Slower, r.NeighboursFrom = queue.SlowerBeside(r.Gang.Class, runs)
	}
}

// apart returns an error if the members of a gang must be on different GPUs, but the placer cannot
// ensure this.
func apart(author *api.Job, gang pal.Gang) error {
	if !gang.StaysApart() {
		return nil
	}
	first := ""
	each := 0
	for _, g := range author.TaskGroups {
		n := rewrite.GPUsPerMember(g)
		switch {
		case !rewrite.AsksParts(g):
		case each == 0:
			first, each = *g.Name, n
		case n != each:
			return fmt.Errorf("each member of group %q has %s, and each member of group %q has %d; with different numbers, nomad-pal cannot keep members on different GPUs: "+
				"request the same number of parts per member in both groups, or add pal_neighbours = \"any,self\"", first, reason.Counted(each, "part of a GPU", "parts of GPUs"), *g.Name, n)
		}
	}
	return nil
}

// Empty returns an error if a count is negative, or if the job has device blocks for GPUs but
// requests no GPU. The error explains why.
func Empty(job *api.Job) error {
	i := slices.IndexFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.Count != nil && *g.Count < 0 })
	if i >= 0 {
		g := job.TaskGroups[i]
		return fmt.Errorf("group %q has count = %d, but a count cannot be negative", *g.Name, *g.Count)
	}
	switch {
	case rewrite.AllGPUs(job) > 0:
		return nil
	case slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return rewrite.GPUsPerMember(g) > 0 }):
		return errors.New("the job requests no GPUs: every group with GPUs has count = 0")
	}
	return errors.New("the job requests no GPUs: its device blocks have count = 0")
}

// Paused reports whether every group has a count of 0. Neither Nomad nor the placer has anything to
// do for a paused job until somebody scales it. An elastic gang is never paused, because the placer
// sets its count.
func Paused(job *api.Job) bool {
	_, elastic := rewrite.ElasticOf(job)
	return !elastic && !slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.Count == nil || *g.Count != 0 })
}

// NoMembers is the message for a job in which every group with GPUs has a count of 0.
const NoMembers = "every group with GPUs has count = 0; to add members, use nomad job scale"

// Takes returns why a job cannot be registered for the placer, or nil if it can. A paused job can
// be registered.
func Takes(job *api.Job) error {
	if err := Servable(job); err != nil || Paused(job) {
		return err
	}
	return Empty(job)
}

// Gate returns the job in the form in which to register it: with the gate. A job that requests no
// GPUs, or that runs on every node, gets no gate, because Nomad alone places it.
func Gate(job *api.Job) *api.Job {
	if NeverGated(job) != nil {
		return job
	}
	return rewrite.Gate(job)
}

// NeverGated returns why the job never gets a gate, or nil if it can get one.
func NeverGated(job *api.Job) error {
	if *job.Type == api.JobTypeSystem || *job.Type == api.JobTypeSysbatch {
		return fmt.Errorf("a %s job runs on every node, so nomad-pal has nothing to choose", *job.Type)
	}
	if !rewrite.AsksGPUs(job) {
		return fmt.Errorf(`%s; no task has a device block "gpu", "nvidia/gpu" or "nvidia/gpu/<model>"`, NoGPUs(job))
	}
	return nil
}

// Servable returns why no placer could serve the job on any cluster, or nil if one could.
func Servable(job *api.Job) error {
	if err := Addressable(*job.ID); err != nil {
		return err
	}
	if job.IsMultiregion() {
		return fmt.Errorf("multiregion jobs are not supported: use a separate job with a gate for each region")
	}
	if err := NeverGated(job); err != nil {
		return err
	}
	if err := cmp.Or(rewrite.MistypedGate(job), constraint.Check(job)); err != nil {
		return err
	}
	g, t := instanceChooser(job)
	if t != nil {
		return fmt.Errorf("task %q of group %q constrains ${device.ids}, but nomad-pal chooses the instances: remove this constraint, or run the job without the gate (nomad job run)", t.Name, *g.Name)
	}
	return nil
}

// ClassFrom describes the source of the job's application class; "" if the class is invalid.
func (v *View) ClassFrom(job *api.Job) string {
	h, err := rewrite.ParseHints(job)
	if err != nil {
		return ""
	}
	_, from, err := v.opts.classOf(job, h)
	if err != nil {
		return ""
	}
	return from
}

// classOf returns the job's application class, and a description of its source.
func (o Options) classOf(job *api.Job, h rewrite.Hints) (class pal.AppClass, from string, err error) {
	if h.Class != "" {
		return h.Class, "given by the job (pal_class)", nil
	}
	if h.App != "" {
		if c, ok := o.Apps[h.App]; ok {
			return c, fmt.Sprintf("the class of application %q (pal_class)", h.App), nil
		}
		known := slices.Sorted(maps.Keys(o.Apps))
		return "", "", fmt.Errorf("meta pal_class = %q is neither a class from A to D nor a configured application (known: %s)", h.App, strings.Join(known, ", "))
	}
	return o.DefaultClass, "the default, because the job sets no class", nil
}

// modeOf returns the mode of the job's pins. Pins to GPUs do not suit services that are gangs:
// Nomad starts a new member before it stops an old one. They do not suit elastic gangs either: a
// change of the pins restarts every member.
func modeOf(job *api.Job, h rewrite.Hints) rewrite.Mode {
	switch {
	case h.Independent(job):
		return rewrite.ModePrefer
	case h.Pin != "":
		return h.Pin
	case *job.Type == api.JobTypeService, h.Elastic:
		return rewrite.ModeClass
	}
	return rewrite.ModeGPU
}

// sharing describes the jobs with which the job shares GPUs; nil if the job requests whole GPUs.
func sharing(job *api.Job, h rewrite.Hints) *pal.Sharing {
	if !rewrite.AsksParts(job.TaskGroups...) {
		return nil
	}
	s := h.Neighbours
	s.Stays = stays(job)
	return &s
}

// stays reports whether the job never ends by itself.
func stays(job *api.Job) bool { return *job.Type != api.JobTypeBatch }

// ours reports whether the queue knows the running job, because the placer has placed it. The job
// has pins, or its author has registered it again, with the gate. If Nomad has placed a member of a
// version with the gate, a node satisfies the gate.
func ours(s *cluster.State, job *api.Job) bool {
	_, pinned := rewrite.Pinned(job)
	return pinned || rewrite.Gated(job) && !slices.ContainsFunc(s.AllocsOf(cluster.KeyOf(job)), func(a *cluster.Alloc) bool { return a.PlacedFor(job) })
}

// occupants returns a function that describes a job as a neighbour on a shared GPU. A job with
// invalid hints counts as a job without hints.
func (o Options) occupants(s *cluster.State) func(cluster.JobKey) pal.Occupant {
	return func(k cluster.JobKey) pal.Occupant {
		is := pal.Occupant{Gang: k.String(), Class: o.DefaultClass.Index(), Sharing: pal.Sharing{Beside: pal.AnyClass, Stays: true}, Parts: 1}
		job := s.Jobs[k]
		if job == nil {
			return is
		}
		is.Sharing.Stays = stays(job) || !ours(s, job)
		for _, g := range job.TaskGroups {
			is.Parts = max(is.Parts, rewrite.GPUsPerMember(g))
		}
		h, err := rewrite.ParseHints(job)
		if err != nil {
			return is
		}
		h.Neighbours.Stays = is.Sharing.Stays
		is.Sharing = h.Neighbours
		if o.Slower != nil {
			is.Sharing.Slower = o.Slower(k)
		}
		if class, _, err := o.classOf(job, h); err == nil {
			is.Class = class.Index()
		}
		return is
	}
}

// finished returns how many of the group's allocations have finished their work, and need not run
// again in a batch job.
func (v *View) finished(job *api.Job, group string) int {
	n := 0
	for _, a := range v.State.ByJob[cluster.KeyOf(job)] {
		if a.Group == group && a.FinishedIn(job) {
			n++
		}
	}
	return n
}

// needWithin returns [cluster.Need], with the maximum number of members per node and what limits it:
// distinct_hosts, static ports, or several parts of GPUs per member. Each address of a node has each
// port once.
func (v *View) needWithin(job *api.Job, g *api.TaskGroup) (need pal.Resources, limit string) {
	need = cluster.Need(g)
	ports := staticPorts(g)
	switch {
	case distinctHosts(job.Constraints) || distinctHosts(g.Constraints):
		need.PerNode, limit = 1, api.ConstraintDistinctHosts
	case rewrite.AsksParts(g) && rewrite.GPUsPerMember(g) > 1: // Nomad would mix up the parts of two such members on one node
		need.PerNode, limit = 1, "Nomad"
	case len(ports) > 0:
		first, _ := firstPort(LackFreePort, ports, func(int) bool { return true })
		need.PerNode, limit = v.fewestAddresses(), fmt.Sprintf("static port %d (%s)", first.Need, first.Name)
	}
	return need, limit
}

// fewestAddresses returns the smallest number of addresses of a node.
func (v *View) fewestAddresses() int {
	if len(v.Nodes) == 0 {
		return 1
	}
	return addresses(slices.MinFunc(v.Nodes, func(a, b *api.Node) int { return addresses(a) - addresses(b) }))
}

// addresses returns how many addresses a node has in its default network. Nomad does not list the
// addresses of other host networks.
func addresses(n *api.Node) int {
	all := map[string]bool{}
	if n.NodeResources != nil {
		for _, network := range n.NodeResources.Networks {
			if network != nil && network.IP != "" {
				all[network.IP] = true
			}
		}
	}
	return max(1, len(all))
}

func distinctHosts(cs []*api.Constraint) bool {
	return slices.ContainsFunc(cs, func(c *api.Constraint) bool {
		return c.Operand == api.ConstraintDistinctHosts && c.RTarget != "false"
	})
}

// modelled reports whether the view has all data that decide where the job can run.
func modelled(job *api.Job) bool {
	for _, g := range job.TaskGroups {
		if distinctHosts(constraintsOn(job, g)) || len(distinctProperties(job, g)) > 0 { // only the dry run checks such constraints across groups
			return false
		}
		// The view has no nodes without GPUs, but groups without GPUs can run on such nodes.
		if len(g.Volumes) > 0 || rewrite.GPUsPerMember(g) == 0 && rewrite.Members(g) > 0 {
			return false
		}
		for _, n := range g.Networks {
			if len(n.ReservedPorts) > 0 || n.Mode != "host" && n.Mode != "" || slices.ContainsFunc(n.DynamicPorts, ofHostNetwork) {
				return false
			}
		}
		for _, t := range g.Tasks {
			if t.Resources != nil && (cluster.ValueOf(t.Resources.Cores) > 0 || t.Resources.NUMA != nil) {
				return false
			}
		}
	}
	return true
}

// ofHostNetwork reports whether a port belongs to a host network that only some clients have.
func ofHostNetwork(p api.Port) bool { return p.HostNetwork != "" && p.HostNetwork != "default" }
