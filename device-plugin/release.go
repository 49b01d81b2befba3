// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

// driverUse tracks whether the plugin uses the driver. No GPU can be reset or switched to MIG while
// a program uses the driver, so an operator can order the plugin to release the driver for a while.
type driverUse int

const (
	driverUsed      driverUse = iota
	driverLeaving             // nothing new begins, and running work ends
	driverReleased            // the plugin has closed the driver
	driverReturning           // the release is over: the next scan opens the driver again
)

// releaseState is the state of the operator's order to release the driver.
type releaseState struct {
	use    driverUse
	ending bool // endDriverUse is running
}

// away reports whether the plugin must not use the driver.
func (r releaseState) away() bool { return r.use == driverLeaving || r.use == driverReleased }

const (
	// releaseFile holds the operator's order. releasedFile holds the last order that the plugin
	// executed.
	releaseFile, releasedFile = "release.json", "released.json"
	// LongestRelease is the maximum duration of an order, so that the order ends even if the clock
	// is set back.
	LongestRelease = 24 * time.Hour
)

// release is an order to release the driver, with the end of the order.
type release struct {
	Until time.Time `json:"until"`
}

// Release orders the plugin that uses the state directory to release the driver until this time. A
// time in the past ends the release.
func Release(dir string, until time.Time) error {
	return statedir.Dir(dir).Write(releaseFile, release{until.UTC().Round(0)})
}

// ReleasedUntil returns the end of the order to release the driver; zero if there is no order. gone
// means that the plugin has released the driver.
func ReleasedUntil(dir string, now time.Time) (until time.Time, gone bool, err error) {
	var ordered, done release
	d := statedir.Dir(dir)
	if _, err := d.Read(releaseFile, &ordered); err != nil {
		return time.Time{}, false, err
	}
	left := ordered.Until.Sub(now)
	if left <= 0 || left > LongestRelease {
		return time.Time{}, false, nil
	}
	if _, err := d.Read(releasedFile, &done); err != nil {
		return time.Time{}, false, err
	}
	return ordered.Until, done.Until.Equal(ordered.Until), nil
}

// ordered returns the end of the order to release the driver. Callers hold mu.
func (p *Plugin) ordered() (until time.Time, gone bool) {
	until, gone, err := ReleasedUntil(string(p.store.Dir), time.Now())
	if err != nil {
		p.said.warn(fmt.Sprintf("cannot read the order to release the driver: %v", err))
	}
	return until, gone
}

// returned records that the plugin uses the driver again, even if the driver does not answer.
// Callers hold mu.
func (p *Plugin) returned() {
	if p.release.use == driverReturning {
		p.release.use = driverUsed
	}
}

// followRelease executes the operator's order about the driver, and reports whether the order
// changes what the plugin publishes. Callers hold mu.
func (s *stream) followRelease() (changed bool) {
	p := s.p
	until, gone := p.ordered()
	ordered := !until.IsZero()
	switch {
	case ordered && !p.release.away():
		p.release.use = driverLeaving
		changed = true
		p.log.Info("the plugin is releasing the driver, as the operator ordered", "until", until)
		p.judge()
	case !ordered && p.release.away() && !p.release.ending:
		p.release.use = driverReturning
		p.log.Info("the driver is used again")
		if p.measures != nil {
			p.measures.Resume()
		}
	case p.release.use == driverLeaving && !p.release.ending && s.pending == nil && s.scans.running() == 0:
		p.release.ending = true
		go p.endDriverUse(p.driver.backend, p.measures)
	case p.release.use == driverReleased && !gone:
		p.stored("the plugin cannot record that it has released the driver", p.store.Write(releasedFile, release{until}))
	}
	was := s.away
	if was != p.release.away() {
		s.away = p.release.away()
		if was {
			s.scan()
		}
	}
	return changed
}

// endDriverUse ends everything that uses the driver. Nothing waits for endDriverUse, because it can
// hang forever.
func (p *Plugin) endDriverUse(b Backend, m *measure.Scheduler) {
	if m != nil {
		if err := m.Pause(); err != nil {
			p.log.Warn("cannot pause the measurements; releasing the driver anyway", "error", err)
		}
	}
	b.Disconnect()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.driver.backend == b { // the configuration has not changed
		p.release = releaseState{use: driverReleased}
	}
}
