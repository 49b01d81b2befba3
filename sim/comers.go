// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import "fmt"

// comers are jobs that come after others: they are in the queue once those have finished.
type comers struct {
	lacks []int         // how many each lacks
	after map[int][]int // who comes after a job
}

// follow reads who comes after whom.
func (e *engine) follow() error {
	e.comers = comers{lacks: make([]int, len(e.Jobs)), after: map[int][]int{}}
	for i, j := range e.Jobs {
		for _, id := range j.After {
			of, ok := e.index[id]
			if !ok {
				return fmt.Errorf("job %q comes after job %q, which is not there", j.ID, id)
			}
			e.comers.lacks[i]++
			e.comers.after[of] = append(e.comers.after[of], i)
		}
	}
	return nil
}

// come is that job i is submitted.
func (e *engine) come(i int) {
	if i >= len(e.comers.lacks) || e.comers.lacks[i] == 0 {
		e.arrive(i)
	}
}

// finishedFor has those arrive that came after job i only.
func (e *engine) finishedFor(i int) {
	for _, c := range e.comers.after[i] {
		if e.comers.lacks[c]--; e.comers.lacks[c] == 0 && c < e.next {
			e.arrive(c)
		}
	}
}
