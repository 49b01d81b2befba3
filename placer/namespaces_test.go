// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Names of namespaces that Nomad does not have are warned of. Patterns and names that the
// configuration does not contain are not.
func TestMissingNamespaces(t *testing.T) {
	t.Parallel()
	tenants := map[string]queue.Tenant{"ml": {Namespaces: []string{"research", "resaerch", "ml-*"}}, "unnamed": {}}
	known := map[string]bool{"default": true, "research": true}
	for own, want := range map[string][]string{
		"default": {`tenant "ml" names namespace "resaerch", which Nomad does not have`},
		"pal": {
			`the agent's data is in namespace "pal" (nomad { namespace }), which Nomad does not have; commands find the agent only with -pal-namespace`,
			`tenant "ml" names namespace "resaerch", which Nomad does not have`,
		},
	} {
		if d := cmp.Diff(want, missingNamespaces(own, tenants, known)); d != "" {
			t.Errorf("%s (-want +got):\n%s", own, d)
		}
	}
}
