// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"slices"
	"time"
)

// The driver's library can crash the plugin's process, for example after a GPU was unplugged. Nomad
// then starts the plugin again at once. Without a pause, a plugin that crashes in its first scan
// would start about thirty times a second, and Nomad would keep its GPUs healthy.

const (
	// startsFile holds the starts of processes that may have crashed. A process that ends on request,
	// or that has used the driver for leastUptime, empties the file.
	startsFile = "starts.json"
	// crashesAllowed is the number of starts in startsFile after which the next process pauses before
	// it uses the driver.
	crashesAllowed = 3
	// crashPause is the length of the pause.
	crashPause = time.Minute
	// crashCounts is the age after which a start no longer counts.
	crashCounts = 10 * time.Minute
)

// starts is the format of startsFile.
type starts struct {
	Starts []time.Time `json:"starts"` // the oldest first
}

const forgetsStarts = "the plugin cannot store its start times, so it does not pause after repeated crashes"

// begin stores the start of this process, and decides whether the process pauses before its first
// scan.
// Callers hold mu.
func (p *Plugin) begin(now time.Time) {
	if p.store.Dir == "" || p.begun {
		return
	}
	var s starts
	if _, err := p.store.Read(startsFile, &s); err != nil {
		p.log.Warn("cannot read the times of the plugin's last starts", "error", err)
	}
	s.Starts = slices.DeleteFunc(s.Starts, func(t time.Time) bool { return t.After(now) || now.Sub(t) > crashCounts })
	if n := len(s.Starts); n >= crashesAllowed {
		p.pausedUntil = now.Add(crashPause)
		p.log.Error("the plugin ended unexpectedly after each of its last starts, perhaps in the driver's library; it pauses before it uses the driver again",
			"starts", n, "pause", crashPause)
		s.Starts = s.Starts[n-crashesAllowed+1:]
	}
	s.Starts = append(s.Starts, now)
	p.begun = true
	p.stored(forgetsStarts, p.store.Write(startsFile, s))
}

// calm stores that this process did not crash. Callers hold mu.
func (p *Plugin) calm() {
	if !p.begun || p.calmed || p.store.Dir == "" {
		return
	}
	err := p.store.Write(startsFile, starts{Starts: []time.Time{}})
	p.stored(forgetsStarts, err)
	p.calmed = err == nil
}

// endOnRequest stores that this process did not crash.
func (p *Plugin) endOnRequest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calm()
}

// calmLater calls calm once the process has used the driver for long enough. Callers hold mu.
func (p *Plugin) calmLater(now time.Time) {
	if p.scanned && now.Sub(p.started) >= leastUptime && now.Sub(p.pausedUntil) >= leastUptime {
		p.calm()
	}
}
