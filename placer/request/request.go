// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Request is a job in the form that the core needs.
type Request struct {
	Key   cluster.JobKey
	Job   *api.Job // the job as Nomad has it
	Gang  pal.Gang
	Hints rewrite.Hints
	// PreemptFrom is the configuration key that allows the placer to stop the gang. It is "" if the
	// author decided, or if the placer must not stop the gang.
	PreemptFrom string
	Mode        rewrite.Mode
	// Modelled is false if the job uses something that only Nomad's dry run can check.
	Modelled bool
	// Elastic is the range of an elastic gang's size; nil for other gangs. The size of Gang is the
	// job's current number of members or, while the job waits, the maximum.
	Elastic *rewrite.Elastic
	// SpeedsFrom describes, for each GPU model, the source of the gang's speed on it.
	SpeedsFrom map[string]string
	// NeighboursFrom describes, for each class of neighbours, the earlier runs from which the cost
	// of sharing a GPU is known: see [pal.Sharing].
	NeighboursFrom map[pal.AppClass]string
}

// Sized returns the gang. If the gang is elastic, it gets the given number of members.
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
	if open := rewrite.OpenGroups(job); rewrite.Gated(job) && len(open) > 0 {
		return r, fmt.Errorf("group %q has no gate, but other groups have a gate, so Nomad runs that group at once; put the gate on the job, because all groups start together", open[0])
	}
	if err := cmp.Or(v.State.Queues.Refusal(job), v.servesChild(job)); err != nil {
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
	if ask := v.opts.DefaultPreempt; ask != nil && !r.Hints.PreemptSaid && *job.Type == api.JobTypeBatch {
		r.Hints.Preempt, r.PreemptFrom = ask(r.Key.Namespace, class)
	}
	r.Mode = modeOf(job, r.Hints)
	r.Gang = pal.Gang{ID: r.Key.String(), Class: class, MaxTier: r.Hints.Locality, Replicas: replicas(job, r.Hints), Sharing: sharing(job, r.Hints)}
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
		set := pal.MemberSet{
			Name: *g.Name, Members: max(0, r.membersOf(g)-v.finished(job, *g.Name)), GPUs: a.gpus, Need: v.needWithin(author, g),
		}
		if set.Members > 0 { // a group without members must not restrict the other groups
			e := v.eligible(author, a)
			r.Gang.Share = max(r.Gang.Share, v.Cluster.LargestShare(e.could))
			set.Eligible, set.Prefer, set.Spreads = e.may, e.prefer, v.spreads(author, a, e)
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

// recall adds to r what earlier runs of the job's name show about the cost of neighbours.
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
		switch n := rewrite.GPUsPerMember(g); {
		case !rewrite.AsksParts(g):
		case each == 0:
			first, each = *g.Name, n
		case n != each:
			return fmt.Errorf("members of group %q have %s and members of group %q have %d, so they cannot be kept on different GPUs: "+
				"request the same number in both, or add pal_neighbours = \"any,self\"", first, reason.Counted(each, "part of a GPU", "parts of GPUs"), *g.Name, n)
		}
	}
	return nil
}

// Empty returns an error if a count is negative, or if the job has device blocks for GPUs but
// requests no GPU. The error explains why.
func Empty(job *api.Job) error {
	if i := slices.IndexFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.Count != nil && *g.Count < 0 }); i >= 0 {
		g := job.TaskGroups[i]
		return fmt.Errorf("group %q has count = %d, and a count cannot be negative", *g.Name, *g.Count)
	}
	switch {
	case rewrite.AllGPUs(job) > 0:
		return nil
	case slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return rewrite.GPUsPerMember(g) > 0 }):
		return errors.New("the job asks for no GPUs: every group with GPUs has count = 0")
	}
	return errors.New("the job asks for no GPUs: its device blocks have count = 0")
}

// Paused reports whether every group has a count of 0. Neither Nomad nor the placer has anything to
// do for such a job until somebody scales it. An elastic gang is never paused, because the placer
// sets its count.
func Paused(job *api.Job) bool {
	_, elastic := rewrite.ElasticOf(job)
	return !elastic && !slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.Count == nil || *g.Count != 0 })
}

// NoMembers is the message for a job in which every group with GPUs has a count of 0.
const NoMembers = "every group with GPUs has count = 0; nomad job scale gives it members"

// Takes returns why a job cannot be registered for the placer, or nil if it can. A paused job can
// be registered.
func Takes(job *api.Job) error {
	if err := Servable(job); err != nil || Paused(job) {
		return err
	}
	return Empty(job)
}

// Missing returns the request for the members that a running job lacks. Member sets that lack no
// members stay in the request, without members, so that each set keeps its number. If the pins name
// only nodes, Missing leaves out nodes that have excluded GPUs. To use such a node, the pins would
// have to name GPUs. This would change the device blocks, and so restart running members.
func (v *View) Missing(job *api.Job) (Request, error) {
	r, err := v.Request(job)
	if err != nil {
		return r, err
	}
	pins, _ := rewrite.Pinned(job)
	for i := range r.Gang.MemberSets {
		s := &r.Gang.MemberSets[i]
		if gp, ok := pins.Of(s.Name); ok && pins.Mode == rewrite.ModeClass && gp.GPUs == nil {
			s.Eligible = v.allUsable(s.Eligible)
		}
		v.discount(s, r, (*cluster.Alloc).Member)
	}
	return r, nil
}

// discount subtracts from a member set the members that already have an allocation. An allocation
// on a disconnected node and its replacement count as one member.
func (v *View) discount(s *pal.MemberSet, r Request, there func(*cluster.Alloc) bool) {
	seen := map[string]bool{}
	for _, a := range v.State.ByJob[r.Key] {
		if a.Group == s.Name && s.Members > 0 && !seen[a.Name] && there(a) {
			seen[a.Name] = true
			s.Members--
			v.haveSpread(s, a.Node)
			if node, ok := v.NodeOf[a.Node]; ok && r.Gang.Replicas {
				s.Beside = append(s.Beside, node)
			}
		}
	}
	if s.Members == 0 {
		s.Eligible, s.Spreads, s.Beside = nil, nil, nil
	}
}

// allUsable returns the eligible device groups whose nodes have no excluded GPU.
func (v *View) allUsable(eligible []bool) []bool {
	out := slices.Clone(eligible)
	for i := range out {
		out[i] = out[i] && v.usable([]string{v.GroupNode(i).ID}) == nil
	}
	return out
}

// Gate returns the job in the form in which to register it: with the gate. A job that requests no
// GPUs, or that runs on every node, gets no gate, because Nomad alone places it.
func Gate(job *api.Job) *api.Job {
	if !rewrite.AsksGPUs(job) || onEveryNode(job) {
		return job
	}
	return rewrite.Gate(job)
}

// onEveryNode reports whether a job of this type runs on every node that is eligible for it.
func onEveryNode(job *api.Job) bool {
	return *job.Type == api.JobTypeSystem || *job.Type == api.JobTypeSysbatch
}

// Servable returns why no placer could serve the job on any cluster, or nil if one could.
func Servable(job *api.Job) error {
	if err := Addressable(*job.ID); err != nil {
		return err
	}
	switch {
	case onEveryNode(job):
		return fmt.Errorf("a %s job runs on every node, so the placer has nothing to choose", *job.Type)
	case job.IsMultiregion():
		return fmt.Errorf("multiregion jobs are not supported: gate the job of each region by itself")
	case !rewrite.AsksGPUs(job):
		return fmt.Errorf(`%s; no task has a device block "gpu", "nvidia/gpu" or "nvidia/gpu/<model>"`, NoGPUs(job))
	}
	if err := cmp.Or(rewrite.MistypedGate(job), constraint.Check(job)); err != nil {
		return err
	}
	if g, t := instanceChooser(job); t != nil {
		return fmt.Errorf("task %q of group %q constrains ${device.ids} itself: the placer chooses the instances; remove that constraint, or run the job without the gate (nomad job run)", t.Name, *g.Name)
	}
	return nil
}

// ClassFrom describes the source of the job's application class. If the class is invalid, it
// returns "".
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
	if app, ok := o.Apps[h.App]; ok && h.Class != "" && h.Class != app {
		return "", "", fmt.Errorf("meta pal_class = %q contradicts pal_app = %q, which has class %s: remove one of the two", h.Class, h.App, app)
	}
	if h.Class != "" {
		return h.Class, "given by the job (pal_class)", nil
	}
	if h.App != "" {
		if c, ok := o.Apps[h.App]; ok {
			return c, fmt.Sprintf("the class of application %q (pal_app)", h.App), nil
		}
		known := slices.Sorted(maps.Keys(o.Apps))
		return "", "", fmt.Errorf("meta pal_app = %q: no such application is configured (known: %s); set pal_class instead", h.App, strings.Join(known, ", "))
	}
	if o.Learned != nil {
		if c, ok := o.Learned(job); ok {
			return c, "learned from earlier runs of this job", nil
		}
	}
	return o.DefaultClass, "the default, because the job sets no class", nil
}

// modeOf returns the mode of the job's pins. Services, and gangs that can lose or gain single
// members, are pinned to nodes and a class, because a change of pins to GPUs restarts every member.
func modeOf(job *api.Job, h rewrite.Hints) rewrite.Mode {
	switch {
	case h.Pin != "":
		return h.Pin
	case *job.Type == api.JobTypeService, h.OnFailure == rewrite.ReplaceMember, h.Elastic:
		return rewrite.ModeClass
	}
	return rewrite.ModeGPU
}

// replicas reports whether the job's members work independently. The members of a service work
// independently, unless its author sets pal_on_failure = "gang" or pal_locality.
func replicas(job *api.Job, h rewrite.Hints) bool {
	return *job.Type == api.JobTypeService && h.OnFailure != rewrite.ReplaceGang && h.Locality == 0
}

// sharing describes the jobs with which the job shares GPUs. It returns nil if the job requests
// whole GPUs.
func sharing(job *api.Job, h rewrite.Hints) *pal.Sharing {
	if !rewrite.AsksParts(job.TaskGroups...) {
		return nil
	}
	s := h.Neighbours
	s.Stays = *job.Type != api.JobTypeBatch
	return &s
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
		_, ours := rewrite.Pinned(job)
		is.Sharing.Stays = !ours || *job.Type != api.JobTypeBatch
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

// spreadByNomad reports whether the pins should make Nomad spread a group's members evenly over
// nodes. Pins to GPUs already decide the nodes, and the author's own spread blocks take precedence.
func (r Request) spreadByNomad(group string) bool {
	if !r.Gang.Replicas || r.Mode == rewrite.ModeGPU {
		return false
	}
	author := rewrite.Author(r.Job)
	g := author.LookupTaskGroup(group)
	return len(author.Spreads) == 0 && g != nil && len(g.Spreads) == 0
}

// finished returns how many of the group's allocations have finished their work. A batch job does
// not run them again.
func (v *View) finished(job *api.Job, group string) int {
	n := 0
	for _, a := range v.State.ByJob[cluster.KeyOf(job)] {
		if a.Group == group && a.FinishedIn(job) {
			n++
		}
	}
	return n
}

// eligibility is the result of checking all device groups against a request. may marks the device
// groups that may serve the request now. could marks the device groups that could serve the request
// if all nodes were back. prefer contains the preferences: see [View.preferred]. values caches, by
// attribute, the values that spreads use. few is set if a distinct_property has too few values for
// the members; no group can then serve the request.
type eligibility struct {
	may    []bool
	could  []bool
	few    *Lack
	prefer [][]bool
	values map[string]attributeValues
	models []string // the models of could
}

// eligible checks for each device group whether Nomad may use it for the request. It excludes MIG
// instances if the request names no model and the cluster has a whole GPU, free or allocated, that
// could serve the request.
func (v *View) eligible(job *api.Job, a gpuRequest) eligibility {
	key := eligibilityKey(job, a)
	if e, ok := v.eligibility[key]; ok {
		return e
	}
	if len(v.eligibility) >= eligibilityKept { // most entries are of jobs that no longer exist
		clear(v.eligibility)
		clear(v.avoiding) // the keys of avoiding are addresses of eligibility's slices
	}
	e := eligibility{may: make([]bool, len(v.Devices)), could: make([]bool, len(v.Devices)), values: map[string]attributeValues{}}
	sliced := a.leavesModelOpen() && v.wholeGPU(job, a)
	for i, d := range v.Devices {
		n := v.GroupNode(i)
		e.could[i] = a.serves(d) && nodeCould(job, a.group, n) && !(sliced && isMIG(d))
		e.may[i] = e.could[i] && cluster.NotReady(n) == "" && nodeFits(job, a.group, n)
	}
	if e.few = v.fewValues(job, a, e.could); e.few != nil {
		clear(e.may)
		clear(e.could)
	}
	e.prefer, e.models = v.preferred(job, a, e.may), v.namesOf(e.could)
	v.eligibility[key] = e
	return e
}

// wholeGPU reports whether some whole GPU could serve the request if its node were ready.
func (v *View) wholeGPU(job *api.Job, a gpuRequest) bool {
	for i, d := range v.Devices {
		if !isMIG(d) && a.serves(d) && nodeCould(job, a.group, v.GroupNode(i)) {
			return true
		}
	}
	return false
}

// leastMembers returns the number of members that the group needs to start.
func leastMembers(job *api.Job, g *api.TaskGroup) int {
	if is, elastic := rewrite.ElasticOf(job); elastic {
		return is.Least
	}
	return rewrite.Members(g)
}

// fewValues returns a lack if a distinct_property of the job has too few values for the group's
// members. It counts the values on all nodes that could serve the group. If there are enough, it
// returns nil.
func (v *View) fewValues(job *api.Job, a gpuRequest, could []bool) *Lack {
	members := leastMembers(job, a.group)
	for _, c := range distinctProperties(job, a.group) {
		values := map[string]bool{}
		for i := range could {
			if value, ok := constraint.NodeTarget(c.LTarget, v.GroupNode(i)); ok && could[i] {
				values[value] = true
			}
		}
		each, err := strconv.Atoi(cmp.Or(c.RTarget, "1"))
		if err == nil && len(values) > 0 && len(values)*each < members {
			return &Lack{Kind: LackProperty, Attribute: c.LTarget, Operator: c.Operand, Value: strconv.Itoa(len(values)), Need: members}
		}
	}
	return nil
}

// distinctProperties returns the distinct_property constraints that apply to the group.
func distinctProperties(job *api.Job, g *api.TaskGroup) []*api.Constraint {
	return slices.DeleteFunc(constraintsOn(job, g), func(c *api.Constraint) bool { return c.Operand != api.ConstraintDistinctProperty })
}

// constraintsOn returns all constraints that a node must meet for a group's member: those of the
// job, of the group and of the group's tasks.
func constraintsOn(job *api.Job, g *api.TaskGroup) []*api.Constraint {
	all := slices.Concat(job.Constraints, g.Constraints)
	for _, t := range g.Tasks {
		all = append(all, t.Constraints...)
	}
	return all
}

// Ever returns the smallest gang that satisfies the request. It may use all nodes that could serve
// it, including nodes that are away.
func (v *View) Ever(r Request) pal.Gang {
	g, author := r.Least(), rewrite.Author(r.Job)
	g.MemberSets = slices.Clone(g.MemberSets)
	for i, set := range g.MemberSets {
		if of := author.LookupTaskGroup(set.Name); set.Members > 0 && of != nil {
			if a, err := gpuRequestOf(of); err == nil {
				g.MemberSets[i].Eligible = v.eligible(author, a).could
			}
		}
	}
	return g
}

// eligibilityKept is the maximum number of entries in the cache. An author who changes a constraint
// every second creates a new entry each time.
const eligibilityKept = 10_000

// eligibilityKey returns a key for the parts of a job that decide its eligibility: constraints,
// affinities, spreads, drivers, volumes, static ports, cores, datacenters, pool and devices. Jobs
// with equal parts share one entry of the cache, so most jobs need no pass over all device groups.
func eligibilityKey(job *api.Job, a gpuRequest) string {
	all := []any{job.Datacenters, cluster.PoolOf(job), job.Constraints, job.Affinities, a.group.Constraints, a.group.Affinities, job.Spreads, a.group.Spreads, a.group.Volumes, staticPorts(a.group)}
	if len(a.group.Volumes) > 0 || len(distinctProperties(job, a.group)) > 0 { // there may be one volume or value for each member
		all = append(all, a.group.Count, leastMembers(job, a.group))
	}
	for _, t := range a.group.Tasks {
		all = append(all, t.Driver, t.Constraints, t.Affinities)
		if r := t.Resources; r != nil {
			all = append(all, r.Cores)
			for _, d := range r.Devices {
				if d != nil && !rewrite.IsGPU(d.Name) {
					all = append(all, d.Name, d.Count, d.Constraints)
				}
			}
		}
	}
	for _, r := range a.requests {
		all = append(all, r.Name, r.Constraints, r.Affinities)
	}
	sum := sha256.New() // a hash, because authors may write texts of any length
	if err := json.NewEncoder(sum).Encode(all); err != nil {
		panic(err) // cannot fail, because all contains only texts and numbers
	}
	return string(sum.Sum(nil))
}

// needWithin returns [cluster.Need]. It adds the maximum number of members per node that follows
// from distinct_hosts, from static ports, or from members with parts of several GPUs.
func (v *View) needWithin(job *api.Job, g *api.TaskGroup) pal.Resources {
	need := cluster.Need(g)
	switch {
	case distinctHosts(job.Constraints) || distinctHosts(g.Constraints):
		need.PerNode = 1
	case len(staticPorts(g)) > 0:
		need.PerNode = addresses(v.Nodes)
	case rewrite.AsksParts(g) && rewrite.GPUsPerMember(g) > 1:
		need.PerNode = 1 // Nomad would mix up the parts of two such members on one node
	}
	return need
}

// addresses returns the largest number of IP addresses that any node has on one network device, at
// least 1. A node accepts as many members with the same static port as it has addresses, for
// example two members with IPv4 and IPv6 (seen on 1.11.3).
func addresses(nodes []*api.Node) int {
	most := 1
	for _, n := range nodes {
		on := map[string]int{}
		for _, network := range n.NodeResources.Networks {
			if network != nil && network.IP != "" {
				on[network.Device]++
				most = max(most, on[network.Device])
			}
		}
	}
	return most
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

// Pins returns the pins that restrict the request to the placement. In class mode, the pins name
// nodes and a class ceiling. The ceiling is the highest class of the chosen GPUs, so that Nomad can
// use any GPU that is as good. The pins name GPUs only if Nomad must not use all GPUs of these
// nodes, because some are excluded or outliers, or because the gang gets parts of certain GPUs.
func (v *View) Pins(r Request, p pal.Placement) rewrite.Pins {
	pins := rewrite.Pins{Mode: r.Mode}
	groups := map[string]*rewrite.GroupPins{}
	open := false // true if some GPU has no published class; then there is no ceiling
	for _, m := range p.Members {
		name := r.Gang.MemberSets[m.MemberSet].Name
		g := groups[name]
		if g == nil {
			g = &rewrite.GroupPins{Group: name, Spread: r.spreadByNomad(name)}
			groups[name] = g
		}
		g.Nodes = append(g.Nodes, v.GroupNode(m.Group).ID)
		for _, u := range m.GPUs {
			gpu := v.Cluster.GPU(u)
			g.GPUs = append(g.GPUs, gpu.ID)
			class := publishedClass(v.Ledger, m.Group, gpu.ID, r.Gang.Class)
			open = open || class == 0
			pins.Ceiling = max(pins.Ceiling, class)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		slices.Sort(g.Nodes)
		g.Nodes = slices.Compact(g.Nodes)
		slices.Sort(g.GPUs)
		switch {
		case r.Gang.Sharing != nil && r.Mode == rewrite.ModeClass: // Nomad may choose other parts of these GPUs
			g.GPUs = partsOf(v.Ledger, g.GPUs)
		case r.Mode == rewrite.ModeClass:
			g.GPUs = v.usable(g.Nodes)
		}
		pins.Groups = append(pins.Groups, *g)
	}
	if r.Mode == rewrite.ModeClass && !open {
		pins.Class = r.Gang.Class
	} else {
		pins.Ceiling = 0
	}
	if r.Elastic != nil {
		v.elasticPins(r, p, &pins)
	}
	if p.PMScore <= pal.PMScore(v.opts.OutlierThreshold) {
		v.barOutliers(r, &pins)
	}
	return pins
}

// barOutliers removes outliers from class pins that would allow them. Pins allow an outlier if they
// have no ceiling, or if the outlier's class also contains other GPUs. The pins then name all the
// other GPUs, because Nomad does not know which GPUs are outliers. Outliers that the pins in
// allowed already allow are not removed.
func (v *View) barOutliers(r Request, pins *rewrite.Pins, allowed ...rewrite.Pins) {
	if pins.Mode != rewrite.ModeClass || v.opts.OutlierThreshold == 0 {
		return
	}
	for i := range pins.Groups {
		g := &pins.Groups[i]
		all := g.GPUs
		if all == nil {
			all = gpusOf(v.Ledger, g.Nodes)
		}
		good := slices.DeleteFunc(slices.Clone(all), func(id string) bool {
			u := v.Cluster.Find(id)
			return u >= 0 && v.outlier(u, r.Gang.Class) && v.allows(*pins, g.Group, u, r.Gang.Class) &&
				!slices.ContainsFunc(allowed, func(o rewrite.Pins) bool { return v.allows(o, g.Group, u, r.Gang.Class) })
		})
		if len(good) < len(all) {
			g.GPUs = good
		}
	}
}

// allows reports whether [rewrite.ModeClass] pins let Nomad give GPU u to the group.
func (v *View) allows(p rewrite.Pins, group string, u int, class pal.AppClass) bool {
	g, ok := p.Of(group)
	if !ok || !slices.Contains(g.Nodes, v.GPUNode(u).ID) || g.GPUs != nil && !slices.Contains(g.GPUs, v.Cluster.GPU(u).ID) {
		return false
	}
	c := v.classOfGPU(u, class)
	return p.Ceiling == 0 || c != 0 && c <= p.Ceiling
}

// outlier reports whether GPU u is an outlier for jobs of the class.
func (v *View) outlier(u int, class pal.AppClass) bool {
	return v.Cluster.GPU(u).Scores[class.Index()] > pal.PMScore(v.opts.OutlierThreshold)
}

// usable returns the GPUs of the nodes, sorted, without the excluded GPUs. Pins have to name these
// GPUs, because Nomad does not know which GPUs are excluded. If no GPU is excluded, usable returns
// nil.
func (v *View) usable(nodes []string) []string {
	all := gpusOf(v.Ledger, nodes)
	ids := slices.DeleteFunc(slices.Clone(all), func(id string) bool {
		return v.opts.Ledger.Quarantined[attr.GPUOf(id)] || v.opts.Ledger.Unavailable[id] != ""
	})
	if len(ids) == len(all) {
		return nil
	}
	return ids
}

// partsOf returns all parts of the shared GPUs to which the given parts belong, sorted.
func partsOf(v *ledger.Ledger, parts []string) (all []string) {
	for _, id := range parts {
		first, n := v.Cluster.GroupGPUs(v.Cluster.GroupOf(v.Cluster.Find(id)))
		for u := first; u < first+n; u++ {
			all = append(all, v.Cluster.GPU(u).ID)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// gpusOf returns the GPUs of the nodes, sorted.
func gpusOf(v *ledger.Ledger, nodes []string) []string {
	ids := []string{}
	for i, d := range v.Devices {
		if slices.Contains(nodes, v.GroupNode(i).ID) {
			ids = append(ids, cluster.InstanceIDs(d)...)
		}
	}
	slices.Sort(ids)
	return ids
}

// Widen returns pins that allow all GPUs that old or more allows. old are a job's pins. more are
// the pins of further members, whose request is r. If only one of old and more names GPUs, Widen
// also names the GPUs on the nodes of the other.
func (v *View) Widen(r Request, old, more rewrite.Pins) rewrite.Pins {
	if old.Mode != rewrite.ModeClass {
		return old.Union(more)
	}
	both := v.named(old, more).Union(v.named(more, old))
	v.barOutliers(r, &both, old, more)
	return both
}

// named returns p. In each group in which only o names GPUs, the result names all GPUs on the nodes
// of p.
func (v *View) named(p, o rewrite.Pins) rewrite.Pins {
	p.Groups = slices.Clone(p.Groups)
	for i, g := range p.Groups {
		if other, ok := o.Of(g.Group); ok && other.GPUs != nil && g.GPUs == nil {
			p.Groups[i].GPUs = gpusOf(v.Ledger, g.Nodes)
		}
	}
	return p
}

// Pin returns the job with exactly these pins: see [rewrite.Pin].
func (v *View) Pin(job *api.Job, p rewrite.Pins) (*api.Job, error) {
	return rewrite.Pin(job, p, v.racks(p.Nodes()))
}

// racksShare is the largest share of the cluster's GPU nodes that the racks named in a job may
// contain. If racks contain more nodes, naming them would exclude too few nodes to be worthwhile.
const racksShare = 0.25

// racks returns the racks of the nodes. If a node's rack is unknown, or if the racks contain more
// than racksShare of the cluster's nodes, it returns none.
func (v *View) racks(nodes []string) rewrite.Racks {
	in := map[string]bool{}
	for _, id := range nodes {
		i, ok := v.NodeOf[id]
		if !ok || v.Nodes[i].Meta[v.opts.Ledger.RackMeta] == "" {
			return rewrite.Racks{}
		}
		in[v.Nodes[i].Meta[v.opts.Ledger.RackMeta]] = true
	}
	held := 0
	for name := range in {
		held += v.InRack[name]
	}
	if float64(held) > racksShare*float64(len(v.Nodes)) {
		return rewrite.Racks{}
	}
	return rewrite.Racks{Meta: v.opts.Ledger.RackMeta, Names: slices.Sorted(maps.Keys(in))}
}

// classOfGPU returns the published class of GPU u.
func (v *View) classOfGPU(u int, class pal.AppClass) int {
	return publishedClass(v.Ledger, v.Cluster.GroupOf(u), v.Cluster.GPU(u).ID, class)
}

// publishedClass returns the variability class that the node itself publishes for a GPU, or 0 if it
// publishes none. Nomad checks class ceilings against the published class. Until the node has read
// a new profile, the published class can differ from the profile's.
func publishedClass(v *ledger.Ledger, group int, gpu string, class pal.AppClass) int {
	for k := 1; k <= profile.MaxClass; k++ {
		if slices.Contains(attr.SplitIDs(cluster.TextOf(v.Devices[group], attr.List(class, k))), gpu) {
			return k
		}
	}
	return 0
}
