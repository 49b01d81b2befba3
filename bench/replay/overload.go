// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Overload adds an hour of overload after a third of the jobs. The added jobs are the first of
// others whose total GPU time reaches work. They arrive at even intervals over the hour.
func Overload(jobs, others []Job, hour, work time.Duration) []Job {
	begin := jobs[len(jobs)/3].Submit
	n := 0
	for ; work > 0 && n < len(others); n++ {
		work -= others[n].Work() * time.Duration(others[n].GPUs())
	}
	all := slices.Clone(jobs)
	for i, j := range others[:n] {
		j.ID, j.Submit = fmt.Sprintf("overload-%s", j.ID), begin+hour*time.Duration(i)/time.Duration(n)
		all = append(all, j)
	}
	slices.SortStableFunc(all, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	return all
}
