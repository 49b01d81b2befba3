// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"golang.org/x/sync/singleflight"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

const (
	// firstWithin is the maximum time that the first message waits for the first scan if no GPUs
	// are known. Nomad's client waits for the first message when the client starts. With a stored
	// list of GPUs, the maximum is hangAfter, so that the GPUs do not become unhealthy before
	// the first scan.
	firstWithin = 800 * time.Millisecond
	// lookInterval is the time between two checks of the operator's orders and of the watchdog.
	lookInterval = time.Second
	// hangAfter is the duration of a scan after which its GPUs become unhealthy. In the first scan, the
	// driver may have to start the GPUs, and a GPU that hangs delays the others.
	hangAfter = 17 * time.Second
	// eventScan is the shortest time between scans that events trigger, because an application can
	// cause any number of events.
	eventScan = time.Second
	// recoverScan is the longest time between scans while a GPU's verdict is unsettled.
	recoverScan = 5 * time.Second
	// startsWithin is the maximum time that the driver needs to start all GPUs with persistence
	// mode off. The GPUs start one after the other, and each takes some seconds.
	startsWithin = 2 * time.Minute
	// hungExit is the exit status for a hung driver, restartExit for a replaced driver.
	hungExit, restartExit = 70, 71
)

// Fingerprint sends the devices until ctx ends. The first message goes out after the first scan, or
// at the deadline; later messages go out when the devices change.
func (p *Plugin) Fingerprint(ctx context.Context) (<-chan *device.FingerprintResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cfg.Enabled {
		return nil, device.ErrPluginDisabled
	}
	p.ready()
	s := &stream{
		p: p, backend: p.driver.backend, scans: p.driver.scans, cfg: p.cfg,
		out: make(chan *device.FingerprintResponse), events: make(chan gpu.Event),
		profiles: make(chan *profile.Profile), opened: time.Now(),
	}
	if p.measures != nil && p.measures != p.measuring { // only one stream measures
		p.measuring, s.measures, s.changed = p.measures, p.measures, p.measures.Changed()
	}
	s.patience = cmp.Or(p.opts.Patience, firstWithin)
	if len(p.roster.stored) > 0 && !p.scanned {
		s.patience = max(s.patience, hangAfter)
	}
	s.pause = max(0, time.Until(p.crashes.pausedUntil))
	s.away = p.release.away()
	if s.away || s.pause > 0 {
		s.patience = 0 // no scan will follow soon
	}
	p.streams.Go(func() { s.run(ctx) })
	return s.out, nil
}

// stream is one fingerprint stream.
type stream struct {
	p       *Plugin
	backend Backend
	scans   *scanner
	cfg     Config
	out     chan *device.FingerprintResponse
	events  chan gpu.Event
	opened  time.Time
	// patience is the maximum time that the first message waits for the first scan.
	patience time.Duration
	pause    time.Duration // time before the first scan, after crashes
	// measures is nil unless this stream runs the scheduler. changed receives a value for each new
	// result.
	measures *measure.Scheduler
	changed  <-chan struct{}
	profiles chan *profile.Profile // profiles from the file or from Nomad
	waits    bool                  // the profile's file has not been read yet

	pending <-chan singleflight.Result // the running scan; nil for none
	begun   time.Time                  // begin of the latest scan
	again   bool                       // another scan must follow the running one
	away    bool                       // the driver is released, so no scan begins
	sent    []*device.DeviceGroup
	any     bool // a message was sent
	hung    bool // GPUs were reported as unhealthy because a scan hangs
}

// run runs the stream, and closes out at the end. run does not wait for the event source: its
// driver calls can hang, and the next stream must be able to measure GPUs at once.
func (s *stream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var helpers sync.WaitGroup
	go s.backend.Events(ctx, s.events)
	if s.measures != nil {
		helpers.Go(func() { s.measures.Run(ctx) })
	}
	if s.cfg.ProfilePath != "" {
		s.waits = true
		go s.followFile(ctx)
	}
	if s.cfg.ProfileFromNomad != nil {
		helpers.Go(func() { s.followNomad(ctx) })
	}
	s.loop(ctx)
	s.p.endOnRequest()
	close(s.out)
	cancel()
	helpers.Wait()
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.measures != nil && s.p.measuring == s.measures {
		s.p.measuring = nil
	}
}

// loop scans and publishes until ctx ends.
func (s *stream) loop(ctx context.Context) {
	first := time.NewTimer(s.patience)
	defer first.Stop()
	next := time.NewTimer(s.pause)
	defer next.Stop()
	look := time.NewTimer(gpu.UntilTick(time.Now(), lookInterval))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			s.scan()
		case r := <-s.pending:
			next.Reset(s.settle(r.Val.(scanResult)))
			s.publish(ctx)
		case e := <-s.events:
			s.take(e)
			if s.pending == nil {
				next.Reset(s.untilEventScan())
			}
			s.publish(ctx)
		case <-s.changed:
			s.scan()
		case p := <-s.profiles:
			s.adopt(p)
			s.publish(ctx)
		case <-first.C:
			s.p.mu.Lock()
			s.unscanned()
			s.p.mu.Unlock()
			s.publish(ctx)
		case <-look.C:
			look.Reset(gpu.UntilTick(time.Now(), lookInterval))
			if s.look() {
				s.publish(ctx)
			}
		}
	}
}

// scan starts a scan, unless a scan is running or the driver is released.
func (s *stream) scan() {
	if s.away {
		return
	}
	if s.pending != nil {
		s.again = true
		return
	}
	s.pending, s.begun = s.scans.start(), time.Now()
}

// untilEventScan returns the time until a scan that an event triggers may start.
func (s *stream) untilEventScan() time.Duration {
	return max(0, eventScan-time.Since(s.begun))
}

// settle handles a scan's result and returns how long to wait for the next scan.
func (s *stream) settle(r scanResult) time.Duration {
	s.pending, s.hung = nil, false
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.observe(time.Now(), r)
	wait := s.cfg.FingerprintPeriod
	for _, v := range s.p.view.verdicts {
		if v.unsettled {
			wait = min(wait, recoverScan)
		}
	}
	if r.inv.Unidentified() > 0 && time.Since(s.opened) < startsWithin {
		wait = min(wait, recoverScan)
	}
	if s.again {
		s.again, wait = false, s.untilEventScan()
	}
	return wait
}

// unscanned fills the view with the stored GPUs, marked as not answering, if the first scan takes
// too long. Callers hold mu.
func (s *stream) unscanned() {
	if s.p.scanned {
		return
	}
	inv, err := s.p.store.loadInventory()
	if err != nil {
		s.p.log.Warn("cannot read the stored list of GPUs", "error", err)
	}
	inv.Devices = s.p.unignored(inv.Devices, false)
	s.p.view.inv = inv
	s.p.share(false)
	s.p.judge()
	if len(inv.Devices) > 0 || s.hung {
		s.p.tellKnown()
	}
}

// take applies an event to the view at once. A scan follows soon.
func (s *stream) take(e gpu.Event) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if e.Xid != 0 {
		s.p.event(time.Now(), e)
	}
	if s.pending != nil {
		s.again = true
	}
}

// look reads the operator's orders and runs the watchdog. It does not use the driver. look reports
// whether the view may have changed.
func (s *stream) look() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for _, id := range s.p.store.TakeCleared() {
		s.p.clear(id)
		s.scan()
	}
	if s.p.scanned && s.p.crashes.lasted(time.Now()) {
		s.p.calm()
	}
	changed := s.followRelease()
	return s.watch() || changed
}

// watch handles a scan that takes too long. changed reports whether the view may have changed.
func (s *stream) watch() (changed bool) {
	running := s.scans.running()
	limit := s.cfg.Watchdog
	if limit > 0 && running > limit {
		s.p.log.Error("the driver does not answer; ending the process so that Nomad starts a new one", "for", running.Round(time.Second))
		s.p.opts.Exit(hungExit)
	}
	if running < hangAfter || s.hung {
		return false
	}
	s.hung = true
	s.unscanned()
	s.p.log.Warn("the driver does not answer", "for", running.Round(time.Second))
	devices := slices.Clone(s.p.view.inv.Devices) // statistics may be reading the old slice
	for i := range devices {
		devices[i].Signals = gpu.Signals{Unanswered: true}
	}
	s.p.view.inv.Devices = devices
	s.p.health.hung()
	s.p.returned()
	s.p.judge()
	return true
}

// publish sends the view if it differs from the last message. The first message waits until the
// first scan has ended and the profile has been read, but not longer than patience.
func (s *stream) publish(ctx context.Context) {
	s.p.mu.Lock()
	known, groups := s.p.scanned, s.p.view.groups()
	s.p.mu.Unlock()
	if !s.any && (!known || s.waits) && time.Since(s.opened) < s.patience {
		return
	}
	if s.any && reflect.DeepEqual(groups, s.sent) {
		return
	}
	select {
	case s.out <- device.NewFingerprint(groups...):
		s.sent, s.any = groups, true
	case <-ctx.Done():
	}
}
