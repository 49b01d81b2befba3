// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var approx = cmpopts.EquateApprox(0, 1e-9)

func TestBin(t *testing.T) {
	got := DefaultOptions().Bin([]float64{0.99, 0.97, 1.0, 1.01, 1.2, 1.0101})
	want := []float64{0.98, 0.98, 1.005, 1.005, 1.2, 1.0101}
	if diff := cmp.Diff(want, got, approx); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
