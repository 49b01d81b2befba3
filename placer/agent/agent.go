// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package agent runs a placer as a daemon (nomad-pal agent). The agent reads the configuration, in
// HCL or JSON, elects one active agent through a lock in Nomad's variables, and serves an HTTP API.
// The API includes the web page (folder ui), the metrics, the placer's events, and the history of
// runs. While an agent is active, it also learns application classes, polls
// for idle GPUs, takes a sample of the cluster every minute, and writes the history.
//
// A change must keep these rules:
//
//   - The agent's own token reads everything in Nomad. Each handler therefore checks the caller's
//     token ([server.judged], [server.snapshotFor]) before it uses such data. The handler then
//     removes what this caller may not see, with the value's method RedactedFor or with
//     [caller.sees]. An answer that needs no token names no job, node, GPU, namespace or user.
//   - [server.handler] registers each route, and docs/reference/http-api.md lists it. A standby
//     agent redirects a request to the active agent, unless [answersItself] accepts its path. Add a
//     path to answersItself only if each agent, active or not, can answer it by itself.
//   - The text of a failed connection contains an address of Nomad or of the database. This text
//     belongs in the agent's log and, for operators, in /v1/health. Show other callers an error of
//     a request to Nomad only through [publicError], which [refuse] calls, or as Nomad's own answer
//     ([refuseAs]).
//   - A handler reads a body only with [bodies.decode], because anybody can send a body, and decode
//     limits the memory that all bodies use together.
//   - Each block of the configuration is a field of [File]. Most blocks are structs in config.go;
//     others are [Admission], [History], [queue.Tenant], [window.Window] and
//     [profile.Options]. The keys of placement and queue are in [model.Keys].
//   - [File.PlacerConfig] and [Agent.usable] reject each configuration that cannot run, because a
//     reload ends the old configuration before it starts the new one.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/meter"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Agent is the daemon: it runs a placer and the HTTP API.
type Agent struct {
	log   hclog.Logger
	hooks placer.Hooks
	meter *meter.Meter
	// current is the active placer; nil between two placers and while this agent is not the leader.
	current atomic.Pointer[placer.Placer]
	leads   atomic.Bool
	panics  atomic.Int64 // requests that panicked
	// lockError is why the last attempt to acquire the lock failed or was too slow; otherwise "",
	// also if another agent holds the lock.
	lockError atomic.Pointer[string]
	// lockUntil is when the lock expires, counted from this agent's last renewal. No other agent
	// can hold the lock before.
	lockUntil atomic.Pointer[time.Time]
	warnings  heartbeat.Warnings
	followers places // of events and the stream
	requests  places // all other requests with large answers
	samples   samples
	idle      idleGPUs
	accounts  accounts
	// port is the port on which the API listens, or listened before the configuration was reloaded.
	port int
	rest time.Duration // the pause after which the placer counts as resting: see collectMore
	// hungAfter is how long the placer's loop can go without progress before the agent ends.
	hungAfter time.Duration
}

// New makes an agent.
func New(log hclog.Logger, hooks placer.Hooks) *Agent {
	a := &Agent{log: log, hooks: hooks, rest: rest, hungAfter: heartbeat.HungAfter}
	a.followers = newPlaces(followersAtOnce, "too many clients follow events or the stream: ask again later")
	a.requests = newPlaces(requestsAtOnce, "the agent is answering too many requests: ask again later")
	a.meter = meter.New(version.Number, version.Revision, a.gauges())
	a.hooks.Meter, a.hooks.Events = a.meter, placer.NewEventLog(eventsKept, time.Now())
	return a
}

// gcPercent makes Go collect garbage twice as often as by default. Work on a large cluster creates
// much garbage, and collecting it costs little (make page-bench). The agent sets gcPercent after
// the placer has read the cluster, because until then nearly all data stays in use. GOGC in the
// environment overrides gcPercent.
const gcPercent = 50

// Run runs the agent with the configuration in paths until ctx ends. Each value from reload makes
// Run read the configuration again. If the new configuration cannot be used, Run logs why and keeps
// the current one. If the placer's loop hangs, Run returns an error while the loop still exists, so
// the caller must end the process.
func (a *Agent) Run(ctx context.Context, paths []string, reload <-chan os.Signal) error {
	file, err := Load(paths)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, hung := make(chan error, 1), make(chan error, 1)
	go func() { ended <- a.runAndReload(ctx, file, paths, reload) }()
	go func() { hung <- a.untilHung(ctx) }()
	select {
	case err = <-ended:
		cancel()
		<-hung
	case err = <-hung:
		if err == nil { // ctx has ended
			err = <-ended
		}
	}
	return err
}

// runAndReload runs the agent until ctx ends, first with the configuration in file.
func (a *Agent) runAndReload(ctx context.Context, file File, paths []string, reload <-chan os.Signal) error {
	for ctx.Err() == nil {
		next, err := a.runUntilReload(ctx, file, paths, reload)
		if err != nil {
			return err
		}
		file = next
	}
	return nil
}

// runUntilReload runs the agent with one configuration, and returns the next configuration.
func (a *Agent) runUntilReload(ctx context.Context, file File, paths []string, reload <-chan os.Signal) (File, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer file.Nomad.disconnect()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	a.warnings.Certificates(file.certificates())
	api, err := a.listen(file)
	if err != nil {
		return file, err
	}
	address, port := "", 0
	if api != nil {
		port = a.port
		address = file.HTTP.published(api.listener.Addr().(*net.TCPAddr))
		wg.Go(func() { api.serve(ctx) })
		wg.Go(func() { a.collectMore(ctx) })
	}
	wg.Go(func() { a.watchToken(ctx, file.Nomad) })
	done := make(chan error, 1)
	wg.Go(func() { done <- a.serve(ctx, file, address) })
	for {
		select {
		case err := <-done:
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return file, err
		case <-reload:
			next, err := Load(paths)
			if err == nil {
				err = a.usable(next, port)
			}
			if a.warnings.Configured(err); err != nil {
				a.log.Error("the new configuration is invalid; keeping the old one", "error", err)
				continue
			}
			a.log.Info("configuration reloaded")
			return next, nil
		}
	}
}

// usable returns why a new configuration cannot replace the current one. port is the current API's
// port. The files and addresses that the new configuration names must be usable, because the
// current configuration ends before the new one starts.
func (a *Agent) usable(next File, port int) error {
	server, err := a.newServer(next) // checks the configuration
	if err != nil {
		return err
	}
	client, err := next.Nomad.Connect()
	if err != nil {
		return err
	}
	if err := next.Nomad.serveChildren(client, a.mayWrite); err != nil {
		return err
	}
	if _, err := server.guarded(); err != nil {
		return err
	}
	return next.HTTP.mayListen(port)
}

// serve runs the placer. With an election, the placer runs only while this agent is elected.
// address is the published address of the API.
func (a *Agent) serve(ctx context.Context, file File, address string) error {
	cfg, err := file.PlacerConfig()
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings(time.Now()) {
		a.log.Warn("part of the configuration has no effect", "what", w)
	}
	elected := file.HA.on()
	client, err := a.connect(file)
	if err != nil {
		return err
	}
	once := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		p, err := placer.New(client, cfg, a.log, a.hooks)
		if err != nil {
			return fmt.Errorf("starting the agent's loop: %w", err)
		}
		a.current.Store(p)
		a.leads.Store(true)
		defer a.current.Store(nil)
		defer a.leads.Store(false)
		heart := &heartbeat.Heart{Nomad: client, Log: a.log, Vitals: p.Vitals, Of: store.Heartbeat{Agent: name(), Version: version.Human(), Address: address}, Elected: elected, Warnings: &a.warnings}
		if elected {
			heart.Holds = a.holdsLock
		}
		wg.Go(func() { heart.Run(ctx) })
		wg.Go(func() { a.remember(ctx, client) })
		wg.Go(func() { a.account(ctx, p, file.History) })
		a.log.Info("placing", "placement", cfg.Placement, "queue", cfg.Queue.Order)
		return p.Run(ctx)
	}
	lead := func(ctx context.Context) error {
		err := once(ctx)
		for ; errors.Is(err, placer.ErrClockSetBack); err = once(ctx) {
			a.log.Warn("starting again with an empty state", "because", err)
		}
		return err
	}
	if !elected {
		return lead(ctx)
	}
	election, err := file.Nomad.connectForLock(a.meter.Transport)
	if err != nil {
		return err
	}
	beside := func(ctx context.Context) error {
		active, err := heartbeat.ReadActivity(ctx, election, time.Now())
		if err != nil {
			return nil // the election reports that Nomad does not answer
		}
		return file.Beside(active)
	}
	return a.elect(ctx, election, *file.HA, beside, lead)
}

const (
	// collectAfter is the time after which the agent sets [gcPercent] at the latest, because a
	// standby agent has no placer that could rest.
	collectAfter = time.Minute
	// rest is the pause after which the placer counts as resting. Pauses within a burst of events
	// are shorter than half of rest.
	rest = 500 * time.Millisecond
)

// collectMore sets [gcPercent] and returns unused memory to the system once the placer has read the
// cluster.
func (a *Agent) collectMore(ctx context.Context) {
	for began := time.Now(); ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		p := a.current.Load()
		if p != nil && p.Vitals().RestsFor(time.Now(), a.rest) || time.Since(began) > collectAfter {
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			debug.FreeOSMemory() // reading a large cluster takes far more memory than the agent needs later
			return
		}
	}
}

var name = sync.OnceValue(newName)

// newName returns a name for this process: its host's name, its id, and a random suffix. In
// containers, the processes of several agents can have the id 1, on hosts of the same name.
func newName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}
