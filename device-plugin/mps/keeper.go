// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package mps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Problems of a GPU's sharing, as codes for health descriptions.
const (
	// NoDaemon means that the control daemon does not run or does not answer.
	NoDaemon = "mps-daemon"
	// NoServer means that a server accepts no clients, or has died while its clients still run.
	NoServer = "mps-server"
)

// Limits on restarts of a daemon that keeps ending.
const (
	mostStarts   = 5
	startsWithin = 10 * time.Minute
)

// Keeper runs and watches the wanted daemons.
type Keeper struct {
	log  hclog.Logger
	tick time.Duration // time between checks of the daemons' processes
	look time.Duration // time between checks of the servers
	// save stores the names of the daemons that this plugin has started, for the next plugin.
	save func([]Daemon) error
	// changed receives a value when a GPU's trouble begins or ends.
	changed chan struct{}

	mu     sync.Mutex
	want   map[string]Daemon // wanted daemons by GPU; nil before the first call of Want
	leave  map[string]bool   // GPUs whose daemons are left as they are
	states map[string]*state // states of daemons that are or were wanted, by pipe directory
	paused bool
}

// state is the keeper's knowledge about a daemon.
type state struct {
	Daemon
	limited bool // the daemon runs, and its limits are set
	starts  []time.Time
	trouble string
	why     string // error text as last logged
	asked   time.Time
	clients map[int][]int // client processes by server
	orphans []int         // clients whose server has died
}

// NewKeeper returns a keeper. left lists the daemons that an earlier plugin started.
func NewKeeper(log hclog.Logger, left []Daemon, save func([]Daemon) error) *Keeper {
	k := &Keeper{log: log, tick: time.Second, look: 10 * time.Second, save: save, changed: make(chan struct{}, 1),
		states: map[string]*state{}}
	for _, d := range left {
		k.states[d.Pipe] = &state{Daemon: d}
	}
	return k
}

// Want sets which daemons must run, by GPU. Run starts these daemons. Want ends the plugin's other
// daemons, except the daemons of GPUs in leave.
func (k *Keeper) Want(want map[string]Daemon, leave map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.want, k.leave = want, leave
	for _, d := range want {
		s := k.states[d.Pipe]
		if s != nil && s.Daemon == d {
			continue
		}
		k.states[d.Pipe] = &state{Daemon: d}
		switch {
		case s != nil:
			k.states[d.Pipe].trouble = s.trouble // only the limits changed
		case !d.runs():
			k.states[d.Pipe].trouble = NoDaemon // until it runs
		}
	}
}

// Trouble returns the problem of a GPU's sharing, or "".
func (k *Keeper) Trouble(gpu string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d, wanted := k.want[gpu]; wanted && !k.paused {
		return k.states[d.Pipe].trouble
	}
	return ""
}

// Changed receives a value when a GPU's trouble has begun or ended.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// Run keeps the daemons running until ctx ends. At the end, Run ends the daemons that no task has
// used.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(k.tick)
	defer tick.Stop()
	for {
		k.step(ctx)
		select {
		case <-ctx.Done():
			k.end(context.Background(), endsWithin, func(d Daemon) bool { return !d.isUsed() })
			return
		case <-tick.C:
		}
	}
}

// step checks each daemon once.
func (k *Keeper) step(ctx context.Context) {
	k.mu.Lock()
	if k.paused || k.want == nil {
		k.mu.Unlock()
		return
	}
	pipes := map[string]bool{}
	for _, d := range k.want {
		pipes[d.Pipe] = true
	}
	var wanted, unwanted []*state
	for _, pipe := range slices.Sorted(maps.Keys(k.states)) {
		switch s := k.states[pipe]; {
		case pipes[pipe]:
			wanted = append(wanted, s)
		case !k.leave[s.GPU]:
			unwanted = append(unwanted, s)
		}
	}
	k.mu.Unlock()
	for _, s := range unwanted {
		k.drop(ctx, s)
	}
	for _, s := range wanted {
		if ctx.Err() != nil {
			return
		}
		trouble, err := k.keep(ctx, s)
		k.tell(s, trouble, err)
	}
}

// drop ends a daemon that is no longer wanted.
func (k *Keeper) drop(ctx context.Context, s *state) {
	if time.Since(s.asked) < k.look {
		return
	}
	s.asked = time.Now()
	if s.Own && s.runs() {
		if err := s.quit(ctx); err != nil {
			k.log.Warn("an MPS control daemon that is no longer needed does not end; retrying", "gpu", s.GPU, "error", err)
			return
		}
		k.log.Info("ended an MPS control daemon", "gpu", s.GPU)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.states[s.Pipe] == s {
		delete(k.states, s.Pipe)
		k.remember()
	}
}

// own returns the daemons that the plugin has started, or may have started. Callers hold mu.
func (k *Keeper) own() (own []Daemon) {
	for _, pipe := range slices.Sorted(maps.Keys(k.states)) {
		if d := k.states[pipe].Daemon; d.Own {
			own = append(own, d)
		}
	}
	return own
}

// remember stores which daemons may be running. Callers hold mu.
func (k *Keeper) remember() {
	if err := k.save(k.own()); err != nil {
		k.log.Warn("cannot store the list of MPS control daemons, so a daemon may keep running if the plugin is killed", "error", err)
	}
}

// keep starts a daemon that does not run, and returns the daemon's problem. Only Run calls it.
func (k *Keeper) keep(ctx context.Context, s *state) (trouble string, _ error) {
	if !s.runs() {
		s.limited, s.clients = false, nil
		if err := k.begin(ctx, s); err != nil {
			return NoDaemon, err
		}
	}
	if !s.limited {
		if s.Own {
			if err := s.limit(ctx); err != nil {
				return NoDaemon, err
			}
		}
		s.limited, s.asked = true, time.Time{}
	}
	if time.Since(s.asked) < k.look {
		return s.trouble, nil
	}
	s.asked = time.Now()
	clients, fault, err := s.servers(ctx)
	switch {
	case err == errMeanwhile: // keep the result of the previous check, and check again soon
		s.asked = time.Time{}
		return s.trouble, nil
	case err != nil:
		return NoDaemon, err
	}
	s.bury(clients)
	switch {
	case fault != 0:
		return NoServer, fmt.Errorf("MPS server %d has a fault: a client's kernel failed, and the server accepts no new client until all its clients have ended", fault)
	case len(s.orphans) > 0:
		return NoServer, errOrphans
	}
	return "", nil
}

// begin starts a daemon if it is the plugin's own and has not started too often.
func (k *Keeper) begin(ctx context.Context, s *state) error {
	now := time.Now()
	s.starts = slices.DeleteFunc(s.starts, func(at time.Time) bool { return now.Sub(at) > startsWithin })
	switch n := len(s.starts); {
	case !s.Own:
		return errNotRunning
	case n >= mostStarts:
		return errStarts
	case n > 0 && now.Sub(s.starts[n-1]) < k.tick<<(n-1):
		return errPause
	}
	s.starts = append(s.starts, now)
	k.mu.Lock()
	k.remember()
	k.mu.Unlock()
	if err := s.start(ctx); err != nil {
		return err
	}
	k.log.Info("started an MPS control daemon", "gpu", s.GPU, "pipe", s.Pipe, "log", s.Log)
	return nil
}

// bury finds the clients that still run after their server has ended. A server ends by itself only
// after its clients, so these servers have died.
func (s *state) bury(now map[int][]int) {
	for server, clients := range s.clients {
		if _, there := now[server]; !there {
			s.orphans = append(s.orphans, clients...)
		}
	}
	s.orphans = slices.DeleteFunc(s.orphans, func(pid int) bool {
		return !alive(pid) || slices.ContainsFunc(slices.Collect(maps.Values(now)), func(of []int) bool { return slices.Contains(of, pid) })
	})
	s.clients = now
}

// tell stores a daemon's problem, and logs it when it changes.
func (k *Keeper) tell(s *state, trouble string, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != s.why && why != "" && err != errPause {
		k.log.Warn("tasks cannot share a GPU by MPS", "gpu", s.GPU, "pipe", s.Pipe, "reason", trouble, "error", why)
	}
	if err != errPause {
		s.why = why
	}
	k.mu.Lock()
	was := s.trouble
	s.trouble = trouble
	k.mu.Unlock()
	if was == trouble {
		return
	}
	if trouble == "" {
		k.log.Info("tasks can share a GPU by MPS", "gpu", s.GPU, "pipe", s.Pipe)
	}
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// endsWithin is the maximum time for all daemons to end with the plugin, because Nomad kills a
// plugin after two seconds.
const endsWithin = time.Second

// end ends the plugin's daemons for which fit returns true, and waits for their end.
func (k *Keeper) end(ctx context.Context, within time.Duration, fit func(Daemon) bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	k.mu.Lock()
	own := k.own()
	k.mu.Unlock()
	var wg sync.WaitGroup
	for _, d := range own {
		wg.Go(func() {
			if !d.runs() || !fit(d) {
				return
			}
			if err := d.quit(ctx); err != nil {
				k.log.Warn("an MPS control daemon does not end; after a restart, the plugin uses this daemon again", "gpu", d.GPU, "error", err)
			}
		})
	}
	wg.Wait()
}

// Hold stops the keeper from starting daemons until Resume.
func (k *Keeper) Hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused = true
}

// Pause does the same as Hold, and also ends the daemons without clients, so that the GPUs can be
// reset.
func (k *Keeper) Pause(ctx context.Context) {
	k.Hold()
	k.end(ctx, answersWithin, func(d Daemon) bool {
		clients, _, err := d.servers(ctx)
		for _, of := range clients {
			if len(of) > 0 {
				k.log.Warn("an MPS control daemon keeps running, because tasks use it, so the GPU cannot be reset until these tasks have ended", "gpu", d.GPU, "processes", of)
				return false
			}
		}
		return err == nil
	})
}

// Resume ends a pause.
func (k *Keeper) Resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused = false
}
