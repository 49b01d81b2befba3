// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

// The driver's library can crash the plugin's process, for example after a GPU was unplugged. Nomad
// then starts the plugin again at once. Without a pause, a plugin that crashes in its first scan
// would start about thirty times a second, and Nomad would keep its GPUs healthy.

const (
	// startsFile counts the starts of processes that may have crashed. A process that ends on request,
	// or that has used the driver for leastUptime, resets the count.
	startsFile = "starts.json"
	// crashesAllowed is the number of starts in startsFile after which the next process pauses before
	// it uses the driver.
	crashesAllowed = 3
	// crashPause is the length of the pause.
	crashPause = time.Minute
)

const forgetsStarts = "the plugin cannot count its starts, so it does not pause after repeated crashes"

// crashes tracks whether this process and those before it crash.
type crashes struct {
	started     time.Time // when the plugin was created, right after the process began
	begun       bool      // the start of this process is stored
	calmed      bool      // it is stored that this process did not crash
	pausedUntil time.Time // end of the pause after several crashes; zero without a pause
}

// begin stores the start of this process, and decides whether the process pauses before its first
// scan.
func (c *crashes) begin(now time.Time, d statedir.Dir, log hclog.Logger) error {
	if d == "" || c.begun {
		return nil
	}
	var starts int
	if _, err := d.Read(startsFile, &starts); err != nil {
		log.Warn("cannot read the number of the plugin's last starts", "error", err)
	}
	if starts >= crashesAllowed {
		c.pausedUntil = now.Add(crashPause)
		log.Error("the plugin ended unexpectedly after each of its last starts, perhaps in the driver's library; it pauses before it uses the driver again",
			"starts", starts, "pause", crashPause)
	}
	c.begun = true
	return d.Write(startsFile, min(starts+1, crashesAllowed))
}

// calm stores that this process did not crash.
func (c *crashes) calm(d statedir.Dir) error {
	if !c.begun || c.calmed || d == "" {
		return nil
	}
	err := d.Write(startsFile, 0)
	c.calmed = err == nil
	return err
}

// lasted reports whether the process has used the driver for long enough to count as sound.
func (c *crashes) lasted(now time.Time) bool {
	return now.Sub(c.started) >= leastUptime && now.Sub(c.pausedUntil) >= leastUptime
}

// calm stores that this process did not crash. Callers hold mu.
func (p *Plugin) calm() {
	if p.store != nil {
		p.stored(forgetsStarts, p.crashes.calm(p.store.Dir))
	}
}

// endOnRequest stores that this process did not crash.
func (p *Plugin) endOnRequest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calm()
}
