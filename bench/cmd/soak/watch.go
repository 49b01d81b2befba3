// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/process"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// collectEvery is the number of checks between two garbage collections. Left alone, Nomad keeps
// garbage for hours, which is too long for a soak with compressed traffic.
const collectEvery = 5

// looks checks the cluster again and again.
func (s *soak) looks(ctx context.Context) error {
	var before map[string]string
	for k := 1; ; k++ {
		if err := cluster.Pause(ctx, time.Until(s.start.Add(time.Duration(k)*s.look))); err != nil {
			return err
		}
		l, drift, err := s.lookOnce(ctx)
		if err != nil {
			return err
		}
		for _, d := range both(drift, before) {
			s.report.fail("the same difference in two checks in a row, at %.0f s: %s", l.AtS, d)
		}
		before = drift
		s.report.Looks = append(s.report.Looks, l)
		if err := s.report.write(s.options.JSON); err != nil {
			return err
		}
		say(l.String())
		if k%collectEvery == 0 {
			if err := s.API().System().GarbageCollect(); err != nil {
				return fmt.Errorf("collecting garbage: %w", err)
			}
		}
	}
}

func (s *soak) lookOnce(ctx context.Context) (look, map[string]string, error) {
	s.whole.Lock()
	defer s.whole.Unlock()
	if err := ctx.Err(); err != nil {
		return look{}, nil, err
	}
	drift, nomad, m, err := compare(ctx, s.placer.URL(), s.API())
	if err != nil {
		return look{}, nil, fmt.Errorf("%w\n%s", err, s.placer.LogTail(30))
	}
	l := look{AtS: time.Since(s.start).Seconds(), PlacerPID: s.placer.PID(), GPUsHeld: len(nomad.holder),
		Waiting: nomad.waiting(), Unfinished: s.unfinished(), Goroutines: m.Goroutines, Drift: both(drift, drift)}
	if l.Placer, err = process.Of(l.PlacerPID); err != nil {
		return l, drift, err
	}
	for _, a := range s.Clients() {
		pids, err := a.PluginPIDs("nomad-device-pal")
		if err != nil {
			return l, drift, err
		}
		for _, pid := range pids {
			p, err := process.Of(pid)
			if err != nil {
				continue // the process was killed together with its client
			}
			l.Plugins++
			l.PluginRSSMB += p.RSSMB
			l.PluginFiles += p.Files
			l.PluginThreads += p.Threads
		}
	}
	if l.Plugins > 0 {
		l.PluginRSSMB /= float64(l.Plugins)
	}
	vars, _, err := s.API().Variables().PrefixList("nomad-pal/", (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return l, drift, fmt.Errorf("listing variables: %w", err)
	}
	l.Variables = len(vars)
	return l, drift, nil
}

// guard checks every second whether two allocations hold the same GPU. A double allocation can end
// before the next check of [soak.looks].
func (s *soak) guard(ctx, timed context.Context) error {
	known := map[string]bool{}
	for {
		if err := cluster.Pause(timed, time.Second); err != nil {
			return err
		}
		w, err := actual(ctx, s.API())
		if err != nil {
			return err
		}
		for _, id := range w.twice {
			if !known[id] {
				s.report.fail("%.0f s: two allocations hold GPU %s", time.Since(s.start).Seconds(), id)
			}
			known[id] = true
		}
	}
}

// causes counts the placer's recorded failures (at most 120) by cause and reason.
func (s *soak) causes(ctx context.Context) (map[string]int, error) {
	v, _, err := s.API().Variables().Peek("nomad-pal/failures", (&api.QueryOptions{}).WithContext(ctx))
	if err != nil || v == nil {
		return nil, err
	}
	var failures []struct{ Cause, Reason string }
	if err := json.Unmarshal([]byte(v.Items["json"]), &failures); err != nil {
		return nil, fmt.Errorf("reading the placer's failures: %w", err)
	}
	n := map[string]int{}
	for _, f := range failures {
		n[f.Cause+": "+gpuID.ReplaceAllString(f.Reason, "GPU …")]++
	}
	return n, nil
}

var gpuID = regexp.MustCompile(`GPU[- ][-0-9A-Za-z]+`)

// drained waits until every job has finished, and then makes a last check.
func (s *soak) drained(ctx context.Context) error {
	say("end of traffic: waiting for the jobs to finish")
	limit, cancel := context.WithTimeout(ctx, s.drain)
	defer cancel()
	err := cluster.Until(limit, "every job has finished", func(ctx context.Context) (string, error) {
		if n := s.unfinished(); n > 0 {
			return fmt.Sprintf("%d have not", n), cluster.Pause(ctx, time.Second)
		}
		return "", nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, g := range s.rendezvous.States() {
		if g.Finished {
			s.report.Finished++
		} else if err != nil {
			s.report.fail("%s: job %q did not finish", s.drain, g.Job)
		}
	}
	s.report.DurationS = time.Since(s.start).Seconds()
	var failed error
	if s.report.Causes, failed = s.causes(ctx); failed != nil {
		return failed
	}
	for _, c := range slices.Sorted(maps.Keys(s.report.Causes)) {
		if strings.HasPrefix(c, "unknown") {
			s.report.fail("the placer does not know why %d allocations failed: %s", s.report.Causes[c], c)
		}
	}
	l, drift, err := s.lookOnce(ctx)
	if err != nil {
		return err
	}
	for _, d := range both(drift, drift) {
		s.report.fail("drift after the end: %s", d)
	}
	s.report.Looks = append(s.report.Looks, l)
	return nil
}
