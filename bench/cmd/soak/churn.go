// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// placerConfig is the default configuration, with a free port and more frequent full reads. Full
// reads remove the records of jobs that no longer exist, so they must be more frequent if the
// traffic is compressed.
const placerConfig = "http {\n  bind_port = 0\n}\n"

// How long disturbed clients, placers and GPUs stay down.
const (
	clientDown = 15 * time.Second
	placerDown = 5 * time.Second
)

// startPlacer starts an agent and waits until it leads.
func (s *soak) startPlacer(ctx context.Context) error {
	p, err := s.StartPlacer(cluster.PlacerOptions{Config: placerConfig})
	if err != nil {
		return err
	}
	s.placer = p
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := p.Serves(ctx); err != nil {
		return err
	}
	return cluster.Until(ctx, "the placer leads", func(ctx context.Context) (string, error) {
		var m metrics
		if err := read(ctx, p.URL()+"/v1/metrics", &m); err != nil || m.Leader == 0 {
			return "it does not lead", err
		}
		return "", nil
	})
}

// disturb kills a client, kills the placer, and makes a GPU unhealthy, in turn. In the second half
// of the run, the placer is not killed, so that its resource use can be measured. Every disturbance
// ends before the cluster drains.
func (s *soak) disturb(ctx, timed context.Context) error {
	r := rand.New(rand.NewPCG(s.options.Seed, 2))
	for k := 1; ; k++ {
		at := time.Duration(k) * s.churn
		if err := cluster.Pause(timed, time.Until(s.start.Add(at))); err != nil {
			return err
		}
		kind := k % 3
		if kind == 2 && at > s.duration/2 {
			kind = 1
		}
		var err error
		switch kind {
		case 1:
			err = s.killClient(ctx, r.IntN(s.options.Nodes))
		case 2:
			err = s.killPlacer(ctx)
		default:
			err = s.makeUnhealthy(ctx, r.IntN(len(s.GPUs.All)))
		}
		if err != nil {
			return err
		}
	}
}

func (s *soak) note(format string, args ...any) {
	e := event{time.Since(s.start).Seconds(), fmt.Sprintf(format, args...)}
	s.report.event(e)
	say(fmt.Sprintf("%4.0f s: %s", e.AtS, e.What))
}

func (s *soak) killClient(ctx context.Context, n int) error {
	a := s.Clients()[n]
	s.note("client %s killed", a.Name)
	if err := a.Kill(ctx); err != nil {
		return err
	}
	if err := cluster.Pause(ctx, clientDown); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := a.Start(ctx); err != nil {
		return err
	}
	s.note("client %s runs again", a.Name)
	return nil
}

func (s *soak) killPlacer(ctx context.Context) error {
	s.whole.Lock()
	defer s.whole.Unlock()
	s.note("placer killed")
	if err := errors.Join(s.placer.Kill(), cluster.Pause(ctx, placerDown)); err != nil {
		return err
	}
	began := time.Now()
	if err := s.startPlacer(ctx); err != nil {
		return err
	}
	s.note("placer leads again, %.1f s after its start", time.Since(began).Seconds())
	return nil
}

// makeUnhealthy makes a GPU unhealthy, and waits until the placer sees this.
func (s *soak) makeUnhealthy(ctx context.Context, gpu int) error {
	u := s.GPUs.All[gpu]
	s.note("GPU %s of gpu-%02d becomes unhealthy", u.ID, u.Node)
	if err := s.MakeUnhealthy(u.Node, u.ID); err != nil {
		return err
	}
	began := time.Now()
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := cluster.Until(limit, "the placer knows that "+u.ID+" is unhealthy", func(ctx context.Context) (string, error) {
		s.whole.Lock()
		w, _, err := believed(ctx, s.placer.URL())
		s.whole.Unlock()
		if err == nil && !w.unhealthy[u.ID] {
			return "it does not know", cluster.Pause(ctx, time.Second)
		}
		if err != nil {
			return "", err
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	s.note("the placer noticed the fault after %.1f s", time.Since(began).Seconds())
	if err := cluster.Pause(ctx, s.churn/4); err != nil {
		return err
	}
	s.note("GPU %s becomes healthy", u.ID)
	return s.MakeUnhealthy(u.Node, "")
}
