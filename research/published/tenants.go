// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package published

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Tenants returns the tenants of a trace; tenants with the most GPU time come first.
func Tenants(t trace.Trace) []string {
	work := map[string]float64{}
	for _, j := range t.Jobs {
		work[j.Tenant] += j.WorkS() * float64(j.GPUs)
	}
	names := slices.Sorted(maps.Keys(work))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(work[b], work[a]) })
	return names
}

// Of returns a trace with only the jobs of one tenant. It begins at the tenant's first submission.
func Of(t trace.Trace, tenant string) trace.Trace {
	one := t
	one.Name, one.Jobs = t.Name+", "+tenant, nil
	one.LeftOut = slices.DeleteFunc(slices.Clone(t.LeftOut), func(l trace.LeftOut) bool { return l.Tenant != tenant })
	for _, j := range t.Jobs {
		if j.Tenant == tenant {
			one.Jobs = append(one.Jobs, j)
		}
	}
	one.Rebase()
	return one
}
