// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rank

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Rendezvous is the server at which the ranks of each gang meet. When it closes, all ranks end.
type Rendezvous struct {
	listener net.Listener
	wait     time.Duration
	group    sync.WaitGroup

	mu    sync.Mutex
	gangs map[string]*gang
	conns map[net.Conn]bool
}

// gang is one gang's state; guarded by Rendezvous.mu.
type gang struct {
	Report
	members []*member
	running bool
	lost    int // ranks that ended because another rank of the gang disappeared
}

type member struct {
	hello
	conn    net.Conn
	arrived time.Time
	answers chan done // closed when the rank disappears
	left    bool
}

// Listen opens a rendezvous on a free loopback port. wait is how long a rank waits for the rest of
// its gang before it gives up.
func Listen(wait time.Duration) (*Rendezvous, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening rendezvous: %w", err)
	}
	r := &Rendezvous{listener: l, wait: wait, gangs: map[string]*gang{}, conns: map[net.Conn]bool{}}
	r.group.Go(r.accept)
	return r, nil
}

// Addr returns the address to which ranks connect.
func (r *Rendezvous) Addr() string { return r.listener.Addr().String() }

// Close ends all ranks and waits for them.
func (r *Rendezvous) Close() error {
	err := r.listener.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.group.Wait()
	return err
}

// Expect announces a gang. The rendezvous refuses ranks of jobs that were not announced.
func (r *Rendezvous) Expect(g Gang) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gangs[g.Job] = &gang{Report: Report{Gang: g}}
}

// Report returns what the gang has done so far.
func (r *Rendezvous) Report(job string) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.gangs[job].Report
	rep.Attempts = slices.Clone(rep.Attempts)
	return rep
}

// State is the current state of a gang.
type State struct {
	Job            string
	Present, Ranks int
	GPUs           int  // held by the ranks that are present
	Running        bool // complete, and in an attempt
	Finished       bool
	// Ended counts the ranks that gave up or lost their gang so far.
	Ended int
}

// States returns the states of all gangs, sorted by job.
func (r *Rendezvous) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []State
	for job, g := range r.gangs {
		s := State{Job: job, Present: len(g.members), Ranks: g.Ranks, Running: g.running, Finished: !g.Finished.IsZero(), Ended: g.GaveUp + g.lost}
		for _, m := range g.members {
			s.GPUs += len(m.GPUs)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b State) int { return strings.Compare(a.Job, b.Job) })
	return all
}

func (r *Rendezvous) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // the rendezvous is closed
		}
		r.mu.Lock()
		r.conns[c] = true
		r.mu.Unlock()
		r.group.Go(func() { r.serve(c) })
	}
}

// serve reads from one rank until it disappears.
func (r *Rendezvous) serve(c net.Conn) {
	defer func() {
		c.Close()
		r.mu.Lock()
		delete(r.conns, c)
		r.mu.Unlock()
	}()
	in := json.NewDecoder(bufio.NewReader(c))
	m := &member{conn: c, arrived: time.Now(), answers: make(chan done, 1)}
	if err := in.Decode(&m.hello); err != nil {
		return
	}
	if !r.join(m) {
		_ = m.say(order{Do: "exit", Code: ExitRefused})
		return
	}
	give := time.AfterFunc(r.wait, func() { r.giveUp(m) })
	defer give.Stop()
	defer r.leave(m)
	for {
		var d done
		if err := in.Decode(&d); err != nil {
			return
		}
		m.answers <- d
	}
}

func (m *member) say(o order) error { return json.NewEncoder(m.conn).Encode(o) }

// join adds a rank, and starts the gang if it is now complete. A rank with the group and index of
// an earlier rank replaces that rank.
func (r *Rendezvous) join(m *member) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.gangs[m.Job]
	if !ok {
		return false
	}
	g.members = append(slices.DeleteFunc(g.members, func(o *member) bool { return o.Group == m.Group && o.Index == m.Index }), m)
	if !g.Finished.IsZero() {
		_ = m.say(order{Do: "exit", Code: ExitDone})
		return true
	}
	r.begin(g)
	return true
}

// begin starts a complete gang. If the last attempt has not noticed yet that a rank was replaced,
// the gang starts when this attempt ends.
func (r *Rendezvous) begin(g *gang) {
	if g.running || len(g.members) < g.Ranks {
		return
	}
	now := time.Now()
	for _, o := range g.members {
		g.Waited += now.Sub(o.arrived) * time.Duration(max(1, len(o.GPUs)))
	}
	g.running = true
	members := slices.Clone(g.members)
	r.group.Go(func() { r.drive(g, members) })
}

func (r *Rendezvous) leave(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.left = true
	close(m.answers)
	g := r.gangs[m.Job]
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
}

// giveUp tells a rank to end, unless its gang is complete.
func (r *Rendezvous) giveUp(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangs[m.Job]
	if m.left || len(g.members) >= g.Ranks || !slices.Contains(g.members, m) {
		return
	}
	g.GaveUp++
	g.Waited += time.Since(m.arrived) * time.Duration(max(1, len(m.GPUs)))
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	_ = m.say(order{Do: "exit", Code: ExitGaveUp})
}

// drive runs the iterations of a complete gang until they are done or a rank disappears.
func (r *Rendezvous) drive(g *gang, members []*member) {
	a := Attempt{Start: time.Now(), GPUs: map[string][]string{}}
	for _, m := range members {
		a.GPUs[m.Node] = append(a.GPUs[m.Node], m.GPUs...)
	}
	iteration := g.Iteration
	if len(a.GPUs) > 1 {
		iteration = time.Duration(float64(iteration) * g.Penalty)
	}
	r.mu.Lock()
	left := g.Iterations - g.Progress
	first := order{Do: "start", Iteration: iteration, Class: g.Class}
	if g.Progress > 0 {
		first.Restart = g.Restart
	}
	r.mu.Unlock()
	slowest, err := barrier(members, first)
	due := a.Start.Add(first.Restart)
	for ; left > 0 && err == nil; left-- {
		if _, err = barrier(members, order{Do: "iterate", Late: time.Since(due)}); err == nil {
			a.Iterations++
		}
		due = due.Add(slowest)
	}
	r.end(g, a, members)
}

var errLost = errors.New("a rank disappeared")

// barrier sends the order to all ranks, waits until all have executed it, and returns the longest
// iteration time of a rank.
func barrier(members []*member, o order) (slowest time.Duration, err error) {
	for _, m := range members {
		if err := m.say(o); err != nil {
			return 0, errLost
		}
	}
	for _, m := range members {
		d, ok := <-m.answers
		if !ok {
			return 0, errLost
		}
		slowest = max(slowest, d.Iteration)
	}
	return slowest, nil
}

func (r *Rendezvous) end(g *gang, a Attempt, members []*member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.End = time.Now()
	g.running = false
	g.Progress += a.Iterations
	a.Finished = g.Progress == g.Iterations
	g.Attempts = append(g.Attempts, a)
	code := ExitLost
	if a.Finished {
		code = ExitDone
		g.Finished = a.End
	}
	for _, m := range members {
		if err := m.say(order{Do: "exit", Code: code}); err == nil && code == ExitLost {
			g.lost++
		}
	}
	// The rendezvous has told these ranks to exit, so they do not take part in the next attempt.
	g.members = slices.DeleteFunc(g.members, func(m *member) bool { return slices.Contains(members, m) })
	if !a.Finished {
		r.begin(g)
		return
	}
	for _, m := range g.members { // came back after the gang had finished
		_ = m.say(order{Do: "exit", Code: ExitDone})
	}
}
