// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"
)

// A limit so large that it means "no limit" does not overflow, so the tenant can start any gang
// that fits.
func TestHugeLimit(t *testing.T) {
	most := math.MaxInt
	o := Default()
	o.Tenants = map[string]Tenant{"a": {Quota: 8, BorrowingLimit: &most}}
	if err := o.checkTenants(); err != nil {
		t.Skip("it is refused: ", err)
	}
	if limit, ok := newTree(o.Tenants).byName["a"].limit(); ok && limit < 0 {
		t.Errorf("with a limit of %d GPUs, no gang of the tenant starts", limit)
	}
}
