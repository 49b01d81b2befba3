// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// What was learned fits into its variables, whatever the names, and comes back;
// what does not fit is cut evenly.
func TestPastFits(t *testing.T) {
	var history []queue.Past
	for i := range 200 {
		h := queue.Past{Name: fmt.Sprintf("%s-%d", strings.Repeat("n", 100), i), Last: int64(i)}
		for range 64 {
			h.Runs = append(h.Runs, [2]int64{int64(240 * time.Hour), 1024})
		}
		history = append(history, h)
	}
	names := 0
	for _, shard := range pastShardsOf(history) {
		names += len(shard)
		text, err := encodePast(shard)
		if err != nil || len(text) > pastBytes {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	}
	if names != len(history) {
		t.Errorf("%d names of %d", names, len(history))
	}
	long := make([]queue.Past, 300)
	for i := range long {
		long[i] = queue.Past{Name: strings.Repeat("x", 1000), Runs: [][2]int64{{1, 1}, {2, 2}}}
	}
	if text, err := encodePast(long); err != nil || len(text) > pastBytes {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
