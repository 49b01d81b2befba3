// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// The ledger of who holds which GPU is the cycle's view: it follows from Nomad's state
// and from what is under way. The queue has its placements from there: see
// [Placer.syncQueue].

// checkLedger checks, for tests, what each decision rests on: each gang that the queue
// has running is there on the GPUs that it holds in the view, and no GPU that somebody
// holds counts as free.
func (p *Placer) checkLedger() error {
	var errs []error
	ids := func(gpus []int) string { return strings.Join(gpuIDs(p.view, gpus), " ") }
	for id := range p.queue.Running() {
		k, at := keyOf(id), p.queue.On(id)
		if held := p.view.Holds(k); !slices.Equal(at, held) {
			errs = append(errs, fmt.Errorf("the queue has %s on GPUs [%s], the view on [%s]", id, ids(at), ids(held)))
		}
	}
	for i := range p.view.Cluster.NumGPUs() {
		if k := p.view.Owner(i); k != (nomad.JobKey{}) && p.view.Cluster.Available(i) {
			errs = append(errs, fmt.Errorf("GPU %s is held for %s, and counts as free", p.view.Cluster.GPU(i).ID, k))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
