// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

const userVariable = "NOMAD_PAL_USER"

// me returns the user's name: NOMAD_PAL_USER or, if the variable is empty, the name of the ACL
// token or, without ACLs, the login name.
func me(b *base, client *nomad.Client) (string, error) {
	name := os.Getenv(userVariable)
	if name != "" {
		return name, nil
	}
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	switch {
	case aclDisabled(self, err):
		on, err := user.Current()
		if err != nil {
			return "", fmt.Errorf("finding out who is logged in: %w; set %s", err, userVariable)
		}
		return on.Username, nil
	case err != nil:
		return "", fmt.Errorf("asking Nomad for the name of the token: %w; set NOMAD_TOKEN, or %s", err, userVariable)
	}
	return cmp.Or(self.Name, self.AccessorID), nil
}

// mine returns the user's jobs among the given jobs.
func (b *base) mine(client *nomad.Client, jobs []palapi.JobStatus) ([]palapi.JobStatus, error) {
	name, err := me(b, client)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(jobs, func(j palapi.JobStatus) bool { return j.User != name }), nil
}

// jobs returns all jobs with GPUs, and the jobs to show: only the user's if mine is set, otherwise
// all.
func jobs(b *base, s *answers, mine bool) (all, shown []palapi.JobStatus, err error) {
	if all, err = s.Jobs(); err != nil || !mine {
		return all, all, err
	}
	shown, err = b.mine(s.nomad, slices.Clone(all))
	return all, shown, err
}

// myJobs returns the ids of the user's jobs with GPUs, in the command's namespace, that have not
// ended.
func myJobs(b *base, a *answers) (ids []string, err error) {
	jobs, err := a.Jobs()
	if err != nil {
		return nil, err
	}
	mine, err := b.mine(a.nomad, slices.DeleteFunc(jobs, func(j palapi.JobStatus) bool { return j.Namespace != b.namespace }))
	if err != nil {
		return nil, err
	}
	return each(mine, func(j palapi.JobStatus) string { return j.Job }), nil
}

// sayUser writes NOMAD_PAL_USER into the meta of a job with GPUs that names no user. If the job
// exists in Nomad and has not ended, its user stays as it is, because changed meta would restart
// its tasks.
func sayUser(b *base, client *nomad.Client, job *api.Job) error {
	name := os.Getenv(userVariable)
	h, err := rewrite.ParseHints(job)
	if name == "" || err != nil || h.User != "" || !rewrite.AsksGPUs(job) {
		return nil // other code reports errors in hints
	}
	is, err := client.Job(b.ctx, cluster.KeyOf(job))
	switch {
	case errors.Is(err, nomad.ErrNoJob) || nomad.Refused(err):
	case err != nil:
		return err
	case is != nil && !cluster.Dead(is):
		had := is.Meta[rewrite.UserHint]
		if had != "" {
			job.SetMeta(rewrite.UserHint, had)
		}
		return nil
	}
	job.SetMeta(rewrite.UserHint, name)
	return nil
}
