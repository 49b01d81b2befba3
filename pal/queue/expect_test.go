// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// A gang that waits until services are stopped has no expected start, however long others waited.
func TestExpectBehindServices(t *testing.T) {
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	gang := pal.Gang{ID: "g", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 4}}}
	if err := q.Submit(0, Job{ID: "service", Gang: gang, Endless: true}); err != nil {
		t.Fatal(err)
	}
	for _, a := range q.Decide(0, c) {
		c.Take(gang, a.Placement)
		q.Started(0, a.Job, a.Placement)
	}
	q.forecasts.checks = enoughStarts
	if err := q.Submit(time.Minute, Job{ID: "waits", Gang: gang, Estimate: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if ws := q.Waiting(time.Minute, c); len(ws) != 1 || ws[0].Reason != reason.Services || ws[0].To != 0 {
		t.Errorf("%+v", ws)
	}
}

// However short earlier waits were, a gang that cannot start before the end of a run is not expected
// before that run can have ended.
func TestExpectInJamAfterShortWaits(t *testing.T) {
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	gang := pal.Gang{ID: "g", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 4}}}
	submit := func(at time.Duration, id string) {
		if err := q.Submit(at, Job{ID: id, Gang: gang, Estimate: 10 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	submit(0, "holds")
	for _, a := range q.Decide(0, c) {
		c.Take(gang, a.Placement)
		q.Started(0, a.Job, a.Placement)
	}
	q.forecasts.low, q.forecasts.high = -mostFactor, -mostFactor
	submit(time.Minute, "waits")
	if ws := q.Waiting(time.Minute, c); len(ws) != 1 || ws[0].From < 5*time.Hour || ws[0].To <= ws[0].From {
		t.Errorf("the only GPUs are held for 10 h: %+v", ws)
	}
}

// A gang's own wait does not change the prediction of its start, however long it waits. While no
// gang ends, its predicted range stays within the first range.
func TestExpectAloneInJam(t *testing.T) {
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	gang := pal.Gang{ID: "g", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 4}}}
	for _, id := range []string{"holds", "waits"} {
		if err := q.Submit(0, Job{ID: id, Gang: gang, Estimate: 10 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		for _, a := range q.Decide(0, c) {
			c.Take(gang, a.Placement)
			q.Started(0, a.Job, a.Placement)
		}
	}
	at := func(now time.Duration) Wait { return q.Waiting(now, c)[0] }
	first := at(0)
	for now := time.Minute; now < 5*time.Hour; now += time.Minute {
		q.Decide(now, c)
		if w := at(now); w.From < first.From || w.To < 10*time.Hour || w.To > first.To {
			t.Fatalf("after %v it is expected %v to %v, at first %v to %v", now, w.From, w.To, first.From, first.To)
		}
	}
}

// If a gang fits only where a gang ahead would also fit, it is not expected to start before the
// gang ahead, whether or not anything has been learned from earlier starts.
func TestExpectInLine(t *testing.T) {
	for _, known := range []int{0, enoughStarts} {
		c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		q, err := New(Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}})
		if err != nil {
			t.Fatal(err)
		}
		submit := func(at time.Duration, id string, members, gpus int) {
			gang := pal.Gang{ID: id, Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: members, GPUs: gpus}}}
			if err := q.Submit(at, Job{ID: id, Gang: gang, Submitted: at, Estimate: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		submit(0, "holds", 2, 4)
		for _, a := range q.Decide(0, c) {
			c.Take(pal.Gang{Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 2, GPUs: 4}}}, a.Placement)
			q.Started(0, a.Job, a.Placement)
		}
		submit(0, "first", 1, 4)
		submit(0, "second", 1, 4)
		now := time.Duration(30+4*known) * time.Minute // with known waits, the run should already have ended
		submit(now, "huge", 2, 4)
		submit(now, "small", 1, 1)
		q.forecasts.checks = known
		ws := q.Waiting(now, c)
		if len(ws) != 4 || ws[0].To == 0 {
			t.Fatalf("%+v", ws)
		}
		for i := range 2 {
			if ws[i+1].From < ws[i].From || ws[i+1].To < ws[i].To {
				t.Errorf("with %d known waits %s is expected %v to %v, %s behind it %v to %v", known, ws[i].Job, ws[i].From, ws[i].To, ws[i+1].Job, ws[i+1].From, ws[i+1].To)
			}
		}
		if _, alone, _ := q.Ask(now, c, q.entries["huge"].job, now); alone.From != ws[2].From || alone.To != ws[2].To {
			t.Errorf("asked about alone, huge is expected %v to %v, in the list %v to %v", alone.From, alone.To, ws[2].From, ws[2].To)
		}
	}
}

// A gang that a window keeps from starting is not expected to start before the window ends, however
// short the waits of others were. The reason says whether the window has begun.
func TestExpectBehindWindow(t *testing.T) {
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	for begins, want := range map[time.Duration]string{
		0:         "a window reserves GPUs that the job needs",
		time.Hour: "the job might still be running when a window reserves its GPUs",
	} {
		q, err := New(Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
		if err != nil {
			t.Fatal(err)
		}
		q.forecasts.low, q.forecasts.high = -mostFactor, -mostFactor
		q.SetWindows([]Window{{Name: "kernel", From: begins, To: 5 * time.Hour, GPUs: []int{0}}})
		gang := pal.Gang{ID: "g", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 4}}}
		if err := q.Submit(time.Minute, Job{ID: "waits", Gang: gang, Estimate: 2 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		ws := q.Waiting(2*time.Minute, c)
		if len(ws) != 1 || ws[0].Reason != reason.InWindow || ws[0].From != 5*time.Hour || ws[0].To <= ws[0].From {
			t.Errorf("window from %v: %+v", begins, ws)
		}
		if why := ws[0].Why().String(); why != want {
			t.Errorf("window from %v: %q, want %q", begins, why, want)
		}
	}
}

// models is a queue, and a cluster of two nodes with four GPUs each, of different models.
type models struct {
	t *testing.T
	q *Queue
	c *pal.Cluster
	// eligible has the device groups of each model.
	eligible [2][]bool
}

func newModels(t *testing.T) *models {
	t.Helper()
	fast, slow := testNodes(1, "")[0], testNodes(1, "")[0]
	slow.ID, slow.Name = "slow", "slow"
	slow.Groups = []pal.DeviceGroup{{Name: "slow", GPUs: []pal.GPU{{ID: "s0"}, {ID: "s1"}, {ID: "s2"}, {ID: "s3"}}}}
	c, err := pal.NewCluster([]pal.Node{fast, slow}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	return &models{t, q, c, [2][]bool{{true, false}, {false, true}}}
}

// on returns a gang with one member that requests GPUs of this model.
func (m *models) on(id string, model, gpus int) pal.Gang {
	return pal.Gang{ID: id, Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: gpus, Eligible: m.eligible[model]}}}
}

func (m *models) submit(id string, model, gpus int, runs time.Duration) {
	m.t.Helper()
	if err := m.q.Submit(0, Job{ID: id, Gang: m.on(id, model, gpus), Estimate: runs}); err != nil {
		m.t.Fatal(err)
	}
}

// expectStart checks the range in which a gang is expected to start, given the first end that it
// needs and the estimate of its start.
func expectStart(t *testing.T, q *Queue, c *pal.Cluster, now time.Duration, id string, first, estimate time.Duration) {
	t.Helper()
	want := q.forecasts.rangeOf(now, estimate, first)
	for _, w := range q.Waiting(now, c) {
		if w.Job == id && (w.From != want.from || w.To != want.to) {
			t.Errorf("%s (%s) is expected to start in %v–%v, want %v–%v", id, w.Why(), w.From, w.To, want.from, want.to)
		}
	}
}

// GPUs that a gang cannot use do not bring its start forward.
func TestExpectOnAnotherModel(t *testing.T) {
	m := newModels(t)
	m.submit("long", 0, 4, 10*time.Hour)
	m.submit("short", 1, 4, time.Hour)
	for _, a := range m.q.Decide(0, m.c) {
		model := map[string]int{"short": 1}[a.Job]
		m.c.Take(m.on(a.Job, model, 4), a.Placement)
		m.q.Started(0, a.Job, a.Placement)
	}
	m.submit("first", 0, 2, time.Hour)
	m.submit("second", 1, 2, time.Hour)
	m.submit("third", 1, 3, time.Hour)
	expectStart(t, m.q, m.c, 0, "first", 5*time.Hour, 10*time.Hour)
	expectStart(t, m.q, m.c, 0, "second", 30*time.Minute, time.Hour)
	expectStart(t, m.q, m.c, 0, "third", 30*time.Minute, 2*time.Hour)
}

// A gang that is refused the free parts of GPUs is expected to start when a bad neighbour ends, and
// not when another gang ends.
func TestExpectRefused(t *testing.T) {
	s := newSharersOn(t, "V100", 2)
	s.submitted("a1", pal.ClassA, func(j *Job) { j.Estimate = 3 * time.Hour })
	s.submitted("a2", pal.ClassA, func(j *Job) { j.Estimate = 6 * time.Hour })
	s.wants("two idle GPUs", "a1", "a2")
	s.submitted("calm", pal.ClassD, func(j *Job) { j.Estimate = 10 * time.Minute })
	s.wants("D beside A", "calm")
	s.submitted("first", pal.ClassA, func(j *Job) { j.Estimate = time.Hour })
	s.submitted("second", pal.ClassA, func(j *Job) { j.Estimate = time.Hour })
	s.wants("A beside A")
	expectStart(t, s.q, s.c, s.now, "first", 90*time.Minute, 3*time.Hour)
	expectStart(t, s.q, s.c, s.now, "second", 90*time.Minute, 3*time.Hour)
}

// All GPUs of a member must be on one node. GPUs that come free one by one on different nodes do
// not bring the start of such a member forward.
func TestExpectOnOneNode(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	one := func(id string, gpus int) pal.Gang {
		return pal.Gang{ID: id, Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: gpus}}}
	}
	for u, hours := range []time.Duration{1, 5, 20, 20, 1, 20, 20, 20} {
		j := Job{ID: fmt.Sprint("runs", u), Gang: one("runs", 1), Estimate: hours * time.Hour}
		pl := pal.Predict(c, j.Gang, []pal.Member{{Group: u / 4, GPUs: []int{u}}})
		c.Take(j.Gang, pl)
		if err := q.Restore(j, pl, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Submit(0, Job{ID: "waits", Gang: one("waits", 2), Estimate: time.Hour}); err != nil {
		t.Fatal(err)
	}
	expectStart(t, q, c, 0, "waits", 150*time.Minute, 5*time.Hour)
}
