// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Name is the plugin's name, which is the same as in nomad-device-nvidia. Nomad loads only the
// highest version of a name, so the two plugins never run together.
const Name = "nvidia-gpu"

// Backend is a source of GPUs. The driver can make Scan and Sample hang. The plugin makes at most
// one call of each at a time, and never under a lock.
type Backend interface {
	// Scan reads the inventory and every GPU's condition. If the driver is missing, the error is a
	// *gpu.Unavailable.
	Scan() (gpu.Inventory, error)
	// Sample reads statistics. A device that could not be read is missing in the result, or its
	// sample names the reason.
	Sample(ids []string) map[string]gpu.Sample
	// Events sends events that occur between scans, until ctx ends.
	Events(ctx context.Context, out chan<- gpu.Event)
	// Disconnect closes the driver after the running calls have returned. Nothing uses the driver
	// until the next scan opens it again.
	Disconnect()
	// Close is like Disconnect, but is final and does not wait for calls.
	Close()
}

// Options are the settings from the plugin's main.
type Options struct {
	Log hclog.Logger
	// Open returns the backend that the configuration names. Open does not use the driver; the
	// first scan does.
	Open func(Config) Backend
	// Exit ends the process if the driver hangs and does not recover. Exit also ends the process if
	// only a new process can find a replaced driver.
	Exit func(code int)
	// Self is the command that runs measure.ChildMain; nil means that the plugin does not measure.
	Self []string
	// Patience is the maximum time that the first message waits for the first scan. 0 means
	// firstWithin. If the plugin has a stored list of GPUs, the maximum is at least hangAfter.
	Patience time.Duration
}

// Plugin implements Nomad's device.DevicePlugin.
type Plugin struct {
	opts    Options
	log     hclog.Logger
	root    string         // directory with dev and proc
	streams sync.WaitGroup // counts the fingerprint streams
	known   chan struct{}  // closed once the node's GPUs are known

	mu       sync.Mutex
	cfg      Config
	driver   driver
	release  releaseState
	crashes  crashes
	store    *store
	said     onceLog
	health   *health
	roster   *roster          // nil until ready
	sharedBy map[string]int   // number of each device's sharing block, from 0
	daemons  map[string]error // why MPS control daemons do not answer, by pipe directory
	profiles profiles
	measures *measure.Scheduler // nil if nothing is measured
	// measuring is the scheduler that a stream runs, because only one stream measures.
	measuring *measure.Scheduler
	view      view // the last view
	scanned   bool // a scan has ended, successfully or not
}

// driver is the source of GPUs, with what reads it. It is zero until the first stream after SetConfig.
type driver struct {
	backend Backend
	scans   *scanner
	samples *sampler
	missing string // last logged reason why there is no driver
}

// profiles are the profiles that rate this node's GPUs; nil for none.
type profiles struct {
	inForce *profile.Profile
	ofNode  *profile.Profile // of this node's GPUs alone, for hysteresis
}

// onceLog logs what lasts only once.
type onceLog struct {
	log      hclog.Logger
	messages map[string]bool      // since SetConfig
	xids     map[string]time.Time // when an error was last logged, by GPU and Xid
}

// warn logs a message unless it has been logged since SetConfig.
func (o *onceLog) warn(msg string, more ...any) {
	if !o.messages[msg] {
		o.messages[msg] = true
		o.log.Warn(msg, more...)
	}
}

// xid logs an error that a GPU reported, with the number of these errors so far.
func (o *onceLog) xid(now time.Time, id string, xid, errors int) {
	kind := fmt.Sprint(id, " ", xid)
	last, told := o.xids[kind]
	if told && now.Sub(last) < xidLogEvery {
		return
	}
	o.xids[kind] = now
	o.log.Warn("GPU reported an error", "gpu", id, "xid", xid, "errors", errors)
}

// xidLogEvery is the minimum time between two log lines about the same error of a GPU, because an
// application can cause any number of errors.
const xidLogEvery = time.Minute

// New returns a plugin with the default configuration. New does nothing else, because Nomad starts
// a plugin several times only to ask its name.
func New(o Options) *Plugin {
	p := &Plugin{opts: o, log: o.Log, root: "/", known: make(chan struct{}),
		crashes: crashes{started: time.Now()}, said: onceLog{log: o.Log, xids: map[string]time.Time{}}}
	p.configure(DefaultConfig())
	return p
}

// PluginInfo identifies this plugin.
func (p *Plugin) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type:              base.PluginTypeDevice,
		PluginApiVersions: []string{device.ApiVersion010},
		PluginVersion:     version.Number,
		Name:              Name,
	}, nil
}

// ConfigSchema returns the schema of the plugin's config block.
func (p *Plugin) ConfigSchema() (*hclspec.Spec, error) { return ConfigSchema(), nil }

// SetConfig applies a configuration. If the configuration is invalid, SetConfig returns an error,
// and the previous configuration stays active.
func (p *Plugin) SetConfig(c *base.Config) error {
	cfg, err := DecodeConfig(c.PluginConfig)
	if err != nil {
		return err
	}
	p.Configure(cfg)
	return nil
}

// configure activates cfg. Parts that depend on the configuration are built again at their next
// use.
func (p *Plugin) configure(cfg Config) {
	if p.driver.backend != nil {
		p.driver.backend.Close()
	}
	p.cfg = cfg
	p.driver, p.measures = driver{missing: p.driver.missing}, nil
	p.health, p.store = newHealth(), nil
	p.profiles, p.release = profiles{}, releaseState{}
	p.said.messages, p.view.unkept = map[string]bool{}, map[string]error{}
}

// Configure does the same as SetConfig, for a checked configuration.
func (p *Plugin) Configure(cfg Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configure(cfg)
}

// Settle waits until the fingerprint streams have ended, at most for the time limit. Nomad ends the
// streams when it ends the plugin. At its end, a stream records that no crash cut its measurements
// short.
func (p *Plugin) Settle(limit time.Duration) {
	done := make(chan struct{})
	go func() { defer close(done); p.streams.Wait() }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// ready opens the backend and reads the stored state, once per configuration. Callers hold mu.
func (p *Plugin) ready() {
	if p.driver.backend != nil {
		return
	}
	b := p.opts.Open(p.cfg)
	p.driver.backend = b
	p.driver.scans = &scanner{backend: b, pipes: p.cfg.pipes()}
	p.driver.samples = &sampler{backend: b}
	p.store = openStore(p.cfg.StateDir)
	if err := p.store.Prepare(); err != nil {
		p.stored(noState, err)
		p.store = openStore("")
	}
	p.stored(forgetsStarts, p.crashes.begin(time.Now(), p.store.Dir, p.log))
	kept, err := p.store.load()
	if err != nil {
		p.log.Warn("stored faults are lost", "error", err)
	}
	p.health.restore(kept)
	before, err := p.store.loadInventory()
	if err != nil {
		p.log.Warn("cannot read the stored list of GPUs, so the plugin does not notice GPUs that are missing now", "error", err)
	}
	p.roster = &roster{stored: before.Devices, forgotten: map[string]bool{}}
	if p.cfg.ProfileFromNomad != nil {
		if p.profiles.inForce, err = p.store.loadCopy(); err != nil {
			p.log.Warn("stored profile is lost", "error", err)
		}
	}
	p.measures = p.scheduler()
	until, _ := p.ordered()
	if !until.IsZero() {
		p.release.use = driverReleased
		if p.measures != nil {
			_ = p.measures.Pause() // nothing runs yet
		}
	}
}

// scheduler returns the scheduler that measures GPUs; nil if the GPUs are not real, or if
// Options.Self is nil. Callers hold mu.
func (p *Plugin) scheduler() *measure.Scheduler {
	if len(p.opts.Self) == 0 || p.cfg.Backend != "nvml" {
		return nil
	}
	rules := measure.DefaultSchedule()
	rules.Mode, rules.Interval = p.cfg.Measure.Mode, p.cfg.Measure.Interval
	rules.Jitter = p.cfg.Measure.Jitter
	rules.IdleFor = p.cfg.Measure.IdleFor
	rules.Plan.Warmup = p.cfg.Measure.Warmup
	rules.Plan.Limit = p.cfg.Measure.Limit
	rules.StateDir = p.store.Dir
	samples := p.driver.samples
	var processes func(ids []string) map[string][]int
	if b, ok := p.driver.backend.(interface {
		Processes(ids []string) map[string][]int
	}); ok {
		processes = b.Processes
	}
	s, err := measure.NewScheduler(rules, measure.Runner{
		Processes: processes,
		Allocated: p.cfg.Nomad.Allocated,
		Self:      p.opts.Self,
		Library:   p.cfg.Measure.CUDALibrary,
		Sample: func(ids []string) map[string]gpu.Sample {
			readings, _ := samples.sample(ids, measureSampleAge, sampleWait)
			return readings
		},
	}, p.log)
	if err != nil {
		p.log.Warn("stored measurements are lost", "error", err)
	}
	return s
}

// measureSampleAge is the maximum age of telemetry for a measurement.
const measureSampleAge = 100 * time.Millisecond

// observe handles the result of a scan. Callers hold mu.
func (p *Plugin) observe(now time.Time, r scanResult) {
	p.scanned = true
	p.returned()
	defer p.tellKnown()
	inv := r.inv
	if r.err != nil {
		inv = gpu.Inventory{}
		msg := r.err.Error()
		if msg != p.driver.missing {
			p.driver.missing = msg
			p.log.Warn("no GPUs can be published; retrying", "reason", msg)
		}
		p.restartFor(r.err)
	} else if p.driver.missing != "" {
		p.log.Info("GPUs are back", "driver", inv.DriverVersion, "gpus", len(inv.Devices))
		p.driver.missing = ""
	}
	for _, h := range inv.Hidden {
		p.said.warn(h.String(), "remedy", RemedyHidden(h))
	}
	for _, w := range inv.Warnings {
		p.said.warn(w)
	}
	if r.err == nil {
		var replaced []string
		inv, replaced = p.roster.complete(inv)
		for _, id := range replaced {
			p.log.Info("a GPU of this node was replaced", "gpu", id)
		}
		inv.Devices = p.unignored(inv.Devices, true)
		p.stored("the plugin cannot store the list of GPUs", p.store.saveInventory(inv))
	}
	p.daemons = r.daemons
	p.health.observe(now, inv, min(p.cfg.FingerprintPeriod, time.Minute))
	p.view.inv = p.withMeasurements(inv)
	p.share(r.err == nil && inv.Unidentified() == 0)
	p.judge()
}

// withMeasurements passes the scan to the scheduler, which adds the measured times. The scheduler
// keeps the list of devices, so the list must not change after this call. Callers hold mu.
func (p *Plugin) withMeasurements(inv gpu.Inventory) gpu.Inventory {
	p.view.accounts = nil
	if p.measures == nil {
		return inv
	}
	unhealthy := map[string]bool{}
	for id, v := range p.health.verdicts(inv, p.cfg.Health) {
		unhealthy[id] = !v.healthy
	}
	p.measures.Observe(&inv, unhealthy)
	p.view.accounts = p.measures.Accounts()
	return inv
}

// tellKnown wakes the calls that wait for the first list of the node's GPUs. Callers hold mu.
func (p *Plugin) tellKnown() {
	select {
	case <-p.known:
	default:
		close(p.known)
	}
}

// leastUptime is the minimum age of a process that restartFor ends, because Nomad restarts a plugin
// without a delay.
const leastUptime = time.Minute

// restartFor ends the process if only a new process can find the driver again.
func (p *Plugin) restartFor(err error) {
	var u *gpu.Unavailable
	if errors.As(err, &u) && u.Restart && time.Since(p.crashes.started) >= leastUptime {
		p.log.Warn("ending the process so that Nomad starts a new one, which loads the new driver's library")
		p.opts.Exit(restartExit)
	}
}

const noState = "the plugin cannot store its state (config key state_dir), so it forgets faults and measurements when it restarts"

// judge computes the view's verdicts and ratings from its inventory. Callers hold mu.
func (p *Plugin) judge() {
	verdicts := p.health.verdicts(p.view.inv, p.cfg.Health)
	if p.release.use != driverUsed {
		for id, v := range verdicts {
			verdicts[id] = verdict{reason: reasonReleased, degraded: v.degraded}
		}
	}
	p.daemonVerdicts(verdicts)
	for _, d := range p.view.inv.Devices {
		p.logVerdict(d, p.view.verdicts, verdicts[d.ID])
	}
	p.view.verdicts = verdicts
	p.rate()
	if p.health.changed { // try again until the faults are stored
		err := p.store.Write(storeFile, p.health.kept())
		p.stored("the plugin cannot store faults, so it forgets them when it restarts", err)
		p.health.changed = err != nil
	}
}

// stored logs the first failure to store data, and publishes the failure until storing works again.
func (p *Plugin) stored(trouble string, err error) {
	if err == nil {
		delete(p.view.unkept, trouble)
		return
	}
	if p.view.unkept[trouble] == nil {
		p.log.Warn(trouble, "error", err)
	}
	p.view.unkept[trouble] = err
}

// rate computes the view's ratings. Callers hold mu.
func (p *Plugin) rate() {
	var err error
	p.view.rating, p.profiles.ofNode, err = rate(p.view.inv.Devices, p.profiles.inForce, p.profiles.ofNode)
	if p.view.rating.reference == attr.ReferenceProfile && p.cfg.ProfilePath != "" {
		p.view.rating.reference = attr.ReferenceFile
	}
	if err != nil {
		p.said.warn(err.Error())
	}
}

// logVerdict logs each change of a device's health once.
func (p *Plugin) logVerdict(d gpu.Device, before map[string]verdict, now verdict) {
	was, known := before[d.ID]
	switch {
	case !now.healthy && (!known || was.reason != now.reason):
		p.log.Warn("GPU is unhealthy", "gpu", d.ID, "reason", now.reason, "remedy", Remedy(now.reason, d.Physical(), p.cfg.StateDir))
	case now.healthy && known && !was.healthy:
		p.log.Info("GPU is healthy again", "gpu", d.ID, "was", was.reason)
	}
	if len(now.degraded) > 0 && fmt.Sprint(now.degraded) != fmt.Sprint(was.degraded) {
		var remedies []string
		for _, reason := range now.degraded {
			r := Remedy(reason, d.Physical(), p.cfg.StateDir)
			if !slices.Contains(remedies, r) {
				remedies = append(remedies, r)
			}
		}
		p.log.Warn("GPU is degraded", "gpu", d.ID, "reasons", now.degraded, "remedy", strings.Join(remedies, "; "))
	}
}

// unignored returns the devices that the configuration does not ignore. An ignored id can be the
// device's id or its GPU's id. The function warns about ignored ids that match nothing. Callers
// hold mu.
func (p *Plugin) unignored(ds []gpu.Device, complete bool) []gpu.Device {
	matched := map[string]bool{} // ignored ids of devices
	var out []gpu.Device
	for _, d := range ds {
		ignored := false
		for _, id := range p.cfg.IgnoredGPUIDs {
			if d.Is(id) {
				ignored, matched[id] = true, true
			}
		}
		if !ignored {
			out = append(out, d)
		}
	}
	for _, id := range p.cfg.IgnoredGPUIDs {
		if complete && !matched[id] {
			p.said.warn(fmt.Sprintf("config key \"ignored_gpu_ids\": no GPU has the id %q", id))
		}
	}
	return out
}
