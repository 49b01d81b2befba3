// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package published

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// TestTenants: the jobs of one tenant of a trace.
func TestTenants(t *testing.T) {
	tr, err := trace.Read("f", strings.NewReader("job_id,gpus,submit_time,duration,tenant\napp_1,2,120,2000,vc1\napp_2,1,0,3600,vc2\napp_3,0,0,3600,vc2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"vc1", "vc2"}, Tenants(tr)); d != "" {
		t.Errorf("tenants by GPU time (-want +got):\n%s", d)
	}
	one := Of(tr, "vc1")
	if len(one.Jobs) != 1 || one.Jobs[0].ID != "app_1" || one.Jobs[0].SubmitS != 0 || one.Name != "f, vc1" || len(one.LeftOut) != 0 {
		t.Errorf("vc1: %+v", one)
	}
	if two := Of(tr, "vc2"); len(two.LeftOut) != 1 {
		t.Errorf("vc2: %+v", two)
	}
}
