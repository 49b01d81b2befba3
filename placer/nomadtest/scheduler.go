// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

func terminalEval(e *api.Evaluation) bool {
	return e.Status == api.EvalStatusComplete || e.Status == api.EvalStatusFailed || e.Status == api.EvalStatusCancelled
}

// evaluate creates an evaluation at the current index, and schedules its processing.
func (s *Server) evaluate(k Key, trigger string) *api.Evaluation {
	return s.evaluateAfter(k, trigger, 0)
}

func (s *Server) evaluateAfter(k Key, trigger string, wait time.Duration) *api.Evaluation {
	n := s.count("eval " + k.String())
	e := &api.Evaluation{
		ID: s.id(fmt.Sprint("eval ", k, n)), Namespace: k.Namespace, JobID: k.ID, Type: api.JobTypeService, TriggeredBy: trigger, Priority: 50,
		Status: api.EvalStatusPending, CreateIndex: s.index, ModifyIndex: s.index, CreateTime: s.now().UnixNano(), ModifyTime: s.now().UnixNano(),
	}
	if j := s.jobs[k]; j != nil {
		e.Type, e.JobModifyIndex, e.Priority = value(j.Type), *j.JobModifyIndex, value(j.Priority)
	}
	if wait > 0 {
		e.WaitUntil = s.now().Add(wait)
	}
	s.tables["evals"] = s.index
	s.evals[k] = append(s.evals[k], e)
	s.trimEvals(k)
	s.jobChanged(k, "EvaluationUpdated")
	scheduling := s.opts.Scheduling // a single worker takes the oldest evaluation first
	if !s.opts.OneWorker {
		scheduling = s.jitter(scheduling, "scheduler "+e.ID)
	}
	s.after(wait+scheduling, "scheduler takes up "+e.ID, func() { s.schedule(k, e.ID, nil) })
	return e
}

// evalsKept is the maximum number of evaluations that are kept for a job. Nomad keeps evaluations
// for hours.
const evalsKept = 50

func (s *Server) trimEvals(k Key) {
	for len(s.evals[k]) > evalsKept {
		i := slices.IndexFunc(s.evals[k], terminalEval)
		if i < 0 {
			return
		}
		s.evals[k] = slices.Delete(s.evals[k], i, i+1)
	}
}

// putEval replaces an evaluation.
func (s *Server) putEval(k Key, e api.Evaluation) {
	e.ModifyIndex, e.ModifyTime = s.index, s.now().UnixNano()
	s.tables["evals"] = s.index
	for i, o := range s.evals[k] {
		if o.ID == e.ID {
			s.evals[k][i] = &e
			return
		}
	}
	s.evals[k] = append(s.evals[k], &e)
}

func (s *Server) evalByID(k Key, id string) *api.Evaluation {
	for _, e := range s.evals[k] {
		if e.ID == id {
			return e
		}
	}
	return nil
}

// evaluateNode evaluates all jobs that have allocations on a node.
func (s *Server) evaluateNode(id string) {
	seen := map[Key]bool{}
	for _, a := range s.allocs {
		if a.node == id && (!a.clientTerminal() || value(a.job.Type) == api.JobTypeService && a.desired == api.AllocDesiredStatusRun) {
			seen[a.key] = true
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(seen), Key.Compare) {
		s.evaluate(k, "node-update")
	}
}

// capacityChanged tells the scheduler to retry blocked evaluations.
func (s *Server) capacityChanged() {
	var blocked []*api.Evaluation
	for _, k := range sortedKeys(s.jobs) {
		for _, e := range s.evals[k] {
			if e.Status == api.EvalStatusBlocked {
				blocked = append(blocked, e)
			}
		}
	}
	if s.opts.OneWorker {
		slices.SortStableFunc(blocked, func(a, b *api.Evaluation) int {
			return cmp.Or(b.Priority-a.Priority, cmp.Compare(a.CreateIndex, b.CreateIndex))
		})
	}
	s.unblocked++
	pass := s.unblocked
	for i, e := range blocked {
		wait := s.jitter(s.opts.Scheduling, fmt.Sprint("unblock ", e.ID, s.index))
		if s.opts.OneWorker {
			wait = time.Duration(i+1) * s.opts.Scheduling / time.Duration(len(blocked))
		}
		k := Key{Namespace: e.Namespace, ID: e.JobID}
		s.after(wait, "scheduler takes up "+e.ID+" again", func() {
			if !s.opts.OneWorker || pass == s.unblocked { // a later pass starts with the oldest
				s.schedule(k, e.ID, nil)
			}
		})
	}
}

// plan is the result of one evaluation.
type plan struct {
	s    *Server
	job  *api.Job // nil if it was purged
	key  Key
	eval string
	// stop maps each allocation that must stop to its new client status. The status "" means that
	// the client reports the status later.
	stop   map[*alloc]string
	update []*alloc // updated in place
	place  []*alloc
	// parting contains the members that become unknown.
	parting []*alloc
	// returned contains the members that are known again.
	returned []*alloc
	// placeAfter is the delay before lost members are replaced. 0 means no delay.
	placeAfter time.Duration
	// preempt maps each preempted allocation of another job to the allocation that preempts it. The
	// preempting allocation waits for the end of the preempted one.
	preempt map[*alloc]*alloc
	failed  map[string]*api.AllocationMetric
	// rescheduleAt maps failed allocations to the times at which Nomad reschedules them.
	rescheduleAt map[*alloc]time.Time
	// deployment is the deployment of this version. deployment is nil if there is no deployment or
	// the deployment has succeeded.
	deployment *deployment
	undone     bool              // the deployment is not complete
	used       map[string]*usage // usage of nodes under this plan
}

// schedule processes an evaluation. If dry is not nil, schedule makes a dry run of this job, and
// stores nothing.
func (s *Server) schedule(k Key, id string, dry *api.Job) *plan {
	p := &plan{s: s, key: k, eval: id, stop: map[*alloc]string{}, preempt: map[*alloc]*alloc{}, failed: map[string]*api.AllocationMetric{}, rescheduleAt: map[*alloc]time.Time{}}
	if dry != nil {
		p.job = dry
		p.compute()
		return p
	}
	e := s.evalByID(k, id)
	if e == nil || terminalEval(e) {
		return nil
	}
	if j := s.jobs[k]; j != nil {
		p.job = j.Job
	}
	p.deployment = s.deploymentOf(p.job)
	p.compute()
	s.apply(p, *e)
	return nil
}

// compute is the reconciler. compute decides which allocations to stop, update and place.
func (p *plan) compute() {
	p.loseStopped()
	if p.job == nil || value(p.job.Stop) {
		for _, a := range p.s.byJob[p.key] {
			p.stopAnyhow(a)
		}
		return
	}
	groups := map[string]bool{}
	for _, g := range p.job.TaskGroups {
		groups[*g.Name] = true
	}
	for _, a := range p.s.byJob[p.key] {
		if !groups[a.group] {
			p.stopAnyhow(a)
		}
	}
	for _, g := range p.job.TaskGroups {
		p.computeGroup(g)
	}
}

// groupAllocs sorts the allocations of a group by the actions that the reconciler takes on them.
type groupAllocs struct {
	keep, migrate, lost, rescheduleNow []*alloc
	rescheduleLater                    []*alloc // failed, to be rescheduled later
	// parting contains allocations on nodes that are away. returning contains allocations on nodes
	// that are back, if Nomad has not recorded the state of these allocations yet.
	parting, returning []*alloc
}

func (p *plan) classify(g *api.TaskGroup) (out groupAllocs) {
	batch := value(p.job.Type) == api.JobTypeBatch
	for _, a := range p.s.byJob[p.key] {
		if _, stopped := p.stop[a]; stopped || a.group != *g.Name || a.desired != api.AllocDesiredStatusRun {
			continue
		}
		if older := *a.job.Version < *p.job.Version || *a.job.CreateIndex < *p.job.CreateIndex; batch && older && a.clientTerminal() {
			continue
		}
		switch p.whereabouts(a) {
		case isLost:
			out.lost = append(out.lost, a)
		case isParting:
			out.parting = append(out.parting, a)
		case isReturning:
			out.returning = append(out.returning, a)
		case isMigrating:
			out.migrate = append(out.migrate, a)
		default:
			p.classifyKnown(a, &out)
		}
	}
	return out
}

// classifyKnown classifies a member whose state is known. The member may have ended.
func (p *plan) classifyKnown(a *alloc, out *groupAllocs) {
	batch := value(p.job.Type) == api.JobTypeBatch
	switch {
	case a.clientTerminal() && a.next != "":
	case a.client == api.AllocClientStatusFailed:
		at, ok := p.rescheduleTime(a)
		switch {
		case ok && !at.After(p.s.now().Add(time.Second)):
			out.rescheduleNow = append(out.rescheduleNow, a)
		default:
			out.keep = append(out.keep, a)
			if ok && a.followUp == "" {
				out.rescheduleLater = append(out.rescheduleLater, a)
			}
		}
	case a.client == api.AllocClientStatusUnknown && !batch && a.followUp == p.eval:
		if _, ok := p.rescheduleTime(a); ok {
			out.rescheduleNow = append(out.rescheduleNow, a)
		} else {
			out.keep = append(out.keep, a)
		}
	case a.clientTerminal() && !batch: // the member is replaced
	default:
		out.keep = append(out.keep, a)
	}
}

// rescheduleTime returns the time at which Nomad reschedules a member that failed or whose node is
// away. ok is false if Nomad does not reschedule the member, or does so only after the deployment
// (seen on 1.11.3).
func (p *plan) rescheduleTime(a *alloc) (at time.Time, ok bool) {
	if p.inDeployment(a) {
		return time.Time{}, false
	}
	return p.s.rescheduleTime(a)
}

func (p *plan) inDeployment(a *alloc) bool {
	return p.deployment.has(a) && p.deployment.goesOn() && !a.mayReplace
}

func (p *plan) computeGroup(g *api.TaskGroup) {
	p.stopCanaries(g)
	is, count := p.classify(g), value(g.Count)
	p.settleReturning(g, &is)
	p.dropCanaries(&is)
	for _, a := range is.lost {
		p.stop[a] = api.AllocClientStatusLost
	}
	for _, a := range is.rescheduleLater {
		p.rescheduleAt[a], _ = p.rescheduleTime(a)
	}
	p.settleParting(&is)
	canarying := p.canarying(g)
	keep := p.scaleDown(g, is.keep, count-len(is.migrate), canarying)
	destructive, canaries := p.classifyUpdates(g, keep)
	again := slices.DeleteFunc(slices.Clone(is.rescheduleNow), func(a *alloc) bool { return !a.waitingCanary() })
	canarying = p.placeCanaries(g, destructive, slices.Concat(canaries, again)) || canarying
	ready := !p.deployment.failed() && !p.deployment.paused() && !canarying
	missing := count - (len(keep) - len(canaries)) - len(is.migrate) - len(is.rescheduleNow)
	if d := waitForClients(is.lost); d > 0 {
		missing, is.rescheduleNow, p.placeAfter = 0, nil, max(p.placeAfter, d)
	}
	place := len(is.rescheduleNow) + max(0, missing)
	p.deploy(g, len(destructive), place)
	p.undone = p.undone || len(destructive)+len(is.migrate)+len(is.rescheduleLater)+place > 0
	if ready {
		for _, a := range destructive[:p.maxParallel(g, keep, place, len(destructive))] {
			p.placeMember(g, a.number, a, true)
		}
	}
	for _, a := range is.rescheduleNow {
		if ready || !(p.deployment.failed() && p.deployment.has(a)) {
			if a.client != api.AllocClientStatusUnknown {
				p.stop[a] = ""
			}
			p.placeAgain(g, a, canarying)
		}
	}
	for _, a := range is.migrate {
		p.stop[a] = ""
		if !a.drained || value(p.job.Type) != api.JobTypeBatch {
			p.placeAgain(g, a, canarying)
		}
	}
	p.placeMissing(g, is, keep, missing, ready, canarying)
}

// placeMissing places replacements of lost members and, if ready is true, missing members.
func (p *plan) placeMissing(g *api.TaskGroup, is groupAllocs, keep []*alloc, missing int, ready, canarying bool) {
	taken := map[int]bool{}
	for _, as := range [][]*alloc{keep, is.migrate, is.rescheduleNow} {
		for _, a := range as {
			taken[a.number] = taken[a.number] || !a.canary || a.promoted
		}
	}
	for i := range min(missing, len(is.lost)) {
		p.placeAgain(g, is.lost[i], canarying)
		taken[is.lost[i].number] = true
	}
	for n := 0; ready && missing-len(is.lost) > 0 && n < value(g.Count); n++ {
		if !taken[n] {
			p.placeMember(g, n, nil, false)
			missing--
		}
	}
}

// scaleDown stops surplus members. scaleDown first stops the members that promoted canaries
// replace, and then the members with the highest numbers. Canaries that wait for promotion do not
// count. Members on nodes that are away do not count, either, but can be stopped.
func (p *plan) scaleDown(g *api.TaskGroup, keep []*alloc, most int, canarying bool) []*alloc {
	out := slices.Clone(keep)
	replaced := map[int]bool{}
	for _, a := range keep {
		if a.canary && canarying || a.client == api.AllocClientStatusUnknown {
			most++
		}
		if a.promoted && p.deployment.has(a) {
			replaced[a.number] = true
		}
	}
	old := func(a *alloc) int {
		if replaced[a.number] && !a.promoted {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b *alloc) int { return cmp.Or(old(a)-old(b), a.number-b.number) })
	for i := len(out) - 1; i >= 0 && len(out) > most; i-- {
		if a := out[i]; !a.terminal() && !(a.canary && canarying) {
			p.stop[a] = ""
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// classifyUpdates returns the members that must be replaced for the new version, and the canaries.
func (p *plan) classifyUpdates(g *api.TaskGroup, keep []*alloc) (destructive, canaries []*alloc) {
	for _, a := range keep {
		switch {
		case a.canary && !a.promoted:
			canaries = append(canaries, a)
		case *a.job.JobModifyIndex == *p.job.JobModifyIndex:
		case needsRestart(a.job, p.job, *g.Name):
			destructive = append(destructive, a)
		case a.clientTerminal():
		case p.canUpdateInPlace(g, a):
			p.update = append(p.update, a)
		default:
			destructive = append(destructive, a)
		}
	}
	return destructive, canaries
}

// canUpdateInPlace reports whether a member can stay on its node and GPUs with the new version.
// Nomad does not check whether the node is ready for the update.
func (p *plan) canUpdateInPlace(g *api.TaskGroup, a *alloc) bool {
	n := p.s.nodes[a.node]
	if n == nil || feasible(p.job, g, n.Node) != "" || !p.distinctHosts(g, n.ID, a) {
		return false
	}
	p.stop[a], p.used = "", nil // the member's own GPUs count as free
	_, _, lack := p.assignDevices(g, n.Node, p.s.random("in place"))
	delete(p.stop, a)
	p.used = nil
	return lack == ""
}

// maxParallel returns how many of n members may be replaced at the same time. place is the number
// of other members that the same plan places.
func (p *plan) maxParallel(g *api.TaskGroup, keep []*alloc, place, n int) int {
	most := 0
	if g.Update != nil && value(p.job.Type) == api.JobTypeService {
		most = value(g.Update.MaxParallel)
	}
	if most == 0 || n == 0 {
		return n
	}
	most -= place
	for _, a := range keep {
		switch {
		case !p.deployment.has(a):
		case a.unhealthy:
			return 0
		case !a.healthy:
			most--
		}
	}
	return min(n, max(0, most))
}

// needsRestart reports whether two versions differ in a field that Nomad cannot change while a
// member runs.
func needsRestart(a, b *api.Job, group string) bool {
	was, is := a.LookupTaskGroup(group), b.LookupTaskGroup(group)
	if was == nil || is == nil || len(was.Tasks) != len(is.Tasks) {
		return true
	}
	return restartingFields(a, was) != restartingFields(b, is)
}

// restartingFields returns a text with the fields whose change restarts a member.
func restartingFields(j *api.Job, g *api.TaskGroup) string {
	var b strings.Builder
	for _, m := range []map[string]string{j.Meta, g.Meta} {
		fmt.Fprint(&b, m)
	}
	for _, t := range g.Tasks {
		fmt.Fprintln(&b, t.Name, t.Driver, t.User, t.Config, t.Env, t.Meta, value(t.Resources.CPU), value(t.Resources.MemoryMB))
		for _, d := range t.Resources.Devices {
			fmt.Fprintln(&b, d.Name, value(d.Count))
			for _, c := range d.Constraints {
				fmt.Fprintln(&b, *c)
			}
			for _, a := range d.Affinities {
				fmt.Fprintln(&b, a.LTarget, a.Operand, a.RTarget, value(a.Weight))
			}
		}
	}
	return b.String()
}

// rescheduleTime returns the time at which Nomad reschedules a failed or unknown allocation. ok is
// false if Nomad does not reschedule the allocation.
func (s *Server) rescheduleTime(a *alloc) (at time.Time, ok bool) {
	if a.client == api.AllocClientStatusUnknown {
		return s.rescheduleAfter(a, a.unknownSince)
	}
	return s.rescheduleAfter(a, a.failedAt)
}

// rescheduleAfter is like rescheduleTime. since is the time when the allocation failed or became
// unknown.
func (s *Server) rescheduleAfter(a *alloc, since time.Time) (at time.Time, ok bool) {
	g := a.taskGroup()
	if g == nil || g.ReschedulePolicy == nil || since.IsZero() {
		return time.Time{}, false
	}
	r := g.ReschedulePolicy
	if !value(r.Unlimited) {
		tried := 0
		for _, t := range a.reschedules {
			if since.Sub(t) < value(r.Interval) {
				tried++
			}
		}
		if tried >= value(r.Attempts) {
			return time.Time{}, false
		}
	}
	delay := value(r.Delay)
	if value(r.DelayFunction) == "exponential" {
		delay = min(delay<<min(len(a.reschedules), 20), max(value(r.MaxDelay), delay))
	}
	return since.Add(delay), true
}
