// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// submit submits a job that requests one part of a GPU.
func (s *sharers) submit(id string, class pal.AppClass) {
	s.t.Helper()
	s.submitted(id, class, func(*Job) {})
}

func (s *sharers) submitted(id string, class pal.AppClass, but func(*Job)) {
	s.t.Helper()
	g := pal.SingleGPUs(id, class, 1)
	g.Sharing = &pal.Sharing{Beside: pal.AnyClass}
	j := Job{ID: id, Name: id, Gang: g, Submitted: s.now}
	but(&j)
	if err := s.q.Submit(s.now, j); err != nil {
		s.t.Fatal(err)
	}
	s.of[id] = j.Gang
}

// starts carries out the queue's decisions, and returns the gangs that start.
func (s *sharers) starts() (ids []string) {
	s.t.Helper()
	for _, a := range s.q.Decide(s.now, s.c) {
		if a.Kind != Start {
			s.t.Fatalf("%+v", a)
		}
		s.c.Take(s.of[a.Job], a.Placement)
		s.q.Started(s.now, a.Job, a.Placement)
		s.on[a.Job] = a.Placement
		ids = append(ids, a.Job)
	}
	return ids
}

func (s *sharers) wants(what string, ids ...string) {
	s.t.Helper()
	if got := s.starts(); !slices.Equal(got, ids) {
		s.t.Errorf("%s: %q start, want %q", what, got, ids)
	}
}

// waits checks the reason for which a gang waits, and the number of free parts in it.
func (s *sharers) waits(id string, want reason.Kind, free int) {
	s.t.Helper()
	for _, w := range s.q.Waiting(s.now, s.c) {
		if why := w.Why(); w.Job == id {
			if w.Reason != want || why.Kind != want || why.Free != free {
				s.t.Errorf("%s waits for %s, want %s with %d free", id, why, want, free)
			}
			return
		}
	}
	s.t.Errorf("%s does not wait", id)
}

// If a gang cannot use the free parts of GPUs, the reason names pal_neighbours, or that the members
// must not share a GPU. Lack of CPU, memory or disk is not the cause.
func TestUnusableParts(t *testing.T) {
	s := newSharersOn(t, "V100", 2)
	s.submit("there", pal.ClassD)
	s.submitted("shy", pal.ClassD, func(j *Job) { j.Gang.Sharing = &pal.Sharing{} })
	s.wants("an idle GPU for each", "there", "shy")
	s.submitted("none", pal.ClassD, func(j *Job) { j.Gang.Sharing = &pal.Sharing{} })
	s.submitted("pair", pal.ClassD, func(j *Job) {
		j.Gang = pal.SingleGPUs("pair", pal.ClassD, 2)
		j.Gang.Sharing = &pal.Sharing{Beside: pal.AnyClass}
	})
	s.wants("no idle GPU is left")
	for i, want := range []string{
		"needs 1 GPU; 4 are free, but this job and the jobs on these GPUs do not accept each other as neighbours (pal_neighbours)",
		"needs 2 GPUs; 4 are free, but the job's members must not share a GPU (pal_neighbours = \"any,self\" allows it)",
	} {
		if got := s.q.Waiting(s.now, s.c)[i].Why().String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A gang whose only possible neighbours are bad waits for better ones, and gangs behind it can
// start before it. When it is overdue, it takes any part.
func TestRefusedGang(t *testing.T) {
	s := newSharersOn(t, "V100", 1)
	s.submit("there", pal.ClassA)
	s.wants("an idle GPU", "there")
	s.submit("next", pal.ClassA)
	s.wants("A beside A")
	s.waits("next", reason.Refused, 2)
	s.submit("calm", pal.ClassD)
	s.wants("D beside A", "calm")
	s.waits("next", reason.Refused, 1)
	s.end("there")
	s.wants("A beside D", "next")

	s.submit("late", pal.ClassA)
	s.pass(int(DefaultMaxWait/time.Minute) - 1)
	s.wants("A beside A and D")
	s.waits("late", reason.Refused, 1)
	s.pass(1)
	s.wants("it is overdue", "late")
}

// A question does not change who counts as a neighbour. The cluster can describe a running gang
// otherwise than the queue does, for example while the placer has not yet accepted an edit.
func TestAnswersKeepNeighbours(t *testing.T) {
	s := newSharersOn(t, "V100", 1)
	hour := func(j *Job) { j.Estimate = time.Hour }
	s.submitted("there", pal.ClassA, hour)
	s.wants("an idle GPU", "there")
	s.c.SetOccupant(s.on["there"].GPUs()[0], pal.Occupant{Gang: "there", Sharing: pal.Sharing{Beside: pal.AnyClass, Stays: true}, Parts: 1})
	s.submitted("next", pal.ClassA, hour)
	s.submitted("whole", pal.ClassA, func(j *Job) {
		j.Gang.MemberSets[0].GPUs, j.Estimate = 3, time.Hour
	})
	for range 2 {
		s.waits("next", reason.Next, 0)
	}
}

// Without RefuseBad, the same gang starts at once.
func TestRefusingNobody(t *testing.T) {
	s := newSharersOn(t, "V100", 1)
	s.q.opt.Placement.RefuseBad = false
	s.submit("there", pal.ClassA)
	s.submit("next", pal.ClassA)
	s.wants("A beside A", "there", "next")
}

// An overdue gang in its turn uses the part that is kept for it, whatever its neighbours are.
func TestOverdueKeepsAnyPart(t *testing.T) {
	s := newSharersOn(t, "V100", 1)
	for _, id := range []string{"a", "b", "c"} {
		s.submit(id, pal.ClassB)
	}
	s.wants("an idle GPU", "a", "b", "c")
	s.submit("late", pal.ClassA)
	s.pass(int(DefaultMaxWait / time.Minute))
	s.wants("all parts are taken")
	s.waits("late", reason.GPUs, 0)
	s.submit("other", pal.ClassB)
	s.end("a")
	s.waits("late", reason.Next, 0) // the answer is right even before the next Decide
	if _, by, ok := s.q.Look(s.c, s.of["late"]); !ok || by.RefuseBad {
		t.Errorf("search for the gang whose turn it is: fits %v, parts refused %v", ok, by.RefuseBad)
	}
	s.wants("it is overdue", "late")
}

// stops checks that the queue decides to stop one gang for another, and nothing else.
func (s *sharers) stops(what, victim, by string) {
	s.t.Helper()
	as := s.q.Decide(s.now, s.c)
	if len(as) != 1 || as[0].Kind != Preempt || as[0].Job != victim || as[0].For != by {
		s.t.Fatalf("%s: %v, want that %s is stopped for %s", what, as, victim, by)
	}
}

// An overdue gang for which another gang has been stopped takes the part, whatever its neighbours are.
func TestOverdueWithAClaimTakesAnyPart(t *testing.T) {
	s := newSharersOn(t, "V100", 1)
	for _, id := range []string{"a", "b", "c"} {
		s.submitted(id, pal.ClassB, func(j *Job) { j.Preemptible = id == "a" })
	}
	s.wants("an idle GPU", "a", "b", "c")
	s.submit("late", pal.ClassA)
	s.pass(int(DefaultMaxWait / time.Minute))
	s.stops("it is overdue", "a", "late")
	s.q.Stopped(s.now, "a")
	s.c.Release(s.of["a"], s.on["a"])
	s.wants("the part is free", "late")
}

// If others are being stopped for a gang because of its priority, not in its turn, the gang does
// not start beside them before they have left.
func TestClaimKeepsNoBadNeighbour(t *testing.T) {
	s := newSharersOn(t, "V100", 1)
	s.submitted("a", pal.ClassA, func(j *Job) { j.Preemptible = true })
	s.wants("an idle GPU", "a")
	s.pass(60)
	s.submitted("first", pal.ClassA, func(j *Job) { j.Priority = 9 })
	s.stops("of a higher priority", "a", "first")
	s.wants("a still runs there")
	s.q.Stopped(s.now, "a")
	s.c.Release(s.of["a"], s.on["a"])
	s.wants("a has gone", "first")
}
