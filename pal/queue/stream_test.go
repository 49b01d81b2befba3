// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Short preemptible gangs keep coming. They run for less than twice their restart cost, so they are
// never stopped. A wider gang starts nevertheless: at once if its priority is higher. Otherwise the
// short gangs are ahead of it in the order, and it starts when it is overdue.
func TestStreamOfShortGangs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		preemptible, byPriority bool
		within                  time.Duration
	}{{false, true, 10 * time.Minute}, {true, true, 10 * time.Minute}, {true, false, DefaultMaxWait + 10*time.Minute}} {
		o := Default()
		o.JobPriority = c.byPriority
		q, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		cluster, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		s := &stream{t: t, world: world{queue: q, cluster: cluster, gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}, ends: map[string]time.Duration{}}
		if waited := s.waits(c.preemptible); waited > c.within {
			t.Errorf("preemptible %v, by priority %v: it waits for %v", c.preemptible, c.byPriority, waited)
		}
	}
}

type stream struct {
	t *testing.T
	world
	ends map[string]time.Duration
}

func (s *stream) submit(id string, gpus, priority int, preemptible bool) {
	s.gangs[id] = pal.SingleGPUs(id, pal.ClassA, gpus)
	if err := s.queue.Submit(s.now, Job{ID: id, Gang: s.gangs[id], Priority: priority, Submitted: s.now, Estimate: time.Minute, Preemptible: preemptible, RestartCost: time.Minute}); err != nil {
		s.t.Fatal(err)
	}
}

// waits submits a gang that needs all GPUs after an hour, and returns how long it waits; 100 hours
// mean that it never starts.
func (s *stream) waits(preemptible bool) time.Duration {
	for n := 0; s.now < 100*time.Hour; s.now += 15 * time.Second {
		for id, end := range s.ends {
			if end <= s.now {
				delete(s.ends, id)
				s.release(id)
				s.queue.Finished(s.now, id)
			}
		}
		s.submit(fmt.Sprint("short", n), 1, 50, preemptible)
		if n++; s.now == time.Hour {
			s.submit("wide", 4, 90, false)
		}
		for actions := s.queue.Decide(s.now, s.cluster); len(actions) > 0; actions = s.queue.Decide(s.now, s.cluster) {
			for _, a := range actions {
				if a.Job == "wide" {
					return s.now - time.Hour
				}
				s.carryOut(a)
				if delete(s.ends, a.Job); a.Kind == Start {
					s.ends[a.Job] = s.now + time.Minute
				}
			}
		}
	}
	return 100 * time.Hour
}
