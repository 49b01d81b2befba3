// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"slices"
	"testing"
)

// Touched lists the changes since a mark. The state remembers a bounded number of changes; if the
// mark is older, the changes are unknown.
func TestTouched(t *testing.T) {
	s := NewState()
	key := func(i int) JobKey { return JobKey{Namespace: "default", ID: fmt.Sprint(i)} }
	_, old, _ := s.Touched(Mark{of: &s.touched})
	for i := range 2*touchesKept + 10 {
		s.touch(key(i % 7))
	}
	if len(s.jobs) > touchesKept {
		t.Errorf("%d changes are kept, more than %d", len(s.jobs), touchesKept)
	}
	_, mark, known := s.Touched(old)
	if known {
		t.Error("the changes since the first mark are still known")
	}
	s.touch(key(8))
	s.touch(key(9))
	keys, _, known := s.Touched(mark)
	if last := key((2*touchesKept + 9) % 7); !known || !slices.Equal(keys, []JobKey{last, key(8), key(9)}) {
		t.Errorf("since the last mark %v, %v; want %v, 8 and 9", keys, known, last)
	}
	_, mark, _ = s.Touched(mark)
	if keys, _, known := s.Touched(mark); !known || len(keys) > 0 {
		t.Errorf("without a change %v, %v", keys, known)
	}
	s.touch(key(9))
	if keys, _, known := s.Touched(mark); !known || !slices.Equal(keys, []JobKey{key(9)}) {
		t.Errorf("after the last job changed again %v, %v", keys, known)
	}
}
