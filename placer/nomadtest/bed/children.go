// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// StartPlacerOfChildren starts a placer that also serves dispatched and periodic jobs.
func (w *World) StartPlacerOfChildren() *Placer {
	w.T.Helper()
	return w.start("", func(name string, client *nomad.Client, cfg *model.Config) {
		cfg.Children = true
		raw, err := api.NewClient(w.Nomad.Config(name, ""))
		if err != nil {
			w.T.Fatal(err)
		}
		client.ServeChildren(nomad.Children{
			Register: func(ctx context.Context, job *api.Job, index uint64) (uint64, error) {
				r, _, err := raw.Jobs().EnforceRegister(withoutPayload(job), index, overRPC(ctx, job))
				if err != nil {
					return 0, ofRPC(job, err)
				}
				return r.JobModifyIndex, nil
			},
			Plan: func(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error) {
				r, _, err := raw.Jobs().Plan(withoutPayload(job), false, overRPC(ctx, job))
				return r, err
			},
		})
	})
}

// withoutPayload returns a job in the form in which placer/rpc writes it, without the empty payload
// that events contain.
func withoutPayload(job *api.Job) *api.Job {
	own := *job
	if len(own.Payload) == 1 && own.Payload[0] == 0 {
		own.Payload = nil
	}
	return &own
}

// overRPC returns options that mark a request as a request to the RPC port of the servers.
func overRPC(ctx context.Context, job *api.Job) *api.WriteOptions {
	return (&api.WriteOptions{Namespace: *job.Namespace, Headers: map[string]string{nomadtest.RPC: "yes"}}).WithContext(ctx)
}

// ofRPC converts the error of a registration to the error that placer/rpc returns.
func ofRPC(job *api.Job, err error) error {
	var answer api.UnexpectedResponseError
	switch {
	case strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix):
		return fmt.Errorf("registering job %q: %w", *job.ID, nomad.ErrConflict)
	case errors.As(err, &answer) && !strings.Contains(answer.Body(), "rpc error"):
		return fmt.Errorf("registering job %q: %w", *job.ID, err)
	}
	return fmt.Errorf("registering job %q: %w: %w", *job.ID, nomad.ErrUnknownOutcome, err)
}

// Parameterized makes a job parameterized. Dispatches may set the meta key "seed".
func Parameterized(j *api.Job) {
	j.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "optional", MetaOptional: []string{"seed"}}
}

// Periodic returns a function that makes a job periodic.
func Periodic(cron string, overlap bool) func(*api.Job) {
	return func(j *api.Job) {
		prohibit := !overlap
		j.Periodic = &api.PeriodicConfig{Specs: []string{cron}, ProhibitOverlap: &prohibit}
	}
}

// Dispatch dispatches a job in the namespace "default", and returns the key of the dispatched job.
func (w *World) Dispatch(template string, meta map[string]string) (nomadtest.Key, error) {
	r, _, err := w.Author.Jobs().Dispatch(template, meta, nil, "", nil)
	if err != nil {
		return nomadtest.Key{}, err
	}
	return Key(r.DispatchedJobID), nil
}

// isTemplate reports whether the job is parameterized or periodic, so that it never runs itself.
func isTemplate(j *api.Job) bool {
	return j.Periodic != nil || j.ParameterizedJob != nil && !j.Dispatched
}

// ChildrenOf returns the jobs that exist and were dispatched from a job or started periodically.
func (w *World) ChildrenOf(template nomadtest.Key) (out []nomadtest.Key) {
	for _, k := range w.Nomad.Jobs() {
		if p := w.Nomad.Job(k).ParentID; k.Namespace == template.Namespace && p != nil && *p == template.ID {
			out = append(out, k)
		}
	}
	return out
}
