// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// usage contains the free and the taken resources of a node, as they are after the stops and
// placements of a plan.
type usage struct {
	cpu, memory int
	taken       map[string]bool // GPUs
	ports       map[int]bool    // static ports
}

func (p *plan) usage(id string) *usage {
	if u := p.used[id]; u != nil {
		return u
	}
	r := p.s.nodes[id].NodeResources
	u := &usage{cpu: int(r.Cpu.CpuShares), memory: int(r.Memory.MemoryMB), taken: map[string]bool{}, ports: map[int]bool{}}
	for _, a := range p.s.allocs {
		_, stopped := p.stop[a]
		_, preempted := p.preempt[a]
		if a.node == id && a.holdsResources() && !stopped && !preempted {
			u.add(a)
		}
	}
	for _, a := range p.place { // the allocations that this plan places
		if a.node == id {
			u.add(a)
		}
	}
	if p.used == nil {
		p.used = map[string]*usage{}
	}
	p.used[id] = u
	return u
}

func (u *usage) add(a *alloc) {
	for _, t := range a.taskGroup().Tasks {
		u.cpu -= value(t.Resources.CPU)
		u.memory -= value(t.Resources.MemoryMB)
	}
	for _, id := range a.allGPUs() {
		u.taken[id] = true
	}
	for _, p := range staticPorts(a.taskGroup()) {
		u.ports[p.Value] = true
	}
}

// staticPorts returns the static ports that each member of a group needs.
func staticPorts(g *api.TaskGroup) (ports []api.Port) {
	for _, n := range g.Networks {
		ports = append(ports, n.ReservedPorts...)
	}
	return ports
}

// placeMember chooses a node and GPUs for a member. before is the allocation that the member
// replaces, or nil. placeMember records the result in the plan.
func (p *plan) placeMember(g *api.TaskGroup, number int, before *alloc, stopBefore bool) *alloc {
	if stopBefore {
		p.stop[before] = ""
		p.used = nil // in this plan, the GPUs of before are free
	}
	metric := &api.AllocationMetric{ConstraintFiltered: map[string]int{}, DimensionExhausted: map[string]int{}}
	var options []option
	var full []*api.Node
	chance := p.s.random(fmt.Sprint("place ", p.eval, *g.Name, number, len(p.place)))
	for _, id := range p.s.sortedNodes() {
		n := p.s.nodes[id].Node
		switch why := feasible(p.job, g, n); {
		case !ready(n) || why == "datacenter" || why == "node pool": // not evaluated
			continue
		case why != "":
			metric.NodesEvaluated++
			metric.NodesFiltered++
			metric.ConstraintFiltered[why]++
			continue
		case !p.distinctHosts(g, id, before):
			metric.NodesEvaluated++
			metric.NodesFiltered++
			metric.ConstraintFiltered[api.ConstraintDistinctHosts]++
			continue
		}
		metric.NodesEvaluated++
		gpus, model, lack := p.assignDevices(g, n, chance)
		if lack != "" {
			metric.NodesExhausted++
			metric.DimensionExhausted[lack]++
			full = append(full, n)
			continue
		}
		options = append(options, option{node: id, gpus: gpus, model: model})
	}
	if len(options) == 0 && p.s.preempts {
		options = p.preemptOn(g, full, chance)
	}
	if p.fails(g, len(options) == 0, metric) {
		if before != nil && (stopBefore || !before.migrate) && before.desired == api.AllocDesiredStatusRun && p.stop[before] == "" {
			delete(p.stop, before) // before keeps running until there is a place
			p.used = nil
		}
		return nil
	}
	options = preferred(g, p.spreadOverNodes(g, options, before))
	o := options[chance.IntN(len(options))]
	a := p.newAlloc(g, number, before, o.node, o.gpus, o.model)
	for _, victim := range o.preempt {
		p.preempt[victim] = a
	}
	p.used = nil
	return a
}

// fails reports whether a member is not placed, and counts it. none means that there is no node for
// the member. Once a member of a group finds no node, Nomad places no further member of the group,
// even of another version (seen on 1.11.3).
func (p *plan) fails(g *api.TaskGroup, none bool, metric *api.AllocationMetric) bool {
	before := p.failed[*g.Name]
	switch {
	case before != nil:
		before.CoalescedFailures++
	case none:
		p.failed[*g.Name] = metric
	}
	return before != nil || none
}

// spreadOverNodes returns the options whose nodes have the fewest members of the group, if the job
// spreads the group over nodes. If the job does not spread the group, spreadOverNodes returns all
// options. The package does not simulate other spread blocks.
func (p *plan) spreadOverNodes(g *api.TaskGroup, options []option, but *alloc) []option {
	if !slices.ContainsFunc(slices.Concat(p.job.Spreads, g.Spreads), func(s *api.Spread) bool {
		return s.Attribute == "${node.unique.id}" && len(s.SpreadTarget) == 0
	}) {
		return options
	}
	on := map[string]int{}
	for _, a := range slices.Concat(p.s.byJob[p.key], p.place) {
		if _, stopped := p.stop[a]; a != but && !a.terminal() && !stopped && a.group == *g.Name {
			on[a.node]++
		}
	}
	least := slices.MinFunc(options, func(a, b option) int { return on[a.node] - on[b.node] })
	return slices.DeleteFunc(options, func(o option) bool { return on[o.node] > on[least.node] })
}

// preferred returns the options on nodes that an affinity of the group lists. If there are none,
// preferred returns all options. The package does not simulate other affinities.
func preferred(g *api.TaskGroup, options []option) []option {
	var on []option
	for _, a := range g.Affinities {
		if a.LTarget != "${node.unique.id}" || a.Operand != "set_contains_any" {
			continue
		}
		nodes := strings.Split(a.RTarget, ",")
		for _, o := range options {
			if slices.Contains(nodes, o.node) {
				on = append(on, o)
			}
		}
	}
	if len(on) > 0 {
		return on
	}
	return options
}

// option is a node on which a member can run, and the allocations that must be preempted to make
// room.
type option struct {
	node    string
	gpus    map[string][]string
	model   string
	preempt []*alloc
}

// preemptOn finds a node on which a member fits after other allocations have been preempted. The
// priority of the preempted jobs must be lower by at least ten. preemptOn preempts as few
// allocations as possible. preemptOn begins with the lowest priority.
func (p *plan) preemptOn(g *api.TaskGroup, full []*api.Node, chance *rand.Rand) []option {
	for _, n := range full {
		var victims []*alloc
		for _, a := range p.s.sortedAllocs() {
			_, stopped := p.stop[a]
			if a.node == n.ID && a.key != p.key && !a.terminal() && !stopped && p.preempt[a] == nil && value(a.job.Priority)+10 <= value(p.job.Priority) {
				victims = append(victims, a)
			}
		}
		slices.SortStableFunc(victims, func(a, b *alloc) int { return value(a.job.Priority) - value(b.job.Priority) })
		fits := func(without []*alloc) (gpus map[string][]string, model string, ok bool) {
			for _, a := range without {
				p.preempt[a] = a
			}
			p.used = nil
			gpus, model, lack := p.assignDevices(g, n, chance)
			for _, a := range without {
				delete(p.preempt, a)
			}
			p.used = nil
			return gpus, model, lack == ""
		}
		if _, _, ok := fits(victims); !ok {
			continue
		}
		for i := len(victims) - 1; i >= 0; i-- {
			fewer := slices.Delete(slices.Clone(victims), i, i+1)
			if _, _, ok := fits(fewer); ok {
				victims = fewer
			}
		}
		gpus, model, _ := fits(victims)
		return []option{{n.ID, gpus, model, victims}}
	}
	return nil
}

func (p *plan) newAlloc(g *api.TaskGroup, number int, before *alloc, node string, gpus map[string][]string, model string) *alloc {
	a := &alloc{
		name: fmt.Sprintf("%s.%s[%d]", p.key.ID, *g.Name, number), key: p.key, group: *g.Name, number: number, node: node, eval: p.eval, job: p.job, placedBy: p.job,
		desired: api.AllocDesiredStatusRun, client: api.AllocClientStatusPending, gpus: gpus, model: model, tasks: map[string]*api.TaskState{},
	}
	if e := g.EphemeralDisk; e != nil {
		a.disk = value(e.SizeMB)
	}
	for _, t := range g.Tasks {
		a.tasks[t.Name] = &api.TaskState{State: "pending"}
	}
	if before != nil {
		a.previous = before.id
		if before.client == api.AllocClientStatusFailed || before.client == api.AllocClientStatusUnknown && !before.migrate {
			a.reschedules = append(slices.Clone(before.reschedules), p.s.now())
		}
	}
	a.score = p.score(a)
	p.usage(node).add(a)
	p.place = append(p.place, a)
	return a
}

// assignDevices chooses GPUs for a member on a node. If the member does not fit, lack names a
// resource that is too scarce on the node.
func (p *plan) assignDevices(g *api.TaskGroup, n *api.Node, chance *rand.Rand) (gpus map[string][]string, model, lack string) {
	u := p.usage(n.ID)
	cpu, memory := u.cpu, u.memory
	taken := maps.Clone(u.taken)
	gpus = map[string][]string{}
	for _, p := range staticPorts(g) {
		if u.ports[p.Value] {
			return nil, "", fmt.Sprintf("network: reserved port collision %s=%d", p.Label, p.Value)
		}
	}
	for _, t := range g.Tasks {
		cpu -= value(t.Resources.CPU)
		memory -= value(t.Resources.MemoryMB)
		for _, r := range t.Resources.Devices {
			found := ""
			for _, d := range n.NodeResources.Devices {
				ids := freeInstances(r, d, taken)
				if len(ids) < deviceCount(r) || found != "" {
					continue
				}
				chance.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
				ids = ids[:deviceCount(r)]
				slices.Sort(ids)
				if found = d.Name; d.Vendor == "nvidia" {
					gpus[t.Name], model = append(gpus[t.Name], ids...), d.Name
				}
				for _, id := range ids {
					taken[id] = true
				}
			}
			if found == "" {
				return nil, "", "devices: no devices match request"
			}
		}
	}
	switch {
	case cpu < 0:
		return nil, "", "cpu"
	case memory < 0:
		return nil, "", "memory"
	}
	return gpus, model, ""
}

func deviceCount(r *api.RequestedDevice) int {
	if r.Count == nil {
		return 1
	}
	return int(min(*r.Count, 1<<20))
}

// freeInstances returns the GPUs of a device group that are healthy, free and meet a request.
func freeInstances(r *api.RequestedDevice, d *api.NodeDeviceResource, taken map[string]bool) (ids []string) {
	if !deviceNamed(r.Name, d) || slices.ContainsFunc(r.Constraints, func(c *api.Constraint) bool { return !deviceMeets(c, d) }) {
		return nil
	}
	for _, in := range d.Instances {
		if in.Healthy && !taken[in.ID] && instanceMeets(in.ID, r.Constraints, d) {
			ids = append(ids, in.ID)
		}
	}
	return ids
}

// distinctHosts reports whether a distinct_hosts constraint allows a member on the node.
func (p *plan) distinctHosts(g *api.TaskGroup, node string, but *alloc) bool {
	has := func(cs []*api.Constraint) bool {
		return slices.ContainsFunc(cs, func(c *api.Constraint) bool {
			return c.Operand == api.ConstraintDistinctHosts && c.RTarget != "false"
		})
	}
	ofJob, ofGroup := has(p.job.Constraints), has(g.Constraints)
	if !ofJob && !ofGroup {
		return true
	}
	for _, a := range slices.Concat(p.s.byJob[p.key], p.place) {
		_, stopped := p.stop[a]
		if a != but && a.node == node && !a.terminal() && !stopped && (ofJob || a.group == *g.Name) {
			return false
		}
	}
	return true
}

// apply carries out a plan and records the result of the evaluation.
func (s *Server) apply(p *plan, e api.Evaluation) {
	s.nextIndex("evals")
	k := p.key
	s.setDeployment(p)
	changed := len(p.stop)+len(p.update)+len(p.place)+len(p.parting) > 0
	for _, a := range slices.SortedFunc(maps.Keys(p.stop), compareAllocs) {
		s.applyStop(a, p.stop[a])
	}
	s.applyParting(p)
	for _, a := range p.update {
		a.job, a.eval = p.job, e.ID
		s.joinDeployment(a, p.deployment)
		s.updateAlloc(a, "PlanResult")
	}
	for _, a := range p.place {
		a.id = s.id(fmt.Sprint("alloc ", k, s.count("alloc "+k.String())))
		a.createIndex, a.created = s.index, s.now()
		s.joinDeployment(a, p.deployment)
		if b := s.allocs[a.previous]; b != nil {
			b.next = a.id
			s.updateAlloc(b, "PlanResult")
		}
		s.allocs[a.id] = a
		s.byJob[k] = append(s.byJob[k], a)
		s.updateAlloc(a, "PlanResult")
		s.applyPreemptions(p, a)
		s.checkGPUsHeldOnce(a)
		s.notifyPlaced(a)
		s.startAlloc(a)
	}
	s.trimAllocs(k)
	s.endDeployment(p)
	s.scheduleReschedules(p)
	if p.placeAfter > 0 {
		s.evaluateAfter(k, "alloc-failure", p.placeAfter)
	}
	s.finishEval(p, e)
	event := "EvaluationUpdated"
	if changed {
		event = "PlanResult"
	}
	s.jobChanged(k, event)
}

// purgeAllocs removes the allocations of a purged job from Nomad's lists, as Nomad does. The
// clients still need some time to end the tasks. On 1.11.3, no list contained the allocations of a
// purged job, although their tasks kept running for up to kill_timeout.
func (s *Server) purgeAllocs(k Key) {
	for _, a := range s.byJob[k] {
		delete(s.allocs, a.id)
		a.run++
		if a.purged, a.purgedIndex = s.opts.Now(), s.index; s.usesGPU(a) {
			s.purged[a.id] = a
		}
		s.afterJitter(s.opts.Client/4+s.killTime(a), "client ends what was purged, "+a.id, func() { s.releaseGPUs(a) })
	}
	delete(s.byJob, k)
	s.capacityChanged()
}

func (s *Server) applyStop(a *alloc, status string) {
	a.desired, a.toReconnect = api.AllocDesiredStatusStop, false
	if a.client == status { // the allocation failed while its node was away
		s.updateAlloc(a, "PlanResult")
		return
	}
	if status != "" {
		a.client, a.lostIndex = status, s.index
		for name, t := range a.tasks {
			own := *t
			own.State = "dead"
			a.tasks[name] = &own
		}
	}
	s.updateAlloc(a, "PlanResult")
	if status == "" {
		s.stopTasks(a)
		return
	}
	s.notifyEnded(a)
}

// applyPreemptions stops the allocations that one allocation (by) preempts, and evaluates their
// jobs.
func (s *Server) applyPreemptions(p *plan, by *alloc) {
	for _, a := range slices.SortedFunc(maps.Keys(p.preempt), compareAllocs) {
		if p.preempt[a] != by {
			continue
		}
		a.desired, a.preemptedBy = api.AllocDesiredStatusEvict, by.id
		by.preempts = append(by.preempts, a.id)
		s.preempted++
		s.updateAlloc(a, "PlanResult")
		s.stopTasks(a)
		s.evaluate(a.key, "preemption")
	}
}

// allocsKept is the maximum number of allocations that are kept for a job. Nomad deletes ended
// allocations after some hours.
const allocsKept = 100

func (s *Server) trimAllocs(k Key) {
	for len(s.byJob[k]) > allocsKept {
		i := slices.IndexFunc(s.byJob[k], func(a *alloc) bool { return a.clientTerminal() && a.terminal() && !s.usesGPU(a) })
		if i < 0 {
			return
		}
		delete(s.allocs, s.byJob[k][i].id)
		s.byJob[k] = slices.Delete(s.byJob[k], i, i+1)
	}
}

// scheduleReschedules schedules an evaluation at the time when failed allocations must be
// rescheduled.
func (s *Server) scheduleReschedules(p *plan) {
	if len(p.rescheduleAt) == 0 {
		return
	}
	var at time.Time
	for _, t := range p.rescheduleAt {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	e := s.evaluateAfter(p.key, "alloc-failure", max(time.Millisecond, at.Sub(s.now())))
	for _, a := range slices.SortedFunc(maps.Keys(p.rescheduleAt), compareAllocs) {
		a.followUp = e.ID
		s.updateAlloc(a, "PlanResult")
	}
}

// finishEval records how an evaluation ended.
func (s *Server) finishEval(p *plan, e api.Evaluation) {
	k := p.key
	if len(p.failed) == 0 {
		e.Status, e.FailedTGAllocs = api.EvalStatusComplete, nil
		s.putEval(k, e)
		s.cancelBlocked(k, e.ID)
		return
	}
	e.FailedTGAllocs = p.failed
	if e.Status == api.EvalStatusBlocked { // the evaluation stays blocked
		s.putEval(k, e)
		return
	}
	s.cancelBlocked(k, e.ID)
	n := s.count("eval " + k.String())
	blocked := e
	blocked.ID, blocked.TriggeredBy, blocked.Status = s.id(fmt.Sprint("eval ", k, n)), "queued-allocs", api.EvalStatusBlocked
	blocked.CreateIndex, blocked.PreviousEval, blocked.WaitUntil = s.index, e.ID, time.Time{}
	e.Status, e.BlockedEval = api.EvalStatusComplete, blocked.ID
	s.putEval(k, e)
	s.putEval(k, blocked)
}

func (s *Server) cancelBlocked(k Key, but string) {
	for _, o := range slices.Clone(s.evals[k]) {
		if o.ID != but && o.Status == api.EvalStatusBlocked {
			own := *o
			own.Status = api.EvalStatusCancelled
			s.putEval(k, own)
		}
	}
}
