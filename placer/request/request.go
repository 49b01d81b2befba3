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
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Request is a job as the core sees it.
type Request struct {
	Key   cluster.JobKey
	Job   *api.Job // as Nomad has it
	Gang  pal.Gang
	Hints rewrite.Hints
	// PreemptFrom is the key of the configuration that lets the gang be stopped; "": its author does, or it
	// may not be.
	PreemptFrom string
	Mode        rewrite.Mode
	// Modelled is false if the job uses something that only Nomad's dry run
	// can judge.
	Modelled bool
	// Elastic is between how many members an elastic gang may run with; nil of others. Gang
	// has as many as the job has now, all while it waits.
	Elastic *rewrite.Elastic
	// SpeedsFrom names the source of the gang's speed on each GPU model, in words.
	SpeedsFrom map[string]string
	// NeighboursFrom names the source of what neighbours of each class cost the gang, in words,
	// where earlier runs tell: see [pal.Sharing].
	NeighboursFrom map[pal.AppClass]string
}

// Sized is the gang; if it is elastic, with this many members.
func (r Request) Sized(members int) pal.Gang {
	g := r.Gang
	if r.Elastic != nil {
		g.MemberSets = slices.Clone(g.MemberSets)
		g.MemberSets[0].Members = members
	}
	return g
}

// Full is the gang with all members that it may have, Least with as few as it needs.
func (r Request) Full() pal.Gang {
	if r.Elastic == nil {
		return r.Gang
	}
	return r.Sized(r.Elastic.Most)
}

// Least: see [Request.Full].
func (r Request) Least() pal.Gang {
	if r.Elastic == nil {
		return r.Gang
	}
	return r.Sized(r.Elastic.Least)
}

// Request reads what the job wants. The error is the reason why the placer
// cannot serve it, for its author.
func (v *View) Request(job *api.Job) (Request, error) {
	r := Request{Key: cluster.KeyOf(job), Job: job, Modelled: modelled(job)}
	if err := Servable(job); err != nil {
		return r, err
	}
	if open := rewrite.OpenGroups(job); rewrite.Gated(job) && len(open) > 0 {
		return r, fmt.Errorf("group %q has no gate, though others have: Nomad runs it at once; put the gate on the job, whose groups start together", open[0])
	}
	if err := v.State.Queues.Refusal(job); err != nil {
		return r, err
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
		// A group whose members have all finished stays, so that a member set keeps
		// its number.
		set := pal.MemberSet{
			Name: *g.Name, Members: max(0, r.membersOf(g)-v.finished(job, *g.Name)), GPUs: a.gpus, Need: v.needWithin(author, g),
		}
		if set.Members > 0 { // the others must not limit them
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

// recall reads what earlier runs of the job's name tell of neighbours.
func (v *View) recall(job *api.Job, r *Request) {
	if r.Gang.Sharing != nil && v.opts.Runs != nil {
		runs := v.opts.Runs(job, r.Full().GPUs()).Beside
		r.Gang.Sharing.Slower, r.NeighboursFrom = queue.SlowerBeside(r.Gang.Class, runs)
	}
}

// apart is why the members of a gang cannot be kept on different GPUs; nil if they can, or need not.
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
			return fmt.Errorf("members of group %q have %d parts of GPUs and those of group %q %d, so that they cannot be kept on different GPUs: "+
				"ask for as many in both, or add pal_neighbours = \"any,self\"", first, each, *g.Name, n)
		}
	}
	return nil
}

// Empty says of a job with device blocks for GPUs why it asks for none all the same; nil if it
// asks for some.
func Empty(job *api.Job) error {
	if i := slices.IndexFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.Count != nil && *g.Count < 0 }); i >= 0 {
		g := job.TaskGroups[i]
		return fmt.Errorf("group %q has count = %d, and a count cannot be negative", *g.Name, *g.Count)
	}
	switch {
	case rewrite.AllGPUs(job) > 0:
		return nil
	case slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return rewrite.GPUsPerMember(g) > 0 }):
		return errors.New("the job asks for no GPUs: every group that does has count = 0")
	}
	return errors.New("the job asks for no GPUs: its device blocks have count = 0")
}

// Paused reports whether the author wants no members of the job for now: each of its groups has a count
// of 0. Nomad has no more to do for it than the placer, until it is scaled. Of an elastic gang the
// count is ours.
func Paused(job *api.Job) bool {
	_, elastic := rewrite.ElasticOf(job)
	return !elastic && !slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.Count == nil || *g.Count != 0 })
}

// NoMembers is said of a job whose author wants no members of it with GPUs for now.
const NoMembers = "every group with GPUs has count = 0; nomad job scale gives it members"

// Takes reports why a job cannot be registered for a placer; nil if it can. One that is paused can.
func Takes(job *api.Job) error {
	if err := Servable(job); err != nil || Paused(job) {
		return err
	}
	return Empty(job)
}

// Missing is the request for the members that a running job lacks; member sets of which
// none is missing stay, with no members, so that each keeps its number. Where its pins
// name nodes only, it leaves out nodes with GPUs that are kept out: naming GPUs would
// change what its members ask for, and so restart them.
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

// discount leaves in a member set the members that no allocation of the job is there for. One on a
// silent node and the one that runs in its stead are one member.
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

// allUsable are those of the device groups on whose nodes no GPU is kept out.
func (v *View) allUsable(eligible []bool) []bool {
	out := slices.Clone(eligible)
	for i := range out {
		out[i] = out[i] && v.usable([]string{v.GroupNode(i).ID}) == nil
	}
	return out
}

// Gate is the job as it is to be registered for the placer: with the gate, unless Nomad alone
// places it in any case: without GPUs, or on every node.
func Gate(job *api.Job) *api.Job {
	if !rewrite.AsksGPUs(job) || onEveryNode(job) {
		return job
	}
	return rewrite.Gate(job)
}

// onEveryNode reports whether a job runs on every node that it may run on.
func onEveryNode(job *api.Job) bool {
	return *job.Type == api.JobTypeSystem || *job.Type == api.JobTypeSysbatch
}

// Servable reports why no placer could serve the job, whatever the cluster is; nil if one
// could.
func Servable(job *api.Job) error {
	if err := Addressable(*job.ID); err != nil {
		return err
	}
	switch {
	case onEveryNode(job):
		return fmt.Errorf("a %s job runs on every node: there is nothing to choose", *job.Type)
	case job.IsMultiregion():
		return fmt.Errorf("multiregion jobs are not supported: gate the job of each region by itself")
	case !rewrite.AsksGPUs(job):
		return fmt.Errorf(`%s; no task has a device block "gpu", "nvidia/gpu" or "nvidia/gpu/<model>"`, NoGPUs(job))
	}
	if err := cmp.Or(rewrite.MistypedGate(job), constraint.Check(job)); err != nil {
		return err
	}
	if g, t := instanceChooser(job); t != nil {
		return fmt.Errorf("task %q of group %q constrains ${device.ids} itself: choosing instances is the placer's part; drop that constraint, or leave the gate off (nomad job run adds none)", t.Name, *g.Name)
	}
	return nil
}

// ClassFrom reports where the application class of the job comes from, in words;
// "" if it has none.
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

// classOf is the job's application class and where it comes from.
func (o Options) classOf(job *api.Job, h rewrite.Hints) (class pal.AppClass, from string, err error) {
	if app, ok := o.Apps[h.App]; ok && h.Class != "" && h.Class != app {
		return "", "", fmt.Errorf("meta pal_class = %q contradicts pal_app = %q, which is of class %s: leave one out", h.Class, h.App, app)
	}
	if h.Class != "" {
		return h.Class, "the job says so (pal_class)", nil
	}
	if h.App != "" {
		if c, ok := o.Apps[h.App]; ok {
			return c, fmt.Sprintf("that of application %q (pal_app)", h.App), nil
		}
		known := slices.Sorted(maps.Keys(o.Apps))
		return "", "", fmt.Errorf("meta pal_app = %q: no such application is configured (known: %s); say pal_class instead", h.App, strings.Join(known, ", "))
	}
	if o.Learned != nil {
		if c, ok := o.Learned(job); ok {
			return c, "learned from earlier runs of this job", nil
		}
	}
	return o.DefaultClass, "the default, as the job names none", nil
}

// modeOf is how tightly the job is pinned. Services, and gangs that lose or gain single
// members, get pins to nodes and a class: pins to GPUs cannot change without restarting
// every member.
func modeOf(job *api.Job, h rewrite.Hints) rewrite.Mode {
	switch {
	case h.Pin != "":
		return h.Pin
	case *job.Type == api.JobTypeService, h.OnFailure == rewrite.ReplaceMember, h.Elastic:
		return rewrite.ModeClass
	}
	return rewrite.ModeGPU
}

// replicas reports whether the job's members work alone: those of a service, unless its
// author reports that they need each other or how close together they are to be.
func replicas(job *api.Job, h rewrite.Hints) bool {
	return *job.Type == api.JobTypeService && h.OnFailure != rewrite.ReplaceGang && h.Locality == 0
}

// sharing is with whom the job shares GPUs; nil if it asks for whole ones.
func sharing(job *api.Job, h rewrite.Hints) *pal.Sharing {
	if !rewrite.AsksParts(job.TaskGroups...) {
		return nil
	}
	s := h.Neighbours
	s.Stays = *job.Type != api.JobTypeBatch
	return &s
}

// occupants tell of each job how those see it who share a GPU with it. One whose hints cannot be
// read counts as if it had none.
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

// spreadByNomad reports whether Nomad is to spread the members of a group evenly over nodes.
// Pins to GPUs spread them already, and blocks of the author's come before ours.
func (r Request) spreadByNomad(group string) bool {
	if !r.Gang.Replicas || r.Mode == rewrite.ModeGPU {
		return false
	}
	author := rewrite.Author(r.Job)
	g := author.LookupTaskGroup(group)
	return len(author.Spreads) == 0 && g != nil && len(g.Spreads) == 0
}

// finished counts the group's allocations that did their work: a batch job
// does not run them again.
func (v *View) finished(job *api.Job, group string) int {
	n := 0
	for _, a := range v.State.ByJob[cluster.KeyOf(job)] {
		if a.Group == group && a.FinishedIn(job) {
			n++
		}
	}
	return n
}

// eligibility is which device groups may serve an ask, which could once nodes are back that are away,
// which of them are preferred, and what spreads of such asks go over, by attribute, once worked out. few:
// too few values of a property that all members must differ in, and so no group may.
type eligibility struct {
	may    []bool
	could  []bool
	few    *Lack
	prefer [][]bool
	values map[string]attributeValues
	models []string // of could
}

// eligible says for each device group whether it may serve the ask: Nomad may
// use it, and it is a whole GPU where the ask leaves that open and whole GPUs
// could serve it, busy or not.
func (v *View) eligible(job *api.Job, a gpuRequest) eligibility {
	key := eligibilityKey(job, a)
	if e, ok := v.eligibility[key]; ok {
		return e
	}
	if len(v.eligibility) >= eligibilityKept { // of jobs that are gone, most of them
		clear(v.eligibility)
		clear(v.avoiding) // its keys are addresses of what eligibility holds
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

// wholeGPU reports whether some whole GPU could serve the ask if its node were
// ready.
func (v *View) wholeGPU(job *api.Job, a gpuRequest) bool {
	for i, d := range v.Devices {
		if !isMIG(d) && a.serves(d) && nodeCould(job, a.group, v.GroupNode(i)) {
			return true
		}
	}
	return false
}

// fewValues is a distinct_property of the job that has too few values, on all nodes that could serve the
// group, for its members; nil if there is none.
func (v *View) fewValues(job *api.Job, a gpuRequest, could []bool) *Lack {
	members := rewrite.Members(a.group)
	if is, elastic := rewrite.ElasticOf(job); elastic {
		members = is.Least
	}
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

// distinctProperties are the constraints by which the group's members must differ.
func distinctProperties(job *api.Job, g *api.TaskGroup) (found []*api.Constraint) {
	sets := [][]*api.Constraint{job.Constraints, g.Constraints}
	for _, t := range g.Tasks {
		sets = append(sets, t.Constraints)
	}
	for _, c := range slices.Concat(sets...) {
		if c.Operand == api.ConstraintDistinctProperty {
			found = append(found, c)
		}
	}
	return found
}

// Ever is the least of the request's gang that is of use, on a cluster to which all nodes are back.
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

// eligibilityKept bounds what is remembered of asks: an author who changes a
// constraint each second makes another one each time.
const eligibilityKept = 10_000

// eligibilityKey stands for all that eligibility depends on: constraints, affinities, spreads,
// drivers, volumes, static ports, cores, datacenters, pool and devices. Jobs that differ in nothing else share
// an entry, which saves most of the work: one answer takes a look at every device group.
func eligibilityKey(job *api.Job, a gpuRequest) string {
	all := []any{job.Datacenters, cluster.PoolOf(job), job.Constraints, job.Affinities, a.group.Constraints, a.group.Affinities, job.Spreads, a.group.Spreads, a.group.Volumes, staticPorts(a.group)}
	if len(a.group.Volumes) > 0 || len(distinctProperties(job, a.group)) > 0 { // there may be one for each member
		all = append(all, a.group.Count)
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
	sum := sha256.New() // authors write as much as they like
	if err := json.NewEncoder(sum).Encode(all); err != nil {
		panic(err) // texts and numbers only
	}
	return string(sum.Sum(nil))
}

// needWithin is [cluster.Need] with what bounds the members on one node: distinct_hosts, and static
// ports.
func (v *View) needWithin(job *api.Job, g *api.TaskGroup) pal.Resources {
	need := cluster.Need(g)
	switch {
	case distinctHosts(job.Constraints) || distinctHosts(g.Constraints):
		need.PerNode = 1
	case len(staticPorts(g)) > 0:
		need.PerNode = addresses(v.Nodes)
	case rewrite.AsksParts(g) && rewrite.GPUsPerMember(g) > 1:
		need.PerNode = 1 // Nomad would mix up the parts of two members, which may be of several GPUs
	}
	return need
}

// addresses is the largest number of addresses that a node has on one network. The node takes that
// many members with the same static port, for example two with IPv4 and IPv6 (seen on 1.11.3). At
// least 1.
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

// modelled reports whether the view knows everything that decides where the job
// may run.
func modelled(job *api.Job) bool {
	distinct := func(cs []*api.Constraint) bool { // distinct_hosts: between groups only by the dry run
		return distinctHosts(cs) || slices.ContainsFunc(cs, func(c *api.Constraint) bool {
			return c.Operand == api.ConstraintDistinctProperty
		})
	}
	if distinct(job.Constraints) {
		return false
	}
	for _, g := range job.TaskGroups {
		// The view has no nodes without GPUs, on which other groups may run.
		if distinct(g.Constraints) || len(g.Volumes) > 0 || rewrite.GPUsPerMember(g) == 0 && rewrite.Members(g) > 0 {
			return false
		}
		for _, n := range g.Networks {
			if len(n.ReservedPorts) > 0 || n.Mode != "host" && n.Mode != "" || slices.ContainsFunc(n.DynamicPorts, ofHostNetwork) {
				return false
			}
		}
		for _, t := range g.Tasks {
			if distinct(t.Constraints) || (t.Resources != nil && (cluster.ValueOf(t.Resources.Cores) > 0 || t.Resources.NUMA != nil)) {
				return false
			}
		}
	}
	return true
}

// ofHostNetwork reports whether a port is to be of a network that not all clients have.
func ofHostNetwork(p api.Port) bool { return p.HostNetwork != "" && p.HostNetwork != "default" }

// Pins are the pins that put the request where the placement says. In class mode they
// name nodes, a class ceiling (the highest class among the chosen GPUs, so that Nomad may
// choose any that are as good), and GPUs only if some GPU of these nodes is kept out.
func (v *View) Pins(r Request, p pal.Placement) rewrite.Pins {
	pins := rewrite.Pins{Mode: r.Mode}
	groups := map[string]*rewrite.GroupPins{}
	open := false // some GPU has no published class: no ceiling then
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

// barOutliers leaves outliers out of pins by class that would allow them, since their class
// holds sound GPUs, too, or since there is no ceiling: it names the others. Nomad knows
// nothing of outliers, and would choose any. Those that other pins allow stay.
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

// allows reports whether Nomad may give the group GPU u by pins of [rewrite.ModeClass].
func (v *View) allows(p rewrite.Pins, group string, u int, class pal.AppClass) bool {
	g, ok := p.Of(group)
	if !ok || !slices.Contains(g.Nodes, v.GPUNode(u).ID) || g.GPUs != nil && !slices.Contains(g.GPUs, v.Cluster.GPU(u).ID) {
		return false
	}
	c := v.classOfGPU(u, class)
	return p.Ceiling == 0 || c != 0 && c <= p.Ceiling
}

// outlier reports whether GPU u is one for jobs of the class.
func (v *View) outlier(u int, class pal.AppClass) bool {
	return v.Cluster.GPU(u).Scores[class.Index()] > pal.PMScore(v.opts.OutlierThreshold)
}

// usable are the GPUs of the nodes, sorted, without those that are kept out: Nomad
// knows nothing of them, and would choose any. nil if none is.
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

// partsOf are all parts of GPUs of which some are given, sorted.
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

// gpusOf are the GPUs of the nodes, sorted.
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

// Widen are pins that allow what a job's pins allow, and what those of further
// members of it do. Where the ones name GPUs, and the others any of their nodes,
// these are named, too. The request is that of the further members.
func (v *View) Widen(r Request, old, more rewrite.Pins) rewrite.Pins {
	if old.Mode != rewrite.ModeClass {
		return old.Union(more)
	}
	both := v.named(old, more).Union(v.named(more, old))
	v.barOutliers(r, &both, old, more)
	return both
}

// named are the pins with GPUs named where the others name them.
func (v *View) named(p, o rewrite.Pins) rewrite.Pins {
	p.Groups = slices.Clone(p.Groups)
	for i, g := range p.Groups {
		if other, ok := o.Of(g.Group); ok && other.GPUs != nil && g.GPUs == nil {
			p.Groups[i].GPUs = gpusOf(v.Ledger, g.Nodes)
		}
	}
	return p
}

// Pin is the author's form of the job with exactly these pins: see [rewrite.Pin].
func (v *View) Pin(job *api.Job, p rewrite.Pins) (*api.Job, error) {
	return rewrite.Pin(job, p, v.racks(p.Nodes()))
}

// racksShare of the cluster's GPU nodes is what racks may hold to be worth
// naming in a job.
const racksShare = 0.25

// racks are the racks of the nodes, where each has one and all of them together
// are a small part of the cluster.
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

// classOfGPU is the published class of GPU u.
func (v *View) classOfGPU(u int, class pal.AppClass) int {
	return publishedClass(v.Ledger, v.Cluster.GroupOf(u), v.Cluster.GPU(u).ID, class)
}

// publishedClass is the variability class that the node itself publishes of a
// GPU, 0 for none. It is what a class ceiling is checked against, and may differ
// from the profile's until the node has read that.
func publishedClass(v *ledger.Ledger, group int, gpu string, class pal.AppClass) int {
	for k := 1; k <= profile.MaxClass; k++ {
		if slices.Contains(attr.SplitIDs(cluster.TextOf(v.Devices[group], attr.List(class, k))), gpu) {
			return k
		}
	}
	return 0
}
