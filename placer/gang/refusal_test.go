// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// Of several groups that Nomad could not place, a refusal names the same one each time.
func TestRefusalOfSeveralGroups(t *testing.T) {
	e := &api.Evaluation{FailedTGAllocs: map[string]*api.AllocationMetric{"workers": {}, "chief": {}, "readers": {}}}
	for range 100 {
		if why := refusal(e); why.Group != "chief" {
			t.Fatal(why)
		}
	}
}
