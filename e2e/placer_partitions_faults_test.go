// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// breach is a fault of hosts, or of the network between them.
type breach struct {
	what    string // described in words
	rules   []cluster.Rule
	servers []int  // servers that may not answer meanwhile
	begin   func() // called at the beginning
	end     func() // called at the end, from any goroutine
	mend    func() // called by the test's goroutine at the end of the round
}

// partitionKinds are the kinds of faults. Those of an agent affect the active
// one.
var partitionKinds = []struct {
	kind string
	make func(p *partitions) breach
}{
	{"Nomad's leader cut off", func(p *partitions) breach { return p.ofServer(p.leader(), both) }},
	{"Nomad's leader hears nothing", func(p *partitions) breach { return p.ofServer(p.leader(), deaf) }},
	{"Nomad's leader is not heard", func(p *partitions) breach { return p.ofServer(p.leader(), mute) }},
	{"another server cut off", func(p *partitions) breach {
		return p.ofServer((p.leader()+1+p.rng.IntN(2))%3, both)
	}},
	{"the cluster in two halves", (*partitions).halves},
	{"agent cut off from Nomad's leader", func(p *partitions) breach {
		a, l := p.atWork(), server(p.leader())
		return breach{what: a + " and " + l, rules: between([]string{a}, []string{l})}
	}},
	{"agent cut off from everything", func(p *partitions) breach { return onHost(p.atWork(), both) }},
	{"agent hears nothing", func(p *partitions) breach { return onHost(p.atWork(), deaf) }},
	{"agent is not heard", func(p *partitions) breach { return onHost(p.atWork(), mute) }},
	{"client cut off", func(p *partitions) breach { return onHost(p.someClient(), both) }},
	{"client hears nothing", func(p *partitions) breach { return onHost(p.someClient(), deaf) }},
	{"client is not heard", func(p *partitions) breach { return onHost(p.someClient(), mute) }},
	{"two clients cut off", func(p *partitions) breach {
		k := p.rng.Perm(4)
		hosts := []string{p.Clients()[k[0]].Name, p.Clients()[k[1]].Name}
		return breach{what: strings.Join(hosts, ", "), rules: both(hosts)}
	}},
	{"packets of a host delayed by seconds", func(p *partitions) breach {
		h, d := p.someHost(), time.Duration(300+p.rng.IntN(2700))*time.Millisecond
		return breach{what: fmt.Sprintf("%s, %v each way", h, d), rules: []cluster.Rule{{From: []string{h}, Delay: d}, {To: []string{h}, Delay: d}}, servers: serversOf(h)}
	}},
	{"packets of a host lost", func(p *partitions) breach {
		h, l := p.someHost(), 0.1+0.4*p.rng.Float64()
		return breach{what: fmt.Sprintf("%s, %.0f %% each way", h, 100*l), rules: []cluster.Rule{{From: []string{h}, Loss: l}, {To: []string{h}, Loss: l}}, servers: serversOf(h)}
	}},
	{"agent's clock apart", (*partitions).clockApart},
	{"a server's disk full", (*partitions).diskFull},
}

func both(hosts []string) []cluster.Rule { return append(deaf(hosts), mute(hosts)...) }
func deaf(hosts []string) []cluster.Rule { return []cluster.Rule{{To: hosts, Cut: true}} }
func mute(hosts []string) []cluster.Rule { return []cluster.Rule{{From: hosts, Cut: true}} }

func between(a, b []string) []cluster.Rule {
	return []cluster.Rule{{From: a, To: b, Cut: true}, {From: b, To: a, Cut: true}}
}

func onHost(host string, rules func([]string) []cluster.Rule) breach {
	return breach{what: host, rules: rules([]string{host})}
}

func (p *partitions) ofServer(k int, rules func([]string) []cluster.Rule) breach {
	f := onHost(server(k), rules)
	f.servers = []int{k}
	return f
}

func server(k int) string { return fmt.Sprintf("s%d", k) }

func serversOf(host string) []int {
	for k := range 3 {
		if host == server(k) {
			return []int{k}
		}
	}
	return nil
}

// leader is the index of Nomad's leader, or of any server if there is none.
func (p *partitions) leader() int {
	for _, s := range p.Servers() {
		if at, err := s.API().Status().Leader(); err == nil {
			if k := slices.IndexFunc(p.Servers(), func(s *cluster.Agent) bool { return s.RPCAddr() == at }); k >= 0 {
				return k
			}
		}
	}
	return p.rng.IntN(3)
}

// leads is the index of the placer that says it leads, -1 if none does.
func (p *partitions) leads() int {
	return slices.IndexFunc(p.placers[:], func(b *bed) bool {
		var m struct{ Leader int }
		return json.Unmarshal([]byte(b.http("/v1/metrics")), &m) == nil && m.Leader == 1
	})
}

func (p *partitions) workingPlacer() int {
	if k := p.leads(); k >= 0 {
		return k
	}
	return p.rng.IntN(2)
}

func (p *partitions) atWork() string     { return p.placers[p.workingPlacer()].host }
func (p *partitions) someClient() string { return pick(p.rng, p.Clients()).Name }

// someHost is a random host; Nomad's leader and the active agent are more
// likely.
func (p *partitions) someHost() string {
	return pick(p.rng, []string{server(p.leader()), server(p.rng.IntN(3)), p.someClient(), p.someClient(), p.atWork(), p.placers[p.rng.IntN(2)].host})
}

// halves partitions the cluster: on one side are a server (Nomad's leader or another one), an agent
// and two clients.
func (p *partitions) halves() breach {
	k := p.rng.IntN(3)
	one := []string{server(k), p.placers[p.rng.IntN(2)].host}
	var other []string
	for i, n := range p.rng.Perm(4) {
		if name := p.Clients()[n].Name; i < 2 {
			one = append(one, name)
		} else {
			other = append(other, name)
		}
	}
	for _, h := range []string{"s0", "s1", "s2", "p0", "p1"} {
		if !slices.Contains(one, h) {
			other = append(other, h)
		}
	}
	return breach{what: strings.Join(one, ", "), rules: between(one, other), servers: []int{k}}
}

// clockApart restarts the active agent with a wrong clock until the end of the round.
func (p *partitions) clockApart() breach {
	k, shift := p.workingPlacer(), pick(p.rng, []int{-7200, -300, -20, 20, 300, 7200})
	return breach{
		what:  fmt.Sprintf("p%d, by %d s", k, shift),
		begin: func() { p.clock(k, shift) },
		mend:  func() { p.clock(k, 0) },
	}
}

func (p *partitions) clock(k, shift int) {
	p.t.Helper()
	p.placers[k].killAgent()
	p.placers[k].startAgent("nomad-pal-shifted", fmt.Sprintf("NOMAD_PAL_CLOCK=%d", shift))
}

// diskFull fills the disk of a server. If the server ends because of it, it is started again at the
// end of the round.
func (p *partitions) diskFull() breach {
	k := p.rng.IntN(3)
	if p.rng.IntN(2) == 0 {
		k = p.leader()
	}
	s := p.Servers()[k]
	filler := filepath.Join(s.DataDir(), "filler")
	return breach{
		what: s.Name, servers: []int{k},
		begin: func() { p.note("the disk of %s is full: %v", s.Name, fill(filler)) },
		end:   func() { _ = os.Remove(filler) },
		mend: func() {
			if s.PID() == 0 {
				p.note("%s has ended because its disk was full, and is started again", s.Name)
				p.start(s)
			}
		},
	}
}

// fill writes to a file until that fails, and returns the error.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	return err
}

// begin begins a fault of the next kind from a shuffled deck. The fault ends by
// itself.
func (p *partitions) begin() {
	p.t.Helper()
	if len(p.deck) == 0 {
		for _, k := range p.rng.Perm(len(partitionKinds)) {
			p.deck = append(p.deck, partitionKinds[k].kind)
		}
	}
	kind := p.deck[0]
	p.deck = p.deck[1:]
	k := slices.IndexFunc(partitionKinds, func(k struct {
		kind string
		make func(*partitions) breach
	}) bool {
		return k.kind == kind
	})
	f := partitionKinds[k].make(p)
	lasts := time.Duration(4000+p.rng.IntN(21000)) * time.Millisecond
	p.faults[kind]++
	p.note("fault: %s (%s), for %.0f s", kind, f.what, lasts.Seconds())
	p.active.Add(1)
	p.hits(f.servers, 1)
	remove := p.Network().Add(f.rules...)
	if f.begin != nil {
		f.begin()
	}
	if f.mend != nil {
		p.mended = append(p.mended, f.mend)
	}
	time.AfterFunc(lasts, func() {
		if f.end != nil {
			f.end()
		}
		remove()
		p.hits(f.servers, -1)
		p.observer.restart()
		p.active.Add(-1)
	})
}

// hits notes which servers are affected, and directs requests to the others.
func (p *partitions) hits(servers []int, by int32) {
	for _, k := range servers {
		p.hit[k].Add(by)
	}
	for k := range p.hit {
		if p.hit[k].Load() == 0 {
			p.Ask(k)
			return
		}
	}
}
