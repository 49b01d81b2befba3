// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// interrupted is the problem of a session that Reserve, Pause, the plugin's end, or another program
// on the GPU cut short.
const interrupted = "interrupted"

// Scheduler measures the node's idle GPUs inside the plugin: when they first appear, and on a
// schedule. [Scheduler.Reserve] takes a GPU away from the scheduler at once.
type Scheduler struct {
	cfg   Schedule
	run   Runner
	log   hclog.Logger
	begun time.Time // Schedule.Jitter counts from here
	// changed has a value when there is a new result to publish.
	changed chan struct{}

	mu        sync.Mutex
	inv       gpu.Inventory
	unhealthy map[string]bool
	records   map[string]record
	idleSince map[string]time.Time
	unproven  string            // why Nomad could not tell which GPUs are allocated
	askAgain  time.Time         // when to ask Nomad again, if it did not report all GPUs as free
	inUse     map[string]string // by GPU whose own task requested a measurement: what prevents the measurement
	running   map[string]*running
	refused   bool      // CUDA did not start, because the system was not ready
	asked     time.Time // when a process last tested whether CUDA starts
	asking    *running  // process that tests whether CUDA starts; nil if none runs
	paused    bool      // the driver must not be used
}

// running is a session in progress.
type running struct {
	cancel context.CancelFunc
	done   chan struct{}
	ending time.Time // when the scheduler began to end the session's process; zero while it measures
}

// stuck reports whether the session's process does not end although it was killed. The process
// hangs in the driver, so no task can use the GPU.
func (r *running) stuck(now time.Time) bool {
	return r != nil && !r.ending.IsZero() && now.Sub(r.ending) >= reserveWait
}

// end marks the session as ending, unless it is marked already.
func (r *running) end(now time.Time) {
	if r.ending.IsZero() {
		r.ending = now
	}
}

// NewScheduler returns a scheduler with the stored results. If it returns an error, the state file
// could not be read, but the scheduler works.
func NewScheduler(cfg Schedule, run Runner, log hclog.Logger) (*Scheduler, error) {
	s := &Scheduler{cfg: cfg, run: run, log: log, begun: time.Now(), changed: make(chan struct{}, 1),
		unhealthy: map[string]bool{}, records: map[string]record{}, idleSince: map[string]time.Time{},
		running: map[string]*running{}, inUse: map[string]string{}}
	records, err := loadRecords(cfg.StateDir)
	if records != nil {
		s.records = records
	}
	s.asked = s.begun.Add(cfg.Ask - cfg.AskUnsuspected) // before the first process, the fabric has time to come up
	s.recover()
	return s, err
}

// recover records the sessions that the end of the last plugin process cut short.
func (s *Scheduler) recover() {
	for id, r := range s.records {
		if !r.recover() {
			continue
		}
		s.records[id] = r
		s.log.Warn("the plugin or the machine went down while the GPU was measured", "gpu", id, "measured_again", fmt.Sprintf("in %s at the earliest", s.cfg.pause(r)))
	}
}

// begin stores the start times of sessions. After a crash of the plugin, these records tell the
// next process which sessions were cut short. Callers hold mu.
func (s *Scheduler) begin(now time.Time, ts []Target) {
	for _, t := range ts {
		r := s.records[t.Device.ID]
		r.Begun = now.UTC().Truncate(time.Second)
		s.records[t.Device.ID] = r
	}
	s.save()
}

// Changed receives a value when there is something new to publish.
func (s *Scheduler) Changed() <-chan struct{} { return s.changed }

// Observe reads a scan of the node and the set of unhealthy GPUs. Observe fills in the measured
// times of inv's devices. Observe also sets signals: of all devices if CUDA does not start,
// and of devices that are certainly slow, compute wrong results, or have a measuring process
// that cannot be killed.
func (s *Scheduler) Observe(inv *gpu.Inventory, unhealthy map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inv, s.unhealthy = *inv, unhealthy
	if s.cfg.Mode == Off {
		return
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if s.running[d.ID].stuck(time.Now()) {
			d.Signals.Unanswered = true
		}
		d.Signals.CUDARefused = d.Signals.CUDARefused || s.refused && d.MIG.Profile == ""
		r := s.records[d.ID]
		d.Signals.Wrong = r.Corrupt
		if m, ok := r.measurement(d.ID, identityOf(*d, inv.DriverVersion)); ok {
			d.Measured.Key = m.Key
			d.Measured.Times = m.Times
			d.Measured.Rates = r.Rates
			d.Signals.Slow = r.Slow
		}
	}
}

// reserveWait is the maximum time that Reserve waits for killed sessions to end. The driver
// destroys the contexts of these sessions one after the other, in up to two seconds each. With a
// shorter wait, a task that reserves a whole node would fail.
const reserveWait = 20 * time.Second

// Reserve ends the sessions on these GPUs. With the ticket that Reserve returns, the task can
// request a measurement of its unshared GPUs. Reserve returns an error if a session does not end in
// time.
func (s *Scheduler) Reserve(ids []string, parts map[string]bool) (ticket string, _ error) {
	s.mu.Lock()
	ticket = rand.Text()
	var ending []*running
	for _, id := range ids {
		if !strings.HasPrefix(id, "MIG-") { // MIG instances are not measured
			r := s.records[id]
			r.Ticket = ticket
			r.Reserved = time.Now().UTC().Truncate(time.Second)
			r.Shown = false
			r.Asks = false
			if parts[id] {
				r.Ticket = ""
			}
			s.records[id] = r
		}
		delete(s.idleSince, id)
		delete(s.inUse, id)
		r := s.running[id]
		if r != nil {
			r.end(time.Now())
			r.cancel()
			ending = append(ending, r)
		}
	}
	s.save()
	s.mu.Unlock()
	if !ended(ending) {
		s.tell()
		return "", fmt.Errorf("a measurement on one of the GPUs %s was killed but has not ended after %s", strings.Join(ids, ", "), reserveWait)
	}
	return ticket, nil
}

// ended waits for killed processes, and reports whether all ended in time.
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

// Pause ends all use of the driver until Resume. Pause returns an error if something does not end
// in time.
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

// Run checks the schedule until ctx ends, and then ends the sessions.
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
		now := time.Now()
		s.look(now)
		s.start(ctx, &wg, s.prove(ctx, now, s.next(now)))
		s.ask(ctx, &wg, time.Now())
		select {
		case <-ctx.Done():
			s.forgetSessions()
			return
		case <-tick.C:
		}
	}
}

// start begins the sessions of GPUs that were found to be free, each in a goroutine of wg. It skips
// GPUs that a task has reserved by now, and all GPUs during a pause.
func (s *Scheduler) start(ctx context.Context, wg *sync.WaitGroup, ts []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ts = slices.DeleteFunc(ts, func(t Target) bool { return s.paused || s.idleSince[t.Device.ID].IsZero() })
	if len(ts) == 0 {
		return
	}
	s.begin(time.Now(), ts)
	beside, whole := len(s.running)+len(ts)-1, s.whole()
	for _, t := range ts {
		t.Beside, t.Of = beside, whole
		sctx, cancel := context.WithCancel(ctx)
		r := &running{cancel: cancel, done: make(chan struct{})}
		s.running[t.Device.ID] = r
		delete(s.idleSince, t.Device.ID)
		wg.Go(func() { s.session(sctx, t, r) })
	}
}

// whole returns the number of GPUs that are not MIG instances. Callers hold mu.
func (s *Scheduler) whole() (n int) {
	for _, d := range s.inv.Devices {
		if d.MIG.Profile == "" {
			n++
		}
	}
	return n
}

// prove returns the GPUs that certainly no other task uses. These are the GPUs whose own task
// requested the measurement, and the GPUs that Nomad reports as free. A GPU without visible use can
// still be allocated.
func (s *Scheduler) prove(ctx context.Context, now time.Time, ts []Target) (free []Target) {
	var ids []string
	s.mu.Lock()
	for _, t := range ts {
		if s.records[t.Device.ID].Asks {
			free = append(free, t)
		} else {
			ids = append(ids, t.Device.ID)
		}
	}
	s.mu.Unlock()
	if len(ids) == 0 || now.Before(s.askAgain) {
		return free
	}
	held, err := s.run.Allocated(ctx, ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellUnproven(err)
	if err != nil || len(held) > 0 {
		s.askAgain = now.Add(s.cfg.Recheck)
	}
	if err != nil {
		return free
	}
	for _, t := range ts {
		id := t.Device.ID
		if held[id] == "" && slices.Contains(ids, id) {
			free = append(free, t)
		}
	}
	return free
}

// tellUnproven records whether Nomad can tell which tasks hold GPUs. tellUnproven publishes each
// change, and logs each new reason for a failure. Callers hold mu.
func (s *Scheduler) tellUnproven(err error) {
	was := s.unproven
	s.unproven = ""
	if err != nil {
		s.unproven = brief(err)
	}
	if s.unproven == was {
		return
	}
	if err != nil {
		s.log.Warn("idle GPUs are not measured, because it is not known whether tasks use them", "error", s.unproven,
			"next", UnprovenNext)
	}
	s.tell()
}

// ownEnd matches the local address in a connection error, because the port differs each time.
var ownEnd = regexp.MustCompile(`\S+->`)

// brief returns an error from Nomad as one line that stays the same while the error lasts. brief
// cuts long texts, because a proxy can answer with a whole page.
func brief(err error) string {
	text := []rune(ownEnd.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), ""))
	if len(text) > mostBrief {
		text = append(text[:mostBrief], '…')
	}
	return gpu.Printable(string(text))
}

const mostBrief = 400

// UnprovenNext is the advice to the operator if Nomad cannot tell which GPUs are allocated.
const UnprovenNext = "let the plugin ask Nomad (config block nomad), or measure with a job: jobspecs/measure.nomad.hcl"

// forgetSessions removes the running sessions from the records, because the plugin is about to end.
// The driver may need more time to end the sessions than Nomad gives the plugin, and the next
// process would count these sessions as crashes.
func (s *Scheduler) forgetSessions() {
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

// session runs one session and handles its outcome.
func (s *Scheduler) session(ctx context.Context, t Target, r *running) {
	defer r.cancel()
	id := t.Device.ID
	s.log.Info("measuring GPU", "gpu", id)
	res := s.run.Session(ctx, t, s.cfg.Plan, func(p Progress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.Doing == ending {
			r.end(time.Now())
		}
	})
	close(r.done) // now the GPU is free
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, id)
	rec := s.records[id]
	rec.accept(res, identityOf(t.Device, t.Driver))
	s.records[id] = rec
	s.report(res, rec.Alarm)
	s.save()
	s.tell()
}

// tell triggers a scan of the node, because there is something new to publish.
func (s *Scheduler) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// save stores the records. Callers hold mu.
func (s *Scheduler) save() {
	if err := s.cfg.StateDir.Write(recordsFile, recordsForm{recordsFormat, s.records}); err != nil {
		s.log.Warn("cannot store the measurements, so they are lost when the plugin restarts", "error", err)
	}
}

// report logs a session's results that people should know about. again means that another session
// follows soon.
func (s *Scheduler) report(res Result, again bool) {
	switch {
	case res.Problem == interrupted:
		s.log.Debug("measuring interrupted", "gpu", res.GPU)
		if !res.Corrupt {
			return // after few windows the median is imprecise, as expected
		}
	case res.Partial:
		s.log.Warn("GPU cannot be measured", "gpu", res.GPU, "reason", res.Problem)
	default:
		s.log.Info("GPU measured", "gpu", res.GPU, "key", res.Key, "seconds", res.Seconds, "again_soon", again)
	}
	for _, w := range res.Warnings {
		s.log.Warn("measuring gave a warning", "gpu", res.GPU, "warning", w)
	}
}

// next returns the GPUs to measure now, if they are proved to be free. All wait until each idle GPU
// whose task asked is idle for long enough, so that they are measured together.
func (s *Scheduler) next(now time.Time) []Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Target
	rules := s.rules(now)
	for _, d := range s.inv.Devices {
		if !s.measurable(d) {
			continue
		}
		c := s.condition(now, d.ID)
		switch rules.due(now, s.records[d.ID], identityOf(d, s.inv.DriverVersion), c) {
		case "":
			out = append(out, Target{Device: d, Driver: s.inv.DriverVersion})
		case notIdleLong:
			if c.asked {
				return nil
			}
		}
	}
	return out
}

// rules returns the schedule. If a GPU would be measured, devices that are due soon are measured with
// it. Callers hold mu.
func (s *Scheduler) rules(now time.Time) Schedule {
	if slices.ContainsFunc(s.inv.Devices, func(d gpu.Device) bool { return s.wants(now, s.cfg, d) }) {
		return s.cfg.early()
	}
	return s.cfg
}

// measurable reports whether the plugin can measure the device at all. Callers hold mu.
func (s *Scheduler) measurable(d gpu.Device) bool {
	return d.MIG.Profile == "" && s.running[d.ID] == nil && Supported(d) == nil
}

// condition returns the present state of a device. Callers hold mu.
func (s *Scheduler) condition(now time.Time, id string) condition {
	turn := s.begun
	if len(s.inv.Devices) > 0 { // the first GPU's id distinguishes the node from others
		turn = turn.Add(spread(s.cfg.Jitter, s.inv.Devices[0].ID))
	}
	return condition{healthy: !s.unhealthy[id] && !s.refused && !s.paused, idleSince: s.idleSince[id],
		asked: s.records[id].Asks, early: now.Before(turn)}
}

// wanted returns the devices that would be measured if they were idle. Callers hold mu.
func (s *Scheduler) wanted(now time.Time) (ids []string) {
	rules := s.rules(now)
	for _, d := range s.inv.Devices {
		if s.wants(now, rules, d) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// wants reports whether these rules would measure a device if the device were idle. Callers hold
// mu.
func (s *Scheduler) wants(now time.Time, rules Schedule, d gpu.Device) bool {
	return s.measurable(d) && rules.wanted(now, s.records[d.ID], identityOf(d, s.inv.DriverVersion), s.condition(now, d.ID)) == ""
}

// look finds which of the GPUs to be measured are in use, and which tasks request a measurement. It
// ends the sessions of GPUs that another program has begun to use. It does not check GPUs that need
// no session.
func (s *Scheduler) look(now time.Time) {
	s.mu.Lock()
	measured, tickets := slices.Sorted(maps.Keys(s.running)), s.tickets(now)
	s.mu.Unlock()
	if len(measured) > 0 {
		s.yield(now, s.run.intruders(measured))
	}
	if len(tickets) > 0 {
		shown := s.run.tasks(tickets)
		s.mu.Lock()
		s.recordRequests(tickets, shown)
		s.mu.Unlock()
	}
	s.mu.Lock()
	ids, all := s.wanted(now), s.inv.Devices // with those that have just been requested
	maps.DeleteFunc(s.idleSince, func(id string, _ time.Time) bool { return !slices.Contains(ids, id) })
	s.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	uses := s.run.uses(all, ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		u := uses[id]
		if s.records[id].Asks && u.busy {
			u = use{} // this task causes the utilization: no other task can have the GPU, and no process computes on it
		}
		s.tellInUse(id, u)
		switch {
		case u != use{} || s.running[id] != nil:
			delete(s.idleSince, id)
		case s.idleSince[id].IsZero():
			s.idleSince[id] = now
		}
	}
}

// ticketsLast is the time during which the scheduler looks for the first process of a reservation's
// task. Nomad may have to pull an image or wait for a secret before the process starts.
const ticketsLast = 15 * time.Minute

// tickets returns, by GPU, the reservations of tasks that have had no process so far, or that
// request a measurement. Callers hold mu.
func (s *Scheduler) tickets(now time.Time) map[string]string {
	out := map[string]string{}
	for id, r := range s.records {
		if r.Asks || r.Ticket != "" && !r.Shown && now.Sub(r.Reserved) < ticketsLast {
			out[id] = r.Ticket
		}
	}
	return out
}

// recordRequests records which of the tasks that reserved a GPU still request a measurement.
// Callers hold mu.
func (s *Scheduler) recordRequests(tickets map[string]string, shown map[string]bool) {
	changed := false
	for id, ticket := range tickets {
		r := s.records[id]
		asks, here := shown[ticket]
		switch {
		case r.Ticket != ticket: // there is a newer reservation
			continue
		case here && !r.Shown:
			r.Shown, r.Asks = true, asks
			if asks {
				s.log.Info("the task that holds the GPU requested a measurement", "gpu", id)
			}
		case !here && r.Asks && s.running[id] == nil:
			r.Asks = false // the task has ended
		default:
			continue
		}
		s.records[id], changed = r, true
	}
	if changed {
		s.save()
	}
}

// tellInUse publishes what uses a GPU while the GPU waits for a measurement that its own task
// requested. Callers hold mu.
func (s *Scheduler) tellInUse(id string, u use) {
	why := ""
	if s.records[id].Asks {
		why = u.by
	}
	if s.inUse[id] != why {
		s.inUse[id] = why
		s.tell()
	}
}

// yield ends the sessions on GPUs that another program has begun to use. The session would slow the
// program down, and the program would make the GPU seem slow.
func (s *Scheduler) yield(now time.Time, intruders map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, by := range intruders {
		r := s.running[id]
		if r != nil && r.ending.IsZero() {
			s.log.Info("the measurement was stopped, because the GPU is in use", "gpu", id, "by", by)
			r.end(now)
			r.cancel()
		}
	}
}
