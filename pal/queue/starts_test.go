// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// TestNoGrowthBeforeAllWereTried: elastic gangs do not get the GPUs that are still free in a pass
// that reaches its limit of starts, because the pass has not tried all waiting gangs.
func TestNoGrowthBeforeAllWereTried(t *testing.T) {
	w := &world{queue: newTestLine(t, Options{Order: FIFO, Starts: 1, Placement: pal.Policy{Name: pal.PAL}}),
		gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	var err error
	if w.cluster, err = pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"first 2", "elastic 4 least=1 est=600"} {
		if err := w.submit(s); err != nil {
			t.Fatal(err)
		}
	}
	w.decide()
	w.now = time.Hour
	w.report("end", "first")
	for i := range 2 {
		if err := w.submit(fmt.Sprintf("j%d 1", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := w.decide(), "start j0 on 0\nstart j1 on 1\n"; got != want {
		t.Errorf("decided\n%swant\n%s", got, want)
	}
}
