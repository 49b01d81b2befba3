// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Ended reports whether an allocation has released its GPUs: its client has reported its end, or
// the client is lost.
func Ended(a *api.AllocationListStub) bool {
	return slices.Contains([]string{api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost}, a.ClientStatus)
}

// Allocations returns a condition for [Until]: exactly n allocations of the job have the client
// status.
func (c *Cluster) Allocations(job, status string, n int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		allocs, _, err := c.API().Jobs().Allocations(job, false, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		have := 0
		for _, a := range allocs {
			if a.ClientStatus == status {
				have++
			}
		}
		if have != n {
			return fmt.Sprintf("%d of %d allocations %s", have, n, status), nil
		}
		return "", nil
	}
}

// Deregister stops a job, or purges it. A job that does not exist is no error, because somebody
// else may have purged the job.
func (c *Cluster) Deregister(ctx context.Context, job string, purge bool) error {
	_, _, err := c.API().Jobs().Deregister(job, purge, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil && !strings.Contains(err.Error(), "not found") {
		return fmt.Errorf("deregistering %q: %w", job, err)
	}
	return nil
}

// Purge stops jobs, waits until none of their tasks runs, and purges them. After an immediate
// purge, Nomad would not report the end of the tasks, so a placer would keep their GPUs for as long
// as tasks can take to end.
func (c *Cluster) Purge(ctx context.Context, jobs ...string) error {
	var errs []error
	all := func(purge bool) {
		for _, job := range jobs {
			errs = append(errs, c.Deregister(context.WithoutCancel(ctx), job, purge))
		}
	}
	all(false)
	errs = append(errs, Until(ctx, "the jobs have ended", func(ctx context.Context) (string, error) {
		allocs, _, err := c.API().Allocations().List((&api.QueryOptions{}).WithContext(ctx))
		for _, a := range allocs {
			if slices.Contains(jobs, a.JobID) && !Ended(a) {
				return a.Name + " is " + a.ClientStatus, nil
			}
		}
		return "", err
	}))
	all(true)
	return errors.Join(errs...)
}
