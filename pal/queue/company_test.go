// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// sharers is a queue and a cluster of shared GPUs with three parts each, and the gangs that run on
// the cluster.
type sharers struct {
	t   *testing.T
	q   *Queue
	c   *pal.Cluster
	now time.Duration
	on  map[string]pal.Placement
	of  map[string]pal.Gang
}

func newSharers(t *testing.T, gpus int) *sharers { return newSharersOn(t, "m", gpus) }

func newSharersOn(t *testing.T, model string, gpus int) *sharers {
	s := &sharers{t: t, on: map[string]pal.Placement{}, of: map[string]pal.Gang{}}
	n := pal.Node{ID: "n", Name: "n"}
	for i := range gpus {
		id := fmt.Sprint("gpu-", i)
		n.Groups = append(n.Groups, pal.DeviceGroup{Name: model, Shared: true, GPUs: []pal.GPU{{ID: id + "::0"}, {ID: id + "::1"}, {ID: id + "::2"}}})
	}
	var err error
	if s.c, err = pal.NewCluster([]pal.Node{n}, pal.TwoTier(1)); err != nil {
		t.Fatal(err)
	}
	if s.q, err = New(Default()); err != nil {
		t.Fatal(err)
	}
	return s
}

// start adds a running gang on one part of each of these GPUs.
func (s *sharers) start(id, name string, class pal.AppClass, gpus ...int) {
	s.t.Helper()
	g := pal.SingleGPUs(id, class, len(gpus))
	g.Sharing = &pal.Sharing{Beside: pal.AnyClass}
	may := make([]bool, s.c.Groups())
	for _, i := range gpus {
		may[i] = true
	}
	g.MemberSets[0].Eligible = may
	pl, ok := pal.Place(s.c, g, s.q.opt.Placement)
	if !ok {
		s.t.Fatalf("%s does not fit", id)
	}
	if err := s.q.Restore(Job{ID: id, Name: name, Gang: g}, pl, s.now); err != nil {
		s.t.Fatal(err)
	}
	s.c.Take(g, pl)
	s.on[id], s.of[id] = pl, g
	s.q.LookAround(s.now, s.c)
}

func (s *sharers) end(id string) {
	s.c.Release(s.of[id], s.on[id])
	s.q.Finished(s.now, id)
	s.q.LookAround(s.now, s.c)
}

func (s *sharers) pass(minutes int) {
	s.now += time.Duration(minutes) * time.Minute
	s.q.LookAround(s.now, s.c)
}

// run plays a run with this name that takes this many minutes. The whole time it has a neighbour of
// the class beside; "": none.
func (s *sharers) run(name string, minutes int, beside pal.AppClass) {
	s.t.Helper()
	if beside != "" {
		s.start("other", "other", beside, 0)
	}
	s.start("it", name, pal.ClassA, 0)
	s.pass(minutes)
	s.end("it")
	if beside != "" {
		s.end("other")
	}
}

// The run times of a name beside a class count after four runs alone and four runs beside the
// class.
func TestRunsBesideByHand(t *testing.T) {
	s := newSharers(t, 1)
	for n := range 6 {
		s.run("n", 100, "")
		s.run("n", 150, pal.ClassB)
		if n < 4 {
			s.run("n", 300, pal.ClassC) // three of these runs have another size, so they do not count
			if n > 0 {
				s.q.runTimes["n"].samples[len(s.q.samples("n"))-1].gpus = 2
			}
		}
		got := s.q.RunsBeside("n", 1)
		if n < 3 {
			if got != [pal.NumClasses]RunsBeside{} {
				t.Fatalf("after %d runs: %+v", n+1, got)
			}
			continue
		}
		if b := got[pal.ClassB.Index()]; b.Runs != n+1 || b.Alone != n+1 || math.Abs(b.Times-1.5) > 1e-9 {
			t.Errorf("after %d runs beside B: %+v", n+1, b)
		}
		if got[pal.ClassC.Index()].Runs != 0 || got[pal.ClassA.Index()].Runs != 0 {
			t.Errorf("too few runs count: %+v", got)
		}
	}
	slower, from := SlowerBeside(pal.ClassA, s.q.RunsBeside("n", 1))
	told := 1 + pal.Interference(pal.ClassA, pal.ClassB)
	if b := slower[pal.ClassB.Index()]; b < 1.5 || b > 1.55 || told < 2 {
		t.Errorf("six equal runs beside B took 1.5 times as long; the table says %v, both together %v", told, b)
	}
	if from[pal.ClassB] != "94 % from 6 runs beside this class and 6 runs alone; 6 % from the table" || len(from) != 1 || slower[pal.ClassC.Index()] != 0 {
		t.Errorf("from %v, %v", from, slower)
	}
	// The next placer restores what this one has learned.
	next, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	next.Remember(s.q.RunTimes())
	if got := next.RunsBeside("n", 1); got != s.q.RunsBeside("n", 1) {
		t.Errorf("after a restart: %+v", got)
	}
}

// Run times that vary widely count less than the table.
func TestRunsBesideThatDiffer(t *testing.T) {
	s := newSharers(t, 1)
	for _, minutes := range []int{1, 10, 100, 1000} {
		s.run("n", minutes, "")
		s.run("n", 4*minutes, pal.ClassB)
	}
	b := s.q.RunsBeside("n", 1)[pal.ClassB.Index()]
	if math.Abs(b.Times-4) > 1e-9 {
		t.Errorf("%+v", b)
	}
	if got, seen := b.Slower(pal.ClassA, pal.ClassB); got != 0 || seen != 0 {
		t.Errorf("beside B it takes %v times as long (seen: %v)", got, seen)
	}
}

// A run's company is the company that it had for at least three quarters of its run time. Time in
// the queue does not count.
func TestCompanyOfARun(t *testing.T) {
	const alone, besideA, besideD = int8(pal.Alone) + 1, 1, 4
	for _, c := range []struct {
		name string
		want int8
		play func(s *sharers)
	}{
		{"alone", alone, func(s *sharers) { s.pass(10) }},
		{"beside D at last", besideD, func(s *sharers) { s.pass(10); s.start("d", "", pal.ClassD, 0); s.pass(30) }},
		{"beside D for too short", 0, func(s *sharers) { s.pass(11); s.start("d", "", pal.ClassD, 0); s.pass(30) }},
		{"D leaves soon", alone, func(s *sharers) { s.start("d", "", pal.ClassD, 0); s.pass(1); s.end("d"); s.pass(9) }},
		{"a crowd", 0, func(s *sharers) {
			s.start("d", "", pal.ClassD, 0)
			s.start("e", "", pal.ClassD, 0)
			s.pass(10)
		}},
		{"the worse neighbour of two members", besideA, func(s *sharers) {
			s.start("a", "", pal.ClassA, 0)
			s.start("d", "", pal.ClassD, 1)
			s.pass(10)
		}},
		{"time in the queue is none of it", alone, func(s *sharers) {
			s.pass(10)
			s.c.Release(s.of["it"], s.on["it"])
			s.q.Stopped(s.now, "it")
			s.start("d", "", pal.ClassD, 0)
			s.pass(100)
			s.end("d")
			s.c.Take(s.of["it"], s.on["it"])
			s.q.Started(s.now, "it", s.on["it"])
			s.pass(10) // at the end of these minutes the Queue first sees its company again
			s.pass(40)
		}},
		{"it began before the queue", 0, func(s *sharers) { s.q.entries["it"].startedAt = -20 * time.Minute; s.pass(10) }},
	} {
		s := newSharers(t, 2)
		s.start("it", "n", pal.ClassA, 0, 1)
		c.play(s)
		s.end("it")
		if got := s.q.samples("n")[0].beside; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
