// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// start is a decision to start a gang, before the placer has committed it.
type start struct {
	t *model.Tracked
	gang.Start
	err error // why the start failed
	// instead contains the effects that the placer carries out if the gang refuses to start.
	instead []gang.Effect
	// forbidden is true if an event or order that arrived after the decision makes the start wrong.
	// sent is true once the placer has sent the registration to Nomad.
	forbidden, sent bool
	// index is the JobModifyIndex that the job has after its registration with pins.
	index uint64
}

// decide asks the queue for its decisions and carries them out. The loop carries out all decisions
// except starts. If a gang is to start, the loop marks the gang's GPUs in the view as allocated, so
// that later decisions in the cycle do not use these GPUs. After the loop, decide commits several
// starts at a time, because a commit takes Nomad milliseconds and changes only its own gang.
func (p *Placer) decide(ctx context.Context, now time.Time) error {
	starts := p.arrived(now)
	actions := p.m.Queue.Decide(gang.QueueTime(now), p.m.View.Cluster)
	decided := len(starts) + len(actions)
	p.changed = p.changed || decided > 0
	for _, a := range actions {
		t := p.m.ByID(a.Job)
		p.m.BeginJob(model.KeyOf(a.Job))
		switch {
		case t == nil:
			p.m.Queue.Removed(gang.QueueTime(now), a.Job)
		case a.Kind == queue.Start && t.MayHaveOverwritten():
			// The placer does not know the outcome of the last registration yet, so the gang may
			// already hold GPUs.
			p.m.Queue.Requeue(gang.QueueTime(now), a.Job)
			decided--
		case a.Kind == queue.Start && !p.m.Outages.StandsForAll(t):
			p.m.Queue.Requeue(gang.QueueTime(now), a.Job)
			decided--
		case a.Kind == queue.Start:
			starts = append(starts, p.prepare(t, a.Found, now))
			p.m.View.Take(t.Request.Gang, a.Placement)
		case a.Kind == queue.Preempt:
			p.step(ctx, t, gang.Preempt{For: a.For})
		case a.Kind == queue.Resize:
			p.step(ctx, t, gang.Resize{To: a.Placement, For: a.For})
		case a.Kind == queue.Migrate:
			p.step(ctx, t, gang.Move{To: a.Placement})
		}
	}
	p.m.EndJob()
	p.again = p.again || decided >= model.StartsPerCycle
	p.commitAll(ctx, starts)
	for _, s := range starts {
		p.m.BeginJob(s.t.Key)
		p.committed(ctx, s, now)
	}
	p.m.EndJob()
	p.changeAll(ctx)
	return ctx.Err()
}

// changeAll offers new GPUs to running gangs whose authors have changed their requests. changeAll
// respects the time budget of each namespace, and runs after the queue's decisions, because waiting
// gangs come first.
func (p *Placer) changeAll(ctx context.Context) {
	for _, t := range p.m.Sorted() {
		if !t.Asks() {
			continue
		}
		ok, again := p.timeBudget.has(t.Key.Namespace)
		if !ok {
			p.again = p.again || again
			continue
		}
		p.m.BeginJob(t.Key)
		began := time.Now()
		p.step(ctx, t, p.m.RoomForAll(&t.Lifecycle))
		p.timeBudget.spend(t.Key.Namespace, time.Since(began), p.m.Time)
	}
	p.m.EndJob()
}

// prepare returns a start with pins and reasons. The pins and reasons take into account the earlier
// decisions of this cycle.
func (p *Placer) prepare(t *model.Tracked, f pal.Found, now time.Time) *start {
	g, by := t.Request.Sized(len(f.Members)), f.By()
	if by.Name == "" { // the placement was promised to the gang earlier
		_, by, _ = p.m.Queue.Look(p.m.View.Cluster, g)
	}
	d, best := pal.ExplainFound(p.m.View.Cluster, g, by, f)
	var note gang.Note
	if !best {
		note = gang.NoteKept
	}
	pins := p.m.View.Pins(t.Request, f.Placement)
	if t.Control.Release != nil {
		pins = p.m.View.PinsToNodes(t.Request, f.Placement)
	}
	return &start{t: t, Start: gang.Start{
		Pins: pins, Placement: f.Placement, Record: t.NewRecord(now, d, note),
	}}
}

// commitAll registers the jobs that start, several at a time.
func (p *Placer) commitAll(ctx context.Context, starts []*start) {
	key := func(s *start) cluster.JobKey { return s.t.Key }
	inParallel(callsFor(starts, key, func(_ int, s *start) { s.err = p.commit(ctx, s) }))
}

// commit registers a job that starts, which is the atomic step of the start. The placer records the
// decision later, when it has seen the members, because this saves one write. If the placer crashes
// before it records the decision, the next placer reads the chosen GPUs from Nomad. Several commits
// run at a time, and each changes only its own gang. If a new event or order makes the start wrong,
// the placer postpones the start to the next cycle, which first applies the event or order.
func (p *Placer) commit(ctx context.Context, s *start) (err error) {
	if s.Job, err = p.m.View.Pin(s.t.Job, s.Pins); err != nil {
		return err
	}
	todo := s.t.Step(s.Start, p.m.World())
	c, ok := todo[len(todo)-1].(gang.Commit)
	if !ok {
		s.instead = todo
		return fmt.Errorf("placing job %q: the job does not start while it is %s", s.t.Key.ID, s.t.State(p.m))
	}
	if c.DryRun {
		if err := p.dryRun(ctx, s); err != nil {
			return err
		}
	}
	source := p.nomad.Source(ctx, s.Job)
	if err := ctx.Err(); err != nil { // the stream of events has ended with the context; this is no conflict
		return err
	}
	moves := s.Record.Note == gang.NoteMoved || s.Record.Note == gang.NoteResized
	why := p.forbids(ctx, addition{s.t.Key, model.GPUIDs(p.m.View, s.Placement.GPUs()), moves, true})
	if why != "" {
		s.forbidden = true
		return fmt.Errorf("placing job %q: %s", s.t.Key.ID, why)
	}
	if p.hooks.BeforeCommit != nil {
		p.hooks.BeforeCommit(s.t.Key)
	}
	s.sent = true
	resp, err := p.registerOver(ctx, s.Job, source, s.t.Job)
	if err != nil {
		return err
	}
	if p.hooks.AfterCommit != nil {
		p.hooks.AfterCommit(s.t.Key)
	}
	s.index = resp.JobModifyIndex
	return nil
}

// meanwhile records what the placer learns from events that arrive during a cycle. The cycle made its
// decisions before these events are applied.
type meanwhile struct {
	mu    sync.Mutex
	read  int                       // how many events of Placer.heard were read
	taken map[string]cluster.JobKey // GPUs of new allocations, and the jobs that have them
	// missed is true if a job was registered and purged during this cycle. The tasks of a purged job
	// may still use GPUs that look free in this cycle, and that Nomad would give to other jobs too
	// early.
	missed bool
	// sent contains the jobs whose starts the last decision has sent to Nomad.
	sent map[cluster.JobKey]bool
}

// begin begins a cycle.
func (m *meanwhile) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read = 0
	m.taken = map[string]cluster.JobKey{}
	m.missed = false
	m.sent = map[cluster.JobKey]bool{}
}

// addition is a registration that gives a job GPUs.
type addition struct {
	job  cluster.JobKey
	gpus []string // the ids of these GPUs
	// runs is true if the gang grows or is moved. It then counts as running, and a hold does not
	// prevent the registration. starts is true if the registration starts the gang.
	runs, starts bool
}

// forbids returns the reason why GPUs must not be given to a job now, or "" if they may be given. It
// is asked before each registration that adds GPUs. Events and orders may have arrived since the
// decision, because Nomad can need seconds for a dry run or for returning the author's jobspec. If
// orders arrive while forbids reads the last ones, it reads them again.
func (p *Placer) forbids(ctx context.Context, a addition) string {
	for {
		known := p.orders.announced.Load()
		why := ordersForbid(ctx, p, a, known)
		if why != "" {
			return why
		}
		if why, ok := eventsForbid(p, a, known); ok {
			return why
		}
	}
}

// eventsForbid returns the reason why newer events forbid an addition. ok is false if there are newer
// orders than the known ones.
func eventsForbid(p *Placer, a addition, known uint64) (why string, ok bool) {
	m := &p.meanwhile
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.deaf.Load() {
		return "the stream of Nomad's events ended, so newer events are unknown", true
	}
	p.listen()
	if len(p.heard) > m.read {
		m.missed = p.m.State.MissedPurge(p.heard)
		for _, e := range p.heard[m.read:] {
			p.m.State.NoteTaken(e, m.taken)
		}
		m.read = len(p.heard)
	}
	if m.missed {
		return "another job was purged meanwhile, and its tasks may still run", true
	}
	for _, id := range a.gpus {
		if by, ok := m.taken[id]; ok && by != a.job {
			return fmt.Sprintf("job %q got GPU %s in the meantime", by.ID, id), true
		}
	}
	if p.orders.announced.Load() != known {
		return "", false
	}
	if a.starts {
		m.sent[a.job] = true
	}
	return "", true
}

// dryRun asks Nomad to check constraints that the view does not model. If Nomad refuses the job,
// dryRun finds out which nodes are unfit, so that the gang can get other nodes.
func (p *core) dryRun(ctx context.Context, s *start) error {
	why, err := p.refusal(ctx, s.Job)
	if err != nil || why.IsZero() {
		return err
	}
	refused := &gang.DryRunRefusal{Why: why}
	if refused.Never, _, err = request.Judge(ctx, p.nomad, s.t.Job, p.m.View.Largest()); err != nil || len(refused.Never) == 0 {
		refused.Unfit = p.unfitNodes(ctx, s)
	}
	return refused
}

// refusal returns the group that Nomad refuses in a dry run, and the cause. The reason is zero if
// Nomad refuses no group, or makes no dry runs for the placer's token. Without a dry run, the
// placer starts a gang whose members Nomad may not place. The placer stops the gang after
// gang_ready_timeout if Nomad has not placed it.
func (p *core) refusal(ctx context.Context, job *api.Job) (reason.Reason, error) {
	resp, err := p.nomad.DryRun(ctx, job)
	if errors.Is(err, nomad.ErrNoDryRun) {
		return reason.Reason{}, nil
	}
	if err != nil || len(resp.FailedTGAllocs) == 0 {
		return reason.Reason{}, err
	}
	group, why := request.NotPlaced(resp.FailedTGAllocs)
	return reason.Reason{Kind: reason.DryRunRefuses, Group: group, Cause: why}, nil
}

// mostDryRuns is the maximum number of dry runs that the placer makes to investigate one refusal.
const mostDryRuns = 32

// unfitNodes tries each chosen node separately, and returns the names of the nodes on which Nomad
// refuses the gang's members. It skips nodes that are known to be unfit, and returns nothing unless
// Nomad answered for every node.
func (p *core) unfitNodes(ctx context.Context, s *start) (unfit []string) {
	members := map[int]map[string]int{} // by node, then group
	for _, m := range s.Placement.Members {
		node, _ := p.m.View.Cluster.Group(m.Group)
		if members[node] == nil {
			members[node] = map[string]int{}
		}
		members[node][s.t.Request.Gang.MemberSets[m.MemberSet].Name]++
	}
	if s.Pins.Mode == rewrite.ModePrefer || len(members) > mostDryRuns {
		return nil
	}
	known := s.t.Unfit(s.t.Job, p.m.Time)
	for _, node := range slices.Sorted(maps.Keys(members)) {
		n := p.m.View.Cluster.Node(node)
		if known[n.Name] {
			continue
		}
		job, err := rewrite.PinAlone(s.t.Job, s.Pins, n.ID, members[node])
		if err != nil {
			return nil
		}
		why, err := p.refusal(ctx, job)
		if err != nil {
			return nil
		}
		if !why.IsZero() {
			unfit = append(unfit, n.Name)
		}
	}
	return unfit
}

// committed records the outcome of a commit. If the outcome is unknown, the model reserves the GPUs
// for a while ([model.Model.NoteUnanswered]). The placer tries to start the gang again with the same
// index, on other GPUs if possible. Because of the index, Nomad accepts at most one of the two
// starts. After a conflict, the placer reads the job again, because somebody else has changed it.
func (p *Placer) committed(ctx context.Context, s *start, now time.Time) {
	t := s.t
	if s.instead != nil || s.forbidden {
		for _, e := range s.instead { // the gang may have finished already; reconcile finds out
			p.carryOutHere(t, e)
		}
		if s.forbidden { // the next decision takes the event or order into account
			p.step(ctx, t, gang.NotNow{Of: gang.Commit{Start: s.Start}})
		}
		p.log.Debug("not started", "job", t.Key.ID, "namespace", t.Key.Namespace, "reason", s.err)
		return
	}
	if s.sent {
		p.hooks.Meter.Registrations.WithLabelValues(string(gang.ToStart), outcome(s.err)).Inc()
		p.audit(t.Key, "registered", s.err, "purpose", gang.ToStart, "over", *t.Job.JobModifyIndex, "gpus", model.GPUIDs(p.m.View, s.Placement.GPUs()), "waited", s.Record.Waited.Round(time.Millisecond))
	}
	if s.err != nil {
		if errors.Is(s.err, nomad.ErrUnknownOutcome) {
			p.m.NoteUnanswered(s.Job, t.Job, &s.Start)
		}
		refused := (*gang.DryRunRefusal)(nil)
		if errors.As(s.err, &refused) {
			t.NoteUnfit(refused.Unfit, now)
		}
		p.step(ctx, t, failureOf(t, gang.Commit{Start: s.Start}, s.err))
		if errors.Is(s.err, nomad.ErrConflict) {
			_ = p.readAgain(ctx, t.Key) // if this fails, an event will bring the job
		}
		return
	}
	p.step(ctx, t, p.registered(t, s.Job, s.index))
	p.startedOne(now)
}

// arrival is a gang that was stopped for a move and can now start on its target.
type arrival struct {
	*model.Tracked
	why gang.StopReason
}

// arrived returns the starts of gangs that were stopped for a move. If the new GPUs are no longer
// free, the gang waits in the queue instead of starting.
func (p *Placer) arrived(now time.Time) []*start {
	var starts []*start
	var later []arrival
	for _, a := range p.ready {
		t := a.Tracked
		if t.MayHaveOverwritten() {
			later = append(later, a)
			continue
		}
		to := t.Target
		if to == nil { // the target was dropped: the job was edited, or the view was built again
			continue
		}
		if t.Nomad != palapi.Waiting || t.Refused != nil || slices.ContainsFunc(to.GPUs(), func(u int) bool { return !p.m.View.Cluster.Available(u) }) {
			p.m.Queue.Stopped(gang.QueueTime(now), t.Key.String())
			t.Target, t.Placed = nil, false
			continue
		}
		s := p.prepare(t, pal.Found{Placement: *to}, now)
		t.Target = nil
		s.Record.Note = gang.NoteMoved
		if a.why == gang.Resized {
			s.Record.Note = gang.NoteResized
		}
		p.m.View.Take(t.Request.Gang, *to)
		p.m.Queue.Started(gang.QueueTime(now), t.Key.String(), *to)
		starts = append(starts, s)
	}
	p.ready = later
	return starts
}
