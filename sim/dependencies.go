// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import "fmt"

// dependencies are the jobs that come after others: they join the queue when the last of
// those has finished.
type dependencies struct {
	unfinished []int         // how many jobs each waits for still
	dependents map[int][]int // by job, those that come after it
}

// readDependencies reads which job comes after which.
func (e *engine) readDependencies() error {
	e.deps = dependencies{unfinished: make([]int, len(e.Jobs)), dependents: map[int][]int{}}
	for i, j := range e.Jobs {
		for _, id := range j.After {
			of, ok := e.index[id]
			if !ok {
				return fmt.Errorf("job %q comes after job %q, which is not there", j.ID, id)
			}
			e.deps.unfinished[i]++
			e.deps.dependents[of] = append(e.deps.dependents[of], i)
		}
	}
	return nil
}

// submit puts job i into the queue, unless it has to wait for others.
func (e *engine) submit(i int) {
	if i >= len(e.deps.unfinished) || e.deps.unfinished[i] == 0 {
		e.enqueue(i)
	}
}

// releaseDependents puts the submitted jobs into the queue that waited for job i alone.
func (e *engine) releaseDependents(i int) {
	for _, c := range e.deps.dependents[i] {
		if e.deps.unfinished[c]--; e.deps.unfinished[c] == 0 && c < e.next {
			e.enqueue(c)
		}
	}
}
