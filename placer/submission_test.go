// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// registry stands for Nomad: it notes what it was asked to register.
type registry struct {
	pinned []bool
	isNew  []bool
	err    error
}

func (r *registry) register(_ context.Context, job *api.Job, isNew bool) (*api.JobRegisterResponse, error) {
	_, pinned := rewrite.Pinned(job)
	r.pinned, r.isNew = append(r.pinned, pinned), append(r.isNew, isNew)
	if r.err != nil && isNew {
		return nil, r.err
	}
	return &api.JobRegisterResponse{JobModifyIndex: 5000}, nil
}

// submitOne has a job registered and returns the answer.
func submitOne(t *testing.T, p *Placer, job *api.Job, r *registry) submitted {
	t.Helper()
	s := &submission{job: job, register: r.register, answer: make(chan submitted, 1)}
	p.arriving = append(p.arriving, s)
	p.hooks.AfterCommit = func(nomad.JobKey) {
		if s.answered {
			t.Error("the author was told before the hook was called that kills the placer in tests")
		}
	}
	now := time.Now()
	p.track()
	p.syncLine(now)
	p.join(now)
	if err := p.decide(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-s.answer:
		return a
	default:
		t.Fatal("not answered")
	}
	return submitted{}
}

// A job that comes to the placer is registered once: with its GPUs where it
// starts, with its gate where it waits or Nomad has one of that name already;
// and what Nomad refuses holds nothing.
func TestSubmission(t *testing.T) {
	denied := errors.New("permission denied")
	for _, c := range []struct {
		name   string
		full   bool  // no GPU is free
		there  bool  // Nomad has a job of that id, and the placer knows
		err    error // of registering it with its GPUs
		pinned []bool
		want   error
		phase  Phase // afterwards, "" for not known
	}{
		{"starts", false, false, nil, []bool{true}, nil, Starting},
		{"waits", true, false, nil, []bool{false}, nil, Waiting},
		{"is there already", true, true, nil, []bool{false}, nil, Waiting},
		{"is there when it is registered", false, false, nomad.ErrConflict, []bool{true, false}, nil, Waiting},
		{"is refused", false, false, denied, []bool{true}, denied, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, prof, err := benchState(2, 0)
			if err != nil {
				t.Fatal(err)
			}
			if c.full {
				fill(s, 0, 2)
			}
			job := rewrite.Gate(benchJob("j", 1))
			if c.there {
				s.PutJob(job)
			}
			p := newPlacer(t)
			p.profile, p.state = prof, s
			free := p.freeAfterLook(t)
			r := &registry{err: c.err}
			a := submitOne(t, p, job, r)
			if !errors.Is(a.err, c.want) {
				t.Errorf("answer: %v, want %v", a.err, c.want)
			}
			if len(r.pinned) != len(c.pinned) {
				t.Fatalf("registered %v, want %v", r.pinned, c.pinned)
			}
			for i, pinned := range c.pinned {
				if r.pinned[i] != pinned || r.isNew[i] != pinned {
					t.Errorf("registering %d: pinned %v, new only %v, want %v", i, r.pinned[i], r.isNew[i], pinned)
				}
			}
			known := p.jobs[nomad.KeyOf(job)]
			switch {
			case c.phase == "" && (known != nil || p.view.Cluster.FreeGPUs() != free):
				t.Errorf("it is known, or holds GPUs: %v, %d of %d free", known, p.view.Cluster.FreeGPUs(), free)
			case c.phase != "" && (known == nil || known.Phase != c.phase || known.submission != nil):
				t.Errorf("it stands as %+v, want %s", known, c.phase)
			}
			if len(p.joined) != 0 {
				t.Error("somebody is still to be answered")
			}
		})
	}
}

func (p *Placer) freeAfterLook(t *testing.T) int {
	t.Helper()
	if err := p.look(time.Now()); err != nil {
		t.Fatal(err)
	}
	return p.view.Cluster.FreeGPUs()
}

// Who does not wait any longer has not submitted; who waits is answered when
// the placer's session ends.
func TestSubmitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlacer(t)
		submit := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := p.Submit(ctx, benchJob("j", 1), func(context.Context, *api.Job, bool) (*api.JobRegisterResponse, error) {
					t.Error("registered")
					return nil, nil
				})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := submit(short) // nobody takes it
		if err := <-before; !errors.Is(err, ErrNotSubmitted) {
			t.Errorf("nobody there: %v", err)
		}
		short, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		waited := submit(short)
		p.takeSubmissions()
		if err := <-waited; !errors.Is(err, ErrNotSubmitted) {
			t.Errorf("given up: %v", err)
		}
		p.join(time.Now())
		if len(p.joined) != 0 {
			t.Error("the placer took in what was given up")
		}
		ended := submit(t.Context())
		p.letGo()
		if err := <-ended; !errors.Is(err, ErrNotSubmitted) {
			t.Errorf("the session ended: %v", err)
		}
	})
}
