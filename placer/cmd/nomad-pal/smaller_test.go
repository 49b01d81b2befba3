// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"
)

// release -all applies to all namespaces unless one is given.
func TestReleaseAll(t *testing.T) {
	c := newCluster(t)
	for _, namespace := range []string{"default", "research", "product"} {
		c.must("run", "-detach", c.job(namespace, "of-"+namespace, 1))
	}
	released := func(want string, args ...string) {
		t.Helper()
		code, out, said := c.does(append([]string{"release", "-json", "-now", "-all"}, args...)...)
		if got := strings.Join(strings.Fields(out), ""); code != 0 || got != want {
			t.Errorf("%v: %d %s%s", args, code, got, said)
		}
	}
	released(`["research/of-research"]`, "-namespace=research")
	released(`["default/of-default","product/of-product"]`)
	released(`[]`, "-namespace=*")
}
