// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// CheckLedger checks that the queue and the ledger agree, because each decision relies on both.
// Each running gang must have the same GPUs in both, and no GPU that a gang holds may count as
// free.
func CheckLedger(m *model.Model) error {
	var errs []error
	ids := func(gpus []int) string { return strings.Join(model.GPUIDs(m.View, gpus), " ") }
	for id, on := range m.Queue.Running() {
		at, held := on.GPUs(), m.View.Holds(model.KeyOf(id))
		t := m.ByID(id)
		if _, elastic := m.Queue.SizeOf(id); elastic && t != nil { // the order of members counts, too
			held = m.At(t).GPUs()
		} else {
			slices.Sort(at)
		}
		if !slices.Equal(at, held) {
			errs = append(errs, fmt.Errorf("the queue has %s on GPUs [%s], but the ledger has it on [%s]", id, ids(at), ids(held)))
		}
	}
	for i := range m.View.Cluster.NumGPUs() {
		if k := m.View.Owner(i); k != (cluster.JobKey{}) && m.View.Cluster.Available(i) {
			errs = append(errs, fmt.Errorf("%s holds GPU %s, but the GPU counts as free", k, m.View.Cluster.GPU(i).ID))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
