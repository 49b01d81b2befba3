// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// If Nomad could not place several groups, the refusal always names the same one.
func TestRefusalOfSeveralGroups(t *testing.T) {
	e := &api.Evaluation{FailedTGAllocs: map[string]*api.AllocationMetric{"workers": {}, "chief": {}, "readers": {}}}
	for range 100 {
		if why := Refusal(e); why.Group != "chief" {
			t.Fatal(why)
		}
	}
}
