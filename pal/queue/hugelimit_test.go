// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"
)

// A tenant whose limit is written as "as much as there is" may start what fits.
func TestHugeLimit(t *testing.T) {
	most := math.MaxInt
	o := Default()
	o.Tenants = map[string]Tenant{"a": {Quota: 8, BorrowingLimit: &most}}
	if err := o.checkTenants(); err != nil {
		t.Skip("it is refused: ", err)
	}
	if limit, ok := newTree(o.Tenants).byName["a"].limit(); ok && limit < 0 {
		t.Errorf("its limit is %d GPUs: nothing of it starts", limit)
	}
}
