// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package mps

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// What may be wrong with a GPU's sharing: codes for health descriptions.
const (
	// NoDaemon: the control daemon does not run. Programs would start without limits.
	NoDaemon = "mps-daemon"
	// NoServer: a server lets no client in, or has died, and clients of it are left.
	NoServer = "mps-server"
)

// Limits on starting a daemon that ends again and again.
const (
	mostStarts   = 5
	startsWithin = 10 * time.Minute
)

// Keeper runs and watches the daemons that are wanted.
type Keeper struct {
	log  hclog.Logger
	tick time.Duration // between two looks at the processes of daemons
	look time.Duration // time between two checks of the servers
	// save remembers the daemons that this plugin has started, should it be killed.
	save func([]Daemon) error
	// changed has a value when a GPU's trouble begins or ends.
	changed chan struct{}

	mu     sync.Mutex
	want   map[string]Daemon // by GPU; nil until that is known
	leave  map[string]bool   // GPUs whose daemons are left as they are
	states map[string]*state // of the daemons that are, or were, wanted, by pipe directory
	paused bool
}

// state is what is known of a daemon.
type state struct {
	Daemon
	limited bool // it runs, and was told its limits
	starts  []time.Time
	trouble string
	why     string // as logged last
	asked   time.Time
	clients map[int][]int // by server
	orphans []int         // clients whose server has died
}

// NewKeeper makes a keeper. left are the daemons that an earlier plugin has started.
func NewKeeper(log hclog.Logger, left []Daemon, save func([]Daemon) error) *Keeper {
	k := &Keeper{log: log, tick: time.Second, look: 10 * time.Second, save: save, changed: make(chan struct{}, 1),
		states: map[string]*state{}}
	for _, d := range left {
		k.states[d.Pipe] = &state{Daemon: d}
	}
	return k
}

// Want sets which daemons must run, by GPU. Those of the plugin that are not among them are
// ended, but for those of the GPUs in leave.
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
			k.states[d.Pipe].trouble = s.trouble // other limits only
		case !d.runs():
			k.states[d.Pipe].trouble = NoDaemon // until it does
		}
	}
}

// Trouble is what is wrong with a GPU's sharing, "" for nothing.
func (k *Keeper) Trouble(gpu string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d, wanted := k.want[gpu]; wanted && !k.paused {
		return k.states[d.Pipe].trouble
	}
	return ""
}

// Changed has a value when a GPU's trouble has begun or ended.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// Run keeps the daemons until ctx ends. Then it ends those that no task was given a part by.
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

// step looks at each daemon once.
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
			k.log.Warn("an MPS control daemon that is no longer wanted does not end; retrying", "gpu", s.GPU, "error", err)
			return
		}
		k.log.Info("MPS control daemon is ended", "gpu", s.GPU)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.states[s.Pipe] == s {
		delete(k.states, s.Pipe)
		k.remember()
	}
}

// own are the daemons that the plugin has started, or may have. Callers hold mu.
func (k *Keeper) own() (own []Daemon) {
	for _, pipe := range slices.Sorted(maps.Keys(k.states)) {
		if d := k.states[pipe].Daemon; d.Own {
			own = append(own, d)
		}
	}
	return own
}

// remember stores which daemons there may be. Callers hold mu.
func (k *Keeper) remember() {
	if err := k.save(k.own()); err != nil {
		k.log.Warn("the list of MPS control daemons cannot be stored: one may keep running if the plugin is killed", "error", err)
	}
}

// keep starts a daemon if it does not run, and returns what is wrong with it. Only Run calls it.
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
	case err == errMeanwhile: // what the last look saw of its clients counts
		s.asked = time.Time{}
		return s.trouble, nil
	case err != nil:
		return NoDaemon, err
	}
	s.bury(clients)
	switch {
	case fault != 0:
		return NoServer, &serverError{fault, "is in a fault: a client's kernel has failed, and it lets no other in until all clients have ended"}
	case len(s.orphans) > 0:
		return NoServer, &serverError{0, "has died: its clients can no longer compute"}
	}
	return "", nil
}

// begin starts a daemon, if the plugin may.
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
	s.limited = true
	s.asked = time.Time{}
	k.log.Info("MPS control daemon is started", "gpu", s.GPU, "pipe", s.Pipe, "log", s.Log)
	return nil
}

// bury finds the clients that are left of servers that are gone. A server ends by itself only after
// its clients.
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

// tell notes what is wrong with a daemon, and says so once.
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

// endsWithin is how long the daemons may take to end with the plugin, all at a time: Nomad kills
// a plugin after two seconds.
const endsWithin = time.Second

// end ends the plugin's daemons that are fit to be, and waits for that.
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
				k.log.Warn("an MPS control daemon does not end: the next plugin adopts it", "gpu", d.GPU, "error", err)
			}
		})
	}
	wg.Wait()
}

// Hold starts no daemon until Resume.
func (k *Keeper) Hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused = true
}

// Pause is Hold, and ends the daemons that have no clients, so that the GPUs can be reset.
func (k *Keeper) Pause(ctx context.Context) {
	k.Hold()
	k.end(ctx, answersWithin, func(d Daemon) bool {
		clients, _, err := d.servers(ctx)
		for _, of := range clients {
			if len(of) > 0 {
				k.log.Warn("an MPS control daemon keeps running, as tasks use it: end them to reset the GPU", "gpu", d.GPU, "processes", of)
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
