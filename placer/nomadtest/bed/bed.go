// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package bed runs the real placer on an in-memory Nomad in virtual time. A [World] contains a
// cluster, authors, placers, faults and expectations.
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
// An hour of virtual time takes milliseconds to seconds. A World checks the placer's rules all the
// time. If the placer violates a rule (see [World.Broken]), the test fails when it ends.
//
// The rules allow the following cases in random walks, because no placer could do better:
//
//   - A forced garbage collection may delete a drained gang while Nomad does not answer the placer.
//     The placer then treats the job as purged.
//   - Nomad restarts a gang that finishes while Nomad checks or writes a registration of that gang.
//     The placer then stops the gang, unless the request to stop it fails or the placer is killed
//     ("ran again while Nomad did not answer").
//   - Nomad can write a registration long after it has checked the registration ("slow write"). By
//     then, other jobs may have got the GPUs in the registration's pins.
//   - A tenant can exceed its limit because Nomad replaces members without the placer, or starts
//     canaries of jobs whose pins name a class.
//   - If Nomad preempts one allocation in favour of several members, only the first of these
//     members waits until the allocation has ended. Real Nomad does the same.
//   - If a gang with a disconnect block is stopped while the node of a member is lost, this member
//     no longer belongs to the gang.
//   - When a node is purged ("forget a node"), a member of a batch job counts as finished if it had
//     ended before Nomad evaluated the job. Real Nomad does the same.
//
// The package does not simulate how Nomad's servers interact, federated regions, clients that lost
// their state, or real GPUs. Random walks do not contain hundreds of failures at a time. Random
// walks also do not contain registrations that Nomad writes after the placer has stopped waiting
// for the answer, but scenarios do.
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
	"github.com/nomad-pal/nomad-pal/placer/meter"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Options describes a world. The fields of Options have defaults, which apply if a field is zero.
type Options struct {
	// Seed determines all random choices in the world.
	Seed uint64
	// Nomad contains the options of the simulated Nomad, except its seed, which is Seed.
	Nomad nomadtest.Options
	// Placer may change the configuration of the placers.
	Placer func(*model.Config)
	// Partial is how long a gang may be incomplete if there was no fault. Default: one minute.
	Partial time.Duration
	// Unchecked is true if violations of the rules do not fail the test, because the test itself
	// checks [World.Broken].
	Unchecked bool
	// Published is called with each snapshot that a placer publishes.
	Published func(placer string, s *query.Snapshot)
	// Meter counts what the placers do; nil for no counts.
	Meter *meter.Meter
	// Unwatched is true if nobody looks at the placers' snapshots while time passes.
	Unwatched bool
	// Sampled is true if the world must run even under the race detector, which skips most other
	// worlds.
	Sampled bool
}

// World is a cluster in virtual time.
type World struct {
	T     *testing.T
	Nomad *nomadtest.Server
	// Author is the API client that sends people's requests. Only faults for the client "author"
	// affect these requests.
	Author *api.Client

	opts    Options
	placers []*Placer
	nodes   int
	// If Parts is not 0, each new node also has a shared GPU that is divided into this number of
	// parts.
	Parts int
	log   *lastLines
	rules *rules
}

// Run runs f in a new world. When f returns, Run stops the placers. If a rule was violated, the
// test fails.
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

// AddNodes adds nodes named "node-0", "node-1" and so on. Each node has the given number of GPUs,
// named "GPU-0-0" and so on.
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
	// Name is the name of the placer's client.
	Name   string
	began  time.Time
	w      *World
	cancel context.CancelFunc
	done   chan struct{}
	// Events contains the events that the placer reported.
	Events *placer.EventLog
}

// StartPlacer starts a placer. If several placers run, they do not know about each other, like
// agents without high_availability.
func (w *World) StartPlacer() *Placer { return w.StartPlacerAs("") }

// StartPlacerAs starts a placer with an ACL token.
func (w *World) StartPlacerAs(token string) *Placer {
	w.T.Helper()
	return w.start(token, func(string, *nomad.Client, *model.Config) {})
}

// start starts a placer. Before the placer starts, prepare can change its client and configuration.
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
	if p.Placer, err = placer.New(client, cfg, log, placer.Hooks{Ledger: w.rules.ledger(p.Name), Published: w.published(p.Name), Events: p.Events, Meter: w.opts.Meter}); err != nil {
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

// Stop ends the placer in the way that SIGTERM does, and waits until the placer has ended.
func (p *Placer) Stop() {
	p.cancel()
	<-p.done
}

// Kill ends the placer in the way that SIGKILL does. Requests that the placer sends later do not
// arrive.
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
		if !w.opts.Unwatched {
			w.rules.watch()
		}
	}
}

// Until lets virtual time pass until ok returns true, but for at most d. Until reports whether ok
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

// Broken returns the violations of rules that have occurred so far.
func (w *World) Broken() []string {
	var out []string
	for _, v := range w.Nomad.Violations() {
		out = append(out, v.String())
	}
	return append(out, w.rules.violations()...)
}

// Log returns the last lines of the placers' logs.
func (w *World) Log() string { return w.log.String() }

// say adds a line to the log.
func (w *World) say(format string, args ...any) {
	fmt.Fprintf(w.log, "%s [NOMAD] %s\n", time.Now().Format("2006-01-02T15:04:05.000Z"), fmt.Sprintf(format, args...))
}

// transcript returns an observer that logs the events in Nomad.
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

// lastLines is a writer that keeps only the last lines.
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
