// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// interrupted is the problem of a session that Reserve, or the end of the
// plugin, cut short.
const interrupted = "interrupted"

// Scheduler measures the GPUs of a node inside the plugin: those that nothing
// uses, at first sight and on a schedule. [Scheduler.Reserve] takes a GPU away
// from it at once.
type Scheduler struct {
	cfg   Schedule
	run   Runner
	log   hclog.Logger
	begun time.Time // from which Schedule.Jitter counts
	// changed has a value when there is a new result to publish.
	changed chan struct{}

	mu        sync.Mutex
	inv       gpu.Inventory
	unhealthy map[string]bool
	records   map[string]record
	idleSince map[string]time.Time
	busySince map[string]time.Time // of GPUs that would be measured, or when that was said last
	running   map[string]*running
	told      map[string]bool // devices of which it was said that they are not measured
	ready     readiness
	asking    *running // whether CUDA starts; nil when nothing does
	paused    bool     // the driver is not to be used
	unsaved   bool     // the records could not be stored: the disk may have room again
}

// running is a session in progress.
type running struct {
	cancel context.CancelFunc
	done   chan struct{}
	ending time.Time // since when its process is to end; zero while it measures
}

// stuck says whether the session's process does not end: it is in the driver, which
// cannot be interrupted, and the GPU is of no use to a task.
func (r *running) stuck(now time.Time) bool {
	return r != nil && !r.ending.IsZero() && now.Sub(r.ending) >= reserveWait
}

// end notes that the process is to end.
func (r *running) end(now time.Time) {
	if r.ending.IsZero() {
		r.ending = now
	}
}

// NewScheduler reads the stored results. A state file that cannot be read is an
// error to tell; the scheduler works without.
func NewScheduler(cfg Schedule, run Runner, log hclog.Logger) (*Scheduler, error) {
	s := &Scheduler{cfg: cfg, run: run, log: log, begun: time.Now(), changed: make(chan struct{}, 1),
		unhealthy: map[string]bool{}, records: map[string]record{}, idleSince: map[string]time.Time{}, busySince: map[string]time.Time{},
		running: map[string]*running{}, told: map[string]bool{}}
	records, err := loadRecords(cfg.StateDir)
	if records != nil {
		s.records = records
	}
	s.ready.asked = s.begun.Add(cfg.Ask - cfg.AskUnsuspected) // the first once the fabric has had time to come up
	s.recover()
	return s, err
}

// recover takes note of the sessions that ended with the last plugin.
func (s *Scheduler) recover() {
	for id, r := range s.records {
		if r.Refused {
			s.ready = s.ready.suspected(time.Time{})
		}
		if !r.recover() {
			continue
		}
		s.records[id] = r
		next := fmt.Sprintf("in %s at the earliest", s.cfg.pause(r))
		if r.Downs >= mostDowns {
			next = "only when ordered, with nomad-device-pal remeasure"
		}
		s.log.Warn("the plugin or the machine went down while the GPU was measured", "gpu", id, "times", r.Downs, "measured_again", next)
	}
}

// begin remembers that sessions begin, should this process not see their end.
// Callers hold mu.
func (s *Scheduler) begin(now time.Time, ts []Target) {
	for _, t := range ts {
		r := s.records[t.Device.ID]
		r.Begun = now.UTC().Truncate(time.Second)
		s.records[t.Device.ID] = r
	}
	s.save()
}

// Changed has a value each time there is something new to publish.
func (s *Scheduler) Changed() <-chan struct{} { return s.changed }

// Observe takes a scan of the node and the GPUs that are unhealthy, and fills
// in the times of devices that were measured, and which of them are slow beyond
// doubt: what is still true of the device. It says which compute wrongly, and of which
// the driver keeps a measuring process that was killed.
func (s *Scheduler) Observe(inv *gpu.Inventory, unhealthy map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inv, s.unhealthy = *inv, unhealthy
	s.renewReservations()
	if s.cfg.Mode == Off {
		return
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if err := Supported(*d); err != nil && !s.told[d.ID] {
			s.told[d.ID] = true
			s.log.Info("GPU is not measured", "gpu", d.ID, "model", d.Model, "reason", err)
		}
		if s.running[d.ID].stuck(time.Now()) {
			d.Signals.Unanswered = true
		}
		d.Signals.CUDARefused = d.Signals.CUDARefused || s.ready.not(s.fabricSaid()) && d.MIGProfile == ""
		r := s.records[d.ID]
		d.Signals.Wrong = r.Corrupt || r.Wrong != ""
		if len(d.Times) > 0 {
			continue // the backend knows better
		}
		if m, ok := r.measurement(d.ID, identityOf(*d, inv.DriverVersion)); ok {
			d.Key, d.Times, d.Signals.Slow = m.Key, m.Times, r.Slow
		}
	}
}

// renewReservations has those from before the machine's boot count from the plugin's
// start: Nomad starts their tasks again without a word. Callers hold mu.
func (s *Scheduler) renewReservations() {
	renewed := false
	for id, r := range s.records {
		if !r.Reserved.IsZero() && s.inv.Boot != "" && r.Boot != s.inv.Boot {
			s.reserve(id, s.begun)
			renewed = true
		}
	}
	if renewed {
		s.save()
	}
}

// reserveWait is how long Reserve waits for killed sessions to be gone. The
// driver tears contexts down one after the other, and up to two seconds each:
// with less, a task on a whole node would fail for want of patience.
const reserveWait = 20 * time.Second

// Reserve ends the sessions of these GPUs and marks them as in use. The error
// names a GPU whose session would not end in time.
func (s *Scheduler) Reserve(ids []string) error {
	s.mu.Lock()
	var ending []*running
	for _, id := range ids {
		if !strings.HasPrefix(id, "MIG-") { // instances are not measured
			s.reserve(id, time.Now())
		}
		delete(s.idleSince, id)
		if r := s.running[id]; r != nil {
			r.end(time.Now())
			r.cancel()
			ending = append(ending, r)
		}
	}
	s.save()
	s.mu.Unlock()
	if !ended(ending) {
		s.tell()
		return fmt.Errorf("a measurement on one of the GPUs %v was killed but has not ended after %s", ids, reserveWait)
	}
	return nil
}

// ended waits for processes that were killed, and says whether all have ended in time.
func ended(all []*running) bool {
	timeout := time.After(reserveWait)
	for _, r := range all {
		select {
		case <-r.done:
		case <-timeout:
			return false
		}
	}
	return true
}

// Pause ends all that uses the driver, and begins nothing until Resume. The error says
// that something would not end in time.
func (s *Scheduler) Pause() error {
	s.mu.Lock()
	s.paused = true
	ending := slices.Collect(maps.Values(s.running))
	for _, r := range ending {
		r.end(time.Now())
	}
	if s.asking != nil {
		ending = append(ending, s.asking)
	}
	for _, r := range ending {
		r.cancel()
	}
	s.mu.Unlock()
	if !ended(ending) {
		return fmt.Errorf("a measurement was killed but has not ended after %s", reserveWait)
	}
	return nil
}

// Resume ends a pause.
func (s *Scheduler) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
}

// Run looks at the schedule until ctx ends, and then ends the sessions.
func (s *Scheduler) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.cfg.Mode == Off {
		return
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		tick.Reset(gpu.UntilTick(time.Now(), s.cfg.Tick))
		s.look(time.Now())
		for _, t := range s.next(time.Now()) {
			sctx, cancel := context.WithCancel(ctx)
			r := &running{cancel: cancel, done: make(chan struct{})}
			s.mu.Lock()
			s.running[t.Device.ID] = r
			if s.paused || !s.records[t.Device.ID].Reserved.IsZero() {
				cancel() // Pause or Reserve was faster
			}
			s.mu.Unlock()
			wg.Go(func() { s.session(sctx, t, r) })
		}
		s.ask(ctx, &wg, time.Now())
		select {
		case <-ctx.Done():
			s.letGo()
			return
		case <-tick.C:
		}
	}
}

// letGo forgets that sessions run, as the plugin is about to end: the driver may take
// longer for their end than the plugin is given.
func (s *Scheduler) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running) == 0 {
		return
	}
	for id, r := range s.records {
		r.Begun = time.Time{}
		s.records[id] = r
	}
	s.save()
}

// session runs one and takes its outcome.
func (s *Scheduler) session(ctx context.Context, t Target, r *running) {
	defer r.cancel()
	id := t.Device.ID
	s.log.Info("measuring GPU", "gpu", id)
	res := s.run.Session(ctx, t, s.cfg.Plan, func(p Progress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.Doing != ending {
			r.ending = time.Time{} // another try, with another kernel
			return
		}
		r.end(time.Now())
	})
	close(r.done) // the GPU is free, whatever follows
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, id)
	rec := s.records[id]
	events := rec.accept(res, identityOf(t.Device, t.Driver))
	s.records[id] = rec
	if res.refused {
		s.ready = s.ready.suspected(time.Now())
	}
	s.report(res, events)
	s.crossCheck()
	s.save()
	if res.Problem != interrupted { // an order outlives a task that came meanwhile
		if err := statedir.Measure.Done(s.cfg.StateDir, id); err != nil && !res.Partial {
			s.log.Warn("order to measure cannot be removed", "gpu", id, "error", err)
		}
	}
	s.tell()
}

// tell has the node scanned, as there is something new to publish.
func (s *Scheduler) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// save stores the records, or notes that it could not. Callers hold mu.
func (s *Scheduler) save() {
	err := saveRecords(s.cfg.StateDir, s.records)
	if err != nil && !s.unsaved {
		s.log.Warn("measurements cannot be stored: they are lost when the plugin restarts", "error", err)
	}
	s.unsaved = err != nil
}

// crossCheck puts what the node's GPUs computed beside each other, and says what
// is new. Callers hold mu.
func (s *Scheduler) crossCheck() {
	var ballots []ballot
	for _, d := range s.inv.Devices {
		r := s.records[d.ID]
		ballots = append(ballots, ballot{d.ID, r.Key, r.Sums})
	}
	found := vote(ballots)
	for _, d := range s.inv.Devices {
		r, ok := s.records[d.ID]
		if !ok {
			continue
		}
		before := r.Wrong
		r.Wrong = ""
		for _, dissent := range found[d.ID] {
			if dissent.wrong {
				r.Wrong = dissent.text
			} else {
				s.log.Warn("measurement", "gpu", d.ID, "warning", dissent.text)
			}
		}
		if r.Wrong != "" && r.Wrong != before {
			s.log.Warn("GPU is not rated", "gpu", d.ID, "reason", r.Wrong)
		}
		s.records[d.ID] = r
	}
}

// report logs what a person should know of a session.
func (s *Scheduler) report(res Result, events map[pal.AppClass]profile.DriftEvent) {
	switch {
	case res.Problem == interrupted:
		s.log.Debug("measuring interrupted", "gpu", res.GPU)
		if !res.Corrupt {
			return // a median of the first windows is known badly, as is to be expected
		}
	case res.Partial:
		s.log.Warn("GPU cannot be measured", "gpu", res.GPU, "reason", res.Problem)
	default:
		s.log.Info("GPU measured", "gpu", res.GPU, "key", res.Key, "seconds", res.Seconds)
	}
	for _, w := range res.Warnings {
		s.log.Warn("measurement", "gpu", res.GPU, "warning", w)
	}
	for _, c := range pal.AppClasses() {
		switch e := events[c]; e.State {
		case profile.Alarmed:
			s.log.Info("GPU may have changed its speed, measuring again soon", "gpu", res.GPU, "app_class", c)
		case profile.Confirmed:
			s.log.Warn("GPU has changed its speed", "gpu", res.GPU, "app_class", c,
				"change_percent", 100*(e.To/e.From-1), "degraded", e.Degraded)
		}
	}
}

// next are the GPUs whose session begins now.
func (s *Scheduler) next(now time.Time) []Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.dueNow(now, s.cfg)
	if len(out) > 0 && !s.cfg.OneByOne {
		out = s.dueNow(now, s.cfg.early())
	}
	if len(out) > 0 {
		s.begin(now, out)
	}
	for i := range out {
		out[i].Solo = len(out)+len(s.running) < len(s.inv.Devices)
	}
	return out
}

// dueNow are the GPUs that are due by these rules. Callers hold mu.
func (s *Scheduler) dueNow(now time.Time, rules Schedule) []Target {
	var out []Target
	for _, d := range s.inv.Devices {
		if !s.measurable(d) || rules.OneByOne && len(s.running)+len(out) > 0 {
			continue
		}
		if rules.due(now, s.records[d.ID], identityOf(d, s.inv.DriverVersion), s.condition(now, d.ID)) == "" {
			out = append(out, Target{Device: d, Driver: s.inv.DriverVersion})
		}
	}
	return out
}

// measurable reports whether a session of the device could begin at all.
// Callers hold mu.
func (s *Scheduler) measurable(d gpu.Device) bool {
	return d.MIGProfile == "" && s.running[d.ID] == nil && Supported(d) == nil
}

// condition is what is seen of a device. Callers hold mu.
func (s *Scheduler) condition(now time.Time, id string) condition {
	turn := s.begun
	if len(s.inv.Devices) > 0 { // its first GPU's id tells a node from others
		turn = turn.Add(spread(s.cfg.Jitter, s.inv.Devices[0].ID))
	}
	return condition{healthy: !s.unhealthy[id] && !s.ready.not(s.fabricSaid()) && !s.paused, idleSince: s.idleSince[id], ordered: statedir.Measure.Given(s.cfg.StateDir, id),
		early: now.Before(turn)}
}

// wanted are the devices that would be measured if they were idle: all that are
// due before long, once one is due. Callers hold mu.
func (s *Scheduler) wanted(now time.Time) []string {
	by := func(rules Schedule) (ids []string) {
		for _, d := range s.inv.Devices {
			if s.measurable(d) && rules.wanted(now, s.records[d.ID], identityOf(d, s.inv.DriverVersion), s.condition(now, d.ID)) == "" {
				ids = append(ids, d.ID)
			}
		}
		return ids
	}
	due := by(s.cfg)
	if len(due) == 0 || s.cfg.OneByOne {
		return due
	}
	return by(s.cfg.early())
}

// look finds out which GPUs are in use, among those that are to be measured: by
// a task of Nomad's, or by what the driver says. Of others it knows nothing.
func (s *Scheduler) look(now time.Time) {
	s.mu.Lock()
	for id, r := range s.records {
		s.records[id] = r.notAfter(now)
	}
	if s.unsaved {
		s.save()
	}
	ids, all, measured := s.wanted(now), s.inv.Devices, slices.Sorted(maps.Keys(s.running))
	unwanted := func(id string, _ time.Time) bool { return !slices.Contains(ids, id) }
	maps.DeleteFunc(s.idleSince, unwanted)
	maps.DeleteFunc(s.busySince, unwanted)
	s.mu.Unlock()
	if len(measured) > 0 {
		s.yield(now, s.run.intruders(all, measured))
	}
	if len(ids) == 0 {
		return
	}
	uses := s.run.uses(all, ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		u := uses[id]
		u.task = s.held(now, id, u.task || u.computes) || u.task
		busy := u != use{}
		s.tellBusy(now, id, u)
		switch {
		case busy || s.running[id] != nil:
			delete(s.idleSince, id)
		case s.idleSince[id].IsZero():
			s.idleSince[id] = now
		}
	}
}

// busyTold is how often it is said that a GPU waits to be measured.
const busyTold = 24 * time.Hour

// tellBusy says why a GPU is not measured that has been used whenever it was looked at.
// Callers hold mu.
func (s *Scheduler) tellBusy(now time.Time, id string, u use) {
	since, known := s.busySince[id]
	switch {
	case u == use{}:
		delete(s.busySince, id)
	case !known:
		s.busySince[id] = now
	case now.Sub(since) >= busyTold:
		s.busySince[id] = now
		s.log.Info("GPU is not measured, as it does not become idle", "gpu", id, "used_by", u)
	}
}

// yield ends the sessions of GPUs that somebody has begun to use: they would be slow for
// him, and measured as slow.
func (s *Scheduler) yield(now time.Time, intruders map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, by := range intruders {
		if r := s.running[id]; r != nil && r.ending.IsZero() {
			s.log.Info("measuring ends, as the GPU is used", "gpu", id, "by", by)
			r.end(now)
			r.cancel()
		}
	}
}

// held reports whether a reservation still keeps the GPU; it ends when the
// task's processes have gone, or none has come in a long time. Callers hold mu.
func (s *Scheduler) held(now time.Time, id string, task bool) bool {
	r := s.records[id]
	switch {
	case r.Reserved.IsZero():
		return false
	case task:
		r.Seen = true
		s.records[id] = r
		return true
	case r.Seen || now.Sub(r.Reserved) >= s.cfg.Hold:
		s.reserve(id, time.Time{})
		s.save()
		return false
	}
	return true
}

// reserve notes when a GPU was given to a task, zero for not any more. Callers hold mu.
func (s *Scheduler) reserve(id string, at time.Time) {
	r := s.records[id]
	r.Reserved, r.Boot, r.Seen = at, s.inv.Boot, false
	s.records[id] = r
}
