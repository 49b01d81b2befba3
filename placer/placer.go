// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/meter"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Placer serves gated jobs. Create a Placer with [New] and run it with [Placer.Run]. Only one Run
// may be active at a time.
type Placer struct {
	*core
	journal
	pictures
	stream

	profileReadAt time.Time // when the stored profile was last looked for
	failureLog    failureLog
	lookedAt      time.Time // when the placer last looked for failures
	resyncedAt    time.Time
	moves         []arrival // gangs that have stopped in order to move, which the view does not show yet
	ready         []arrival // gangs that have stopped in order to move, according to the view
	warned        bool      // the placer has warned of an old Nomad
	ofNodes       []string  // warnings about nodes
	ofNamespaces  []string  // warnings about namespaces
	pinsUntil     time.Time // see distrustPins
	meanwhile     meanwhile
	followed      followed
	health        gpuHealth
	// evaluationLimit limits how often the placer reads evaluations.
	evaluationLimit *rate.Limiter
	timeBudget      timeBudget

	began      time.Time // when the last cycle began
	pictured   uint64    // the ledger's Changes at the last snapshot
	picturedAt time.Time // when the last snapshot was made
	orders     orders

	vitals heartbeat.Vitals
}

// orders says whether the placer must read again what commands have written: controls and the
// quarantine.
type orders struct {
	// announced counts the announcements of such data. read is its value when the placer last began
	// to read them. stale is true if the placer must read the controls again.
	announced atomic.Uint64
	read      uint64
	stale     bool
	// since is the time since which the placer must read the controls: since its start, or since
	// the controls changed.
	since time.Time
}

// core contains the data that all parts of the placer share.
type core struct {
	m     *model.Model
	nomad *nomad.Client
	log   hclog.Logger
	hooks Hooks

	clock     clock
	backoffs  map[string]backoff
	lastCycle time.Time
	again     bool // the cycle has not done all work that is due at once
	// unwarned is true if the warnings have changed since the last cycle. changed is true if
	// something has changed since the last snapshot.
	unwarned, changed bool
}

// journal contains the data that the placer writes in the background while cycles run.
type journal struct {
	*core
	unsaved      unsavedRecords
	started      []time.Time // the start times of the last gangs; at most burst entries
	stale        []string    // variables with the records of jobs that are gone
	runTimesFile runTimesFile
	usage        usageFile
	unstored     bool // the profile in force must be stored
	lot          *lot // the writes under way; nil if there are none
}

// pictures contains the snapshots that other goroutines read.
type pictures struct {
	published published
	nudged    chan struct{}
}

// stream holds Nomad's events.
type stream struct {
	*core
	events <-chan []cluster.Event // from the session's stream
	deaf   atomic.Bool            // the session's stream has ended
	heard  []cluster.Event        // received but not applied yet
	// missed is true if the state cannot be trusted, because Nomad omitted an event or an event
	// could not be read.
	missed bool
}

// Hooks observe the placer. A hook that is nil is not called. BeforeCommit runs just before the
// placer registers a start. AfterCommit runs just after the registration, before the placer records
// it. Tests use BeforeCommit and AfterCommit to crash the placer.
type Hooks struct {
	BeforeCommit, AfterCommit func(cluster.JobKey)
	// Meter counts the placer's actions. If Meter is nil, the actions are not counted.
	Meter *meter.Meter
	// Events logs the placer's actions for people. If Events is nil, the actions are not logged.
	Events *EventLog
	// Ledger receives the model before each decision, for tests.
	Ledger func(*model.Model)
	// Published receives each snapshot from the placer's loop. changed reports whether anything
	// except the time has changed since the last snapshot. Tests use Published to check that the
	// answers to queries agree with the decisions.
	Published func(picture *query.Snapshot, changed bool)
}

// unread is a meter whose counts nobody reads. The placers of snapshots and tests use this meter.
var unread = sync.OnceValue(func() *meter.Meter { return meter.New("", "", nil) })

// New returns a placer that logs to log.
func New(client *nomad.Client, cfg model.Config, log hclog.Logger, hooks Hooks) (*Placer, error) {
	m, err := newModel(cfg)
	if err != nil {
		return nil, err
	}
	if hooks.Meter == nil {
		hooks.Meter = unread()
	}
	c := &core{m: m, nomad: client, log: log, hooks: hooks, clock: newClock(), backoffs: map[string]backoff{}}
	p := &Placer{
		core: c, journal: journal{core: c}, stream: stream{core: c}, pictures: pictures{nudged: make(chan struct{}, 1)},
		evaluationLimit: newEvaluationLimit(),
	}
	p.meanwhile.begin()
	return p, nil
}

// Validate returns an error if a configuration is invalid.
func Validate(cfg model.Config) error {
	_, err := newModel(cfg)
	return err
}

func newModel(cfg model.Config) (*model.Model, error) {
	err := cfg.Validate()
	var m *model.Model
	if err == nil {
		m, err = model.New(cfg, time.Now().Round(0))
	}
	if err != nil {
		return nil, fmt.Errorf("placer configuration: %w", err)
	}
	return m, nil
}

// Vitals reports whether the loop in [Placer.Run] works and makes progress.
func (p *Placer) Vitals() heartbeat.VitalSigns { return p.vitals.Status() }

// Run serves jobs until ctx ends. Run returns either the error of ctx or [ErrClockSetBack]. If
// Nomad returns an error, Run logs it and retries at growing intervals.
func (p *Placer) Run(ctx context.Context) error {
	const slowest = 15 * time.Second
	pause := 100 * time.Millisecond
	p.vitals.LoopAlive(time.Now())
	for ctx.Err() == nil {
		began := time.Now()
		err := p.safely(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrClockSetBack) {
			p.saveAll()
			return cmp.Or(ctx.Err(), err)
		}
		if errors.Is(err, errNewNamespace) {
			p.log.Info("there is a new namespace; subscribing to Nomad's events again")
			continue
		}
		if time.Since(began) > slowest {
			pause = 100 * time.Millisecond
		}
		p.vitals.Restarted(time.Now(), err)
		if errors.Is(err, nomad.ErrSilent) {
			p.report(hearingEvents, err)
		}
		p.log.Warn("lost the connection to Nomad; reading everything again", "error", err, "in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, slowest)
	}
	return ctx.Err()
}

// safely runs a session. If the session panics, safely returns the panic as an error. All state is
// derived from Nomad. After a panic, the placer can therefore forget everything and start again
// without the job that caused the panic.
func (p *Placer) safely(ctx context.Context) (err error) {
	defer func() {
		r := recover()
		if r != nil {
			err = p.recoverFromPanic(r, p.tick())
			p.m.State, p.pinsUntil = nil, time.Time{}
		}
	}()
	return p.session(ctx)
}

// session serves jobs with one subscription to Nomad's events. session misses no change, because it
// subscribes before it reads everything and then follows the events.
func (p *Placer) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer p.awaitWrites()
	defer cancel()
	begun, err := p.nomad.JobsIndex(ctx)
	if err != nil {
		return err
	}
	namespaces, err := p.nomad.Namespaces(ctx) // before subscribing, so that no new namespace is missed
	if err != nil {
		p.log.Debug("could not read the namespaces", "error", err)
	}
	p.warnOfNamespaces(namespaces)
	stream, err := p.nomad.Subscribe(ctx)
	if err != nil {
		return err
	}
	events := make(chan []cluster.Event, 64)
	p.events, p.heard = events, nil
	p.deaf.Store(false)
	ended := make(chan error, 2)
	var reader sync.WaitGroup
	reader.Go(func() {
		take := func(es []cluster.Event) error {
			select {
			case events <- es:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := recoverPanic(p.log, "the event stream", func() error { return stream.Run(take) })
		p.deaf.Store(true)
		ended <- err
	})
	reader.Go(func() {
		if err := recoverPanic(p.log, "looking for namespaces", func() error { return p.followNamespaces(ctx, namespaces) }); err != nil {
			ended <- err
		}
	})
	defer reader.Wait()
	defer stream.Close()
	defer cancel()
	if err := p.resync(ctx); err != nil {
		return err
	}
	p.m.State.Begun(begun)
	p.runTimesFile.due, p.usage.due = !p.runTimesFile.loaded, !p.usage.loaded
	return p.runCycles(ctx, ended)
}

// news says how urgent the next cycle is. The urgency depends on what has happened since the last
// cycle.
type news int

const (
	_ news = iota // nothing
	// progress means that Nomad is carrying out a decision. progress does not require an immediate
	// cycle.
	progress
	// change means that something other than progress has happened.
	change
)

// runCycles runs a cycle after each batch of events, and whenever something becomes due. If all
// events report only progress, runCycles first waits for a short time (debounces). Waiting saves
// work, because in a burst Nomad reports each allocation separately, but each cycle handles all
// jobs.
func (p *Placer) runCycles(ctx context.Context, ended <-chan error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	heard, debounced := change, time.Time{}
	for {
		again, err := p.resyncDue(ctx)
		if err = cmp.Or(err, p.clock.setBack()); err != nil {
			return err
		}
		if again {
			heard = change
		}
		// Events that arrived during the full read may contain changes that no list contains.
		heard = max(heard, p.applyAll())
		for heard == change || heard == progress && !time.Now().Before(debounced) {
			if heard, debounced, err = p.runCycle(ctx); err != nil {
				return err
			}
		}
		d, ok := p.sleep(p.tick())
		if heard == progress && (!ok || time.Until(debounced) < d) {
			d, ok = time.Until(debounced), true
		}
		setTimer(wake, d, ok)
		select { // check the end of the session first, because select chooses at random
		case err := <-ended:
			return err
		default:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case es := <-p.events:
			p.heard = append(p.heard, es...)
			p.report(hearingEvents, nil)
			heard = max(heard, p.applyAll())
		case <-p.nudged:
			heard = change
		case <-p.writesDone():
			p.startWrites(ctx, p.tick())
		case <-tick.C:
			heard = max(heard, p.eachSecond(ctx))
			p.startWrites(ctx, p.tick())
		case <-wake.C:
			heard = change
		}
	}
}

// setTimer sets a timer to fire after d, or stops the timer.
func setTimer(t *time.Timer, d time.Duration, ok bool) {
	if t.Stop(); ok {
		t.Reset(d)
	}
}

// eachSecond records that the loop works, and checks whether a cycle is due without an event.
func (p *Placer) eachSecond(ctx context.Context) news {
	p.vitals.LoopAlive(time.Now())
	if (p.m.Controls == nil || p.orders.stale) && !p.backsOff(readingControls, p.m.Time) || p.reconcileDue() || p.pictureDue() {
		return change
	}
	return 0
}

// resyncAfterMiss is the shortest time between two full reads if the second one is due because an
// event is missing or unreadable.
const resyncAfterMiss = 10 * time.Second

// runCycle runs a cycle. runCycle returns how urgent the next cycle is. debounced is the time
// before which progress alone requires no cycle.
func (p *Placer) runCycle(ctx context.Context) (heard news, debounced time.Time, err error) {
	if ctx.Err() != nil {
		return 0, debounced, ctx.Err()
	}
	p.again = false
	began := time.Now()
	p.vitals.CycleBegan(began)
	if err := p.cycle(ctx); err != nil {
		return 0, debounced, err
	}
	p.startWrites(ctx, p.m.Time)
	p.vitals.CycleEnded(time.Now())
	p.hooks.Meter.Cycles.WithLabelValues().Observe(time.Since(began).Seconds())
	debounced = time.Now().Add(min(max(10*time.Millisecond, 2*time.Since(began)), 200*time.Millisecond))
	heard = p.applyAll()
	if p.again {
		heard = change
	}
	return heard, debounced, nil
}

// resyncDue makes a full read if one is due, and reports whether one was due. A full read is due if
// the last one was long ago, or if an event is missing or could not be read.
func (p *Placer) resyncDue(ctx context.Context) (due bool, err error) {
	ago := p.tick().Sub(p.resyncedAt)
	missed := p.missed && ago >= resyncAfterMiss
	if ago < p.m.Cfg.Resync && !missed {
		return false, nil
	}
	if err := p.resync(ctx); err != nil {
		return true, err
	}
	if missed {
		p.report(readingEvents, nil)
	}
	return true, nil
}

// leastSleep is the shortest pause between two decisions if nothing happens.
const leastSleep = 10 * time.Millisecond

// sleep returns the time until something becomes due even without an event. For example, a gang
// stops waiting for closer GPUs, a gang has run long enough to be stopped, or a decision must be
// recorded. ok is false if nothing will become due.
func (p *Placer) sleep(now time.Time) (d time.Duration, ok bool) {
	at, ok := p.m.Queue.Wake(gang.QueueTime(p.lastCycle)) // the first time after the last cycle, which may be in the past
	records, some := p.decisionsDueAt()
	if some && (!ok || gang.QueueTime(records) < at) {
		at, ok = gang.QueueTime(records), true
	}
	return max(leastSleep, at-gang.QueueTime(now)), ok
}

// applyAll applies the events that have arrived.
func (p *stream) applyAll() news {
	p.listen()
	es := p.heard
	p.heard = nil
	return p.apply(es)
}

// listen receives new events. The events are applied between cycles.
func (p *stream) listen() {
	for {
		select {
		case es := <-p.events:
			p.heard = append(p.heard, es...)
		default:
			return
		}
	}
}

// hasNews reports whether an event about job k has arrived and this cycle has not applied the
// event. Events can arrive during a cycle if Nomad answers slowly. If such an event has arrived,
// the caller must postpone its action on the job.
func (p *stream) hasNews(k cluster.JobKey) bool {
	p.listen()
	return slices.ContainsFunc(p.heard, func(e cluster.Event) bool { return e.About() == k })
}

func (p *stream) apply(es []cluster.Event) (heard news) {
	for _, e := range es {
		if e.Unread != nil {
			p.report(readingEvents, e.Unread)
			p.missed = true
			continue
		}
		applied := p.m.State.Apply(e)
		p.log.Trace("event", "topic", e.Topic, "type", e.Type, "key", e.Key, "index", e.Index, "applied", applied)
		switch {
		case p.m.Dependencies.Hear(e):
			heard = change
		case !applied:
		case e.Progress():
			heard = max(heard, progress)
		default:
			heard = change
		}
	}
	p.missed = p.missed || p.m.State.PurgeLikely()
	p.changed = p.changed || heard > 0
	return heard
}

// resync reads everything. Each request counts as progress, because all requests together can take
// longer than the loop may run without progress.
func (p *Placer) resync(ctx context.Context) error {
	ctx = nomad.WhenEnded(ctx, func() { p.vitals.Moved(time.Now()) })
	s, err := p.nomad.Resync(ctx, p.m.State)
	if err != nil {
		return err
	}
	p.m.State, p.missed, p.resyncedAt, p.changed = s, false, p.tick(), true
	// Somebody may have restored a snapshot of Nomad, or changed variables by hand.
	p.orders.announced.Add(1)
	p.unstored = p.unstored || p.m.Profile != nil
	p.m.Dependencies.Doubt()
	var unread []error
	for _, k := range slices.SortedFunc(maps.Keys(p.m.State.Unread), cluster.JobKey.Compare) {
		unread = append(unread, p.m.State.Unread[k])
	}
	p.report(readingJobs, errors.Join(unread...))
	p.warnOfOldNomad()
	if err := p.readImported(ctx); err != nil {
		return err
	}
	p.report(pruningRecords, p.lookForStale(ctx))
	return ctx.Err()
}

// reconcileDue reports whether something may become due even without an event.
func (p *Placer) reconcileDue() bool {
	for _, t := range p.m.Jobs {
		if t.Unsettled() {
			return true
		}
	}
	return p.unwarned || len(p.timeBudget.until) > 0 || p.runTimesFile.due || len(p.m.State.Orphans())+len(p.m.State.StaleVersions()) > 0 || p.mayMove()
}

// lookForMoves is the interval at which the placer looks for gangs to move if no event makes it
// look sooner.
const lookForMoves = 5 * time.Second

// mayMove reports whether the placer should now look for gangs that are worth moving.
func (p *Placer) mayMove() bool {
	if !p.m.Cfg.Queue.Migrate || p.m.Time.Sub(p.lastCycle) < lookForMoves {
		return false
	}
	for _, t := range p.m.Jobs {
		if t.Nomad == palapi.Running && t.Request.Hints.Migrate {
			return true
		}
	}
	return false
}
