// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// A tenant's configuration can also limit each of its users. The terms are Slurm's.

// Payer says whose limits GPUs count towards: the limits of the tenant of a namespace, and the
// limits of a user.
type Payer struct {
	Tenant string // the namespace
	User   string // "": the jobs have no user
}

// compare orders payers.
func (p Payer) compare(o Payer) int {
	return cmp.Or(cmp.Compare(p.Tenant, o.Tenant), cmp.Compare(p.User, o.User))
}

// UserUse counts the GPUs and jobs of one user of a tenant. UserUse is computed only if users have
// limits.
type UserUse struct {
	User string `json:"user"` // "(none)" stands for jobs without a user
	// GPUs is the number of GPUs of the user's jobs that run or are about to run. Jobs is the
	// number of the user's jobs that run or are about to run.
	GPUs float64 `json:"gpus"`
	Jobs int     `json:"jobs"`
}

// noUser is the displayed user of jobs without a user. All jobs without a user count as jobs of one
// user.
const noUser = "(none)"

// ShownUser returns the displayed name of a user: the user, or noUser for "".
func ShownUser(user string) string { return cmp.Or(user, noUser) }

// countUser adds GPUs and jobs to the counts of a user in the tenant and its parents. Negative
// numbers subtract.
func (t *tenant) countUser(user string, gpus float64, jobs int) {
	user = ShownUser(user)
	for ; t != nil; t = t.parent {
		if t.MaxGPUsPerUser == 0 && t.MaxJobsPerUser == 0 {
			continue
		}
		u := t.users[user]
		u.User = user
		u.GPUs += gpus
		u.Jobs += jobs
		t.users[user] = u
		if u.GPUs == 0 && u.Jobs == 0 {
			delete(t.users, user)
		}
	}
}

// sortedUsers returns the tenant's users that hold GPUs or have jobs, sorted by name; nil if users
// have no limits.
func (t *tenant) sortedUsers() (all []UserUse) {
	for _, name := range slices.Sorted(maps.Keys(t.users)) {
		u := t.users[name]
		u.GPUs = reason.Rounded(u.GPUs)
		all = append(all, u)
	}
	return all
}

// brokenLimit is a limit of a tenant, or of one of its users, that a gang would exceed.
type brokenLimit struct {
	tenant *tenant
	user   string // "": the tenant's own limit
	jobs   bool   // held and most count jobs, not GPUs
	held   float64
	most   int
}

// overJobs returns the limit on the jobs of the gang's user that one more job would exceed; nil for
// none.
func (e *entry) overJobs() *brokenLimit {
	user := ShownUser(e.job.User)
	for t := e.of.tenant; t != nil; t = t.parent {
		most, has := t.MaxJobsPerUser, t.users[user].Jobs
		if most > 0 && has >= most {
			return &brokenLimit{tenant: t, user: user, jobs: true, held: float64(has), most: most}
		}
	}
	return nil
}
