// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import "fmt"

// dependencies tracks which jobs come after which other jobs. A job joins the queue when the last
// job before it has finished.
type dependencies struct {
	unfinished []int         // number of jobs that each job still waits for
	dependents map[int][]int // by job: the jobs that come after it
}

// readDependencies reads which job comes after which other job.
func (e *engine) readDependencies() error {
	e.deps = dependencies{unfinished: make([]int, len(e.Jobs)), dependents: map[int][]int{}}
	for i, j := range e.Jobs {
		for _, id := range j.After {
			of, ok := e.index[id]
			if !ok {
				return fmt.Errorf("job %q comes after job %q, which is not in the trace", j.ID, id)
			}
			e.deps.unfinished[i]++
			e.deps.dependents[of] = append(e.deps.dependents[of], i)
		}
	}
	return nil
}

// submit puts job i into the queue, unless it must wait for other jobs.
func (e *engine) submit(i int) {
	if i >= len(e.deps.unfinished) || e.deps.unfinished[i] == 0 {
		e.enqueue(i)
	}
}

// releaseDependents queues each submitted job for which job i was the last unfinished predecessor.
func (e *engine) releaseDependents(i int) {
	for _, c := range e.deps.dependents[i] {
		if e.deps.unfinished[c]--; e.deps.unfinished[c] == 0 && c < e.next {
			e.enqueue(c)
		}
	}
}
