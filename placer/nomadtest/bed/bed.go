// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package bed runs the real placer on an in-memory Nomad in virtual time. One object has a cluster,
// authors, placers, faults and expectations.
//
//	func TestPreempts(t *testing.T) {
//		bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
//			w.AddNodes(2, 4)
//			w.StartPlacer()
//			w.Submit(bed.Gang{Name: "a", Members: 2, GPUs: 4, Runs: time.Minute})
//			w.ExpectRunning("a", 10*time.Second)
//			w.Nomad.Fail("", "PUT /v1/jobs", nomadtest.TooMany, 1)
//			w.RunFor(30 * time.Second)
//			w.ExpectFinished("a", time.Minute)
//		})
//	}
//
// An hour of virtual time takes milliseconds to seconds. The world checks the placer's rules all
// the time. If a rule is violated (see [World.Broken]), the test fails at its end.
//
// The rules allow the following cases in random walks, because no placer could do better:
//
//   - A forced garbage collection may delete a drained gang while Nomad does not answer the placer.
//     Such a job looks purged.
//   - Nomad restarts a gang that finishes while Nomad checks or writes a registration of that gang.
//     The placer stops the gang, unless that request fails or the placer is killed ("ran again while
//     Nomad did not answer").
//   - Nomad can write a registration long after it has checked the registration ("slow write"). By
//     that time other jobs may have got the GPUs in its pins.
//   - Members that Nomad replaces by itself, and canaries of jobs with pins to a class, can exceed
//     a tenant's limit.
//   - If Nomad preempts one allocation to make room for several members, only the first of them waits
//     until that allocation has ended. Real Nomad does the same.
//   - If a gang with a disconnect block is stopped while a member's node is lost, that member no
//     longer belongs to the gang.
//   - When a node is purged ("forget a node"), a batch member that had ended before Nomad evaluated
//     its job counts as finished, as in Nomad.
//
// Not modeled: how Nomad's servers interact, federated regions, clients that lost their state, and
// real GPUs. Random walks do not contain hundreds of failures at a time. Nor do they contain
// registrations that Nomad writes after the placer has stopped waiting; scenarios cover these
// registrations.
package bed

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Options describes a world. Zero values mean the defaults.
type Options struct {
	// Seed determines all random choices.
	Seed uint64
	// Nomad describes the cluster's behaviour. Its seed is replaced by Seed.
	Nomad nomadtest.Options
	// Placer changes the placer's configuration.
	Placer func(*model.Config)
	// Partial is how long a gang may be incomplete without a fault. Default: one minute.
	Partial time.Duration
	// If Unchecked is set, violations of the rules do not fail the test, and the test checks
	// [World.Broken] itself.
	Unchecked bool
	// Published is called with each snapshot that a placer publishes.
	Published func(placer string, s *query.Snapshot)
	// Sampled is set if the test chooses itself which of its worlds run under the race detector, or
	// if it needs this world. Of all other worlds, only a few run under the race detector.
	Sampled bool
}

// World is a cluster in virtual time.
type World struct {
	T     *testing.T
	Nomad *nomadtest.Server
	// Author is the API client for people's requests. Only faults for client "author" affect it.
	Author *api.Client

	opts    Options
	placers []*Placer
	nodes   int
	// If Parts is not 0, each new node also has a shared GPU with this many parts.
	Parts int
	log   *lastLines
	rules *rules
}

// Run runs f in a new world. When f returns, Run stops the placers, and fails the test if a rule
// was violated.
func Run(t *testing.T, o Options, f func(w *World)) {
	t.Helper()
	if !o.Sampled && race.Skips(t.Name()) {
		t.Skip(race.Sampled)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, o)
		defer w.end()
		f(w)
	})
}

func newWorld(t *testing.T, o Options) *World {
	t.Helper()
	o.Nomad.Seed = o.Seed
	if o.Partial == 0 {
		o.Partial = time.Minute
	}
	w := &World{T: t, Nomad: nomadtest.New(o.Nomad), opts: o, log: &lastLines{keep: linesKept}}
	w.rules = newRules(w)
	author, err := api.NewClient(w.Nomad.Config("author", ""))
	if err != nil {
		t.Fatal(err)
	}
	w.Author = author
	return w
}

func (w *World) end() {
	for _, p := range w.placers {
		p.Stop()
	}
	w.Nomad.Close()
	if broken := w.Broken(); len(broken) > 0 && !w.opts.Unchecked {
		w.T.Errorf("%d invariants were broken:\n%s", len(broken), strings.Join(broken, "\n"))
	}
	if w.T.Failed() && testing.Verbose() {
		w.T.Logf("the placers' last log lines:\n%s", w.log)
	}
}

// AddNodes adds nodes with gpus GPUs each: "node-0" … with "GPU-0-0" ….
func (w *World) AddNodes(nodes, gpus int) {
	for range nodes {
		n := nomadtest.GPUNode(w.nodes, gpus)
		if w.Parts > 0 {
			n = nomadtest.ShareGPU(n, w.Parts)
		}
		w.Nomad.AddNode(n)
		w.nodes++
	}
}

// NodeID returns the ID of the n-th node.
func NodeID(n int) string { return nomadtest.GPUNode(n, 0).ID }

// Placer is an active placer.
type Placer struct {
	*placer.Placer
	// Name is its client name.
	Name   string
	began  time.Time
	w      *World
	cancel context.CancelFunc
	done   chan struct{}
	// Events contains what the placer did.
	Events *placer.EventLog
}

// StartPlacer starts a placer. If several placers run, they do not know of each other, like agents
// without high_availability.
func (w *World) StartPlacer() *Placer { return w.StartPlacerAs("") }

// StartPlacerAs starts a placer with an ACL token.
func (w *World) StartPlacerAs(token string) *Placer {
	w.T.Helper()
	return w.start(token, func(string, *nomad.Client, *model.Config) {})
}

// start starts a placer, after prepare has changed its client and configuration.
func (w *World) start(token string, prepare func(name string, c *nomad.Client, cfg *model.Config)) *Placer {
	w.T.Helper()
	p := &Placer{Name: fmt.Sprintf("placer-%d", len(w.placers)+1), began: time.Now(), w: w, Events: placer.NewEventLog(1000, time.Now()), done: make(chan struct{})}
	client, err := nomad.NewClient(w.Nomad.Config(p.Name, token), "default")
	if err != nil {
		w.T.Fatal(err)
	}
	cfg := model.DefaultConfig()
	prepare(p.Name, client, &cfg)
	if w.opts.Placer != nil {
		w.opts.Placer(&cfg)
	}
	log := hclog.New(&hclog.LoggerOptions{Name: p.Name, Level: hclog.Debug, Output: w.log})
	if p.Placer, err = placer.New(client, cfg, log, placer.Hooks{Ledger: w.rules.ledger(p.Name), Published: w.published(p.Name), Events: p.Events}); err != nil {
		w.T.Fatal(err)
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	w.placers = append(w.placers, p)
	w.rules.starts(p)
	go func() {
		defer close(p.done)
		defer w.rules.died(p.Name)
		_ = p.Run(ctx) // ctx's error
	}()
	return p
}

// published returns a function that passes each snapshot of a placer to the rules and to
// Options.Published.
func (w *World) published(name string) func(*query.Snapshot, bool) {
	answers := w.rules.answers(name)
	return func(s *query.Snapshot, changed bool) {
		answers(s, changed)
		if w.opts.Published != nil {
			w.opts.Published(name, s)
		}
	}
}

// Stop stops the placer as SIGTERM does, and waits until it has ended.
func (p *Placer) Stop() {
	p.cancel()
	<-p.done
}

// Kill ends the placer as SIGKILL does. No later request of the placer arrives.
func (p *Placer) Kill() {
	p.cancel() // first, so that it does not notice the disconnection
	p.w.Nomad.Disconnect(p.Name)
}

// RunFor lets virtual time pass.
func (w *World) RunFor(d time.Duration) {
	const look = 250 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(look, time.Until(end)))
		w.rules.look()
	}
}

// Until lets virtual time pass until ok returns true, for at most d, and reports whether ok
// returned true.
func (w *World) Until(d time.Duration, ok func() bool) bool {
	return w.until(d, 100*time.Millisecond, ok)
}

func (w *World) until(d, every time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); ; w.RunFor(every) {
		if ok() {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// Broken returns the violations of the rules so far.
func (w *World) Broken() []string {
	var out []string
	for _, v := range w.Nomad.Violations() {
		out = append(out, v.String())
	}
	return append(out, w.rules.violations()...)
}

// Log returns the placers' last log lines.
func (w *World) Log() string { return w.log.String() }

// say adds a line to the log.
func (w *World) say(format string, args ...any) {
	fmt.Fprintf(w.log, "%s [NOMAD] %s\n", time.Now().Format("2006-01-02T15:04:05.000Z"), fmt.Sprintf(format, args...))
}

// transcript returns an observer that logs what happens in Nomad.
func (w *World) transcript() nomadtest.Observer {
	about := func(m nomadtest.Member) string {
		return fmt.Sprintf("%s[%d] of job=%s, version %d, on %s %v", m.Group, m.Number, m.Job.ID, *m.Version.Version, w.nodeName(m.Node), m.GPUs)
	}
	return nomadtest.Observer{
		Wrote: func(x nomadtest.Write) {
			after := "gone"
			if x.After != nil {
				after = fmt.Sprintf("version %d, %s", *x.After.Version, Carries(x.After))
			}
			w.say("%s: %s job=%s: %s, index %d", x.Client, x.Kind, x.Job.ID, after, x.Index)
		},
		Placed: func(m nomadtest.Member) { w.say("placed %s", about(m)) },
		Ended:  func(m nomadtest.Member) { w.say("%s, to %s: %s", m.Client, m.Desired, about(m)) },
		Shared: func(gpu string, a, b nomadtest.Member) {
			w.say("GPU %s is used by two members: %s and %s", gpu, about(a), about(b))
		},
	}
}

func (w *World) nodeName(id string) string {
	for n := range w.nodes {
		if NodeID(n) == id {
			return fmt.Sprintf("node-%d", n)
		}
	}
	return id
}

// lastLines keeps the last lines written to it.
type lastLines struct {
	keep int

	mu    sync.Mutex
	lines []string
}

const linesKept = 3000

func (l *lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	if len(l.lines) > 2*l.keep {
		l.lines = slices.Delete(l.lines, 0, l.keep)
	}
	return len(b), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-l.keep):], "")
}

var _ io.Writer = (*lastLines)(nil)
