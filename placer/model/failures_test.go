// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
)

// A requeued gang avoids the nodes on which it failed. It does not avoid nodes that were down, or
// whose unhealthy GPUs are excluded anyway.
func TestFailedOn(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	h := Model{State: cluster.NewState(), Failures: []palapi.Failure{
		{At: now.Add(-2 * AvoidFor), Namespace: "default", Job: "j", Node: "long ago", Cause: palapi.CauseUser},
		{At: now, Namespace: "other", Job: "j", Node: "of another job", Cause: palapi.CauseUser},
		{At: now, Namespace: "default", Job: "j", Node: "unhealthy", Cause: palapi.CauseInfrastructure, Unhealthy: []string{"g1"}},
		{At: now, Namespace: "default", Job: "j", Node: "down", Cause: palapi.CauseInfrastructure, Reason: failure.NodeDown},
	}}
	k := cluster.JobKey{Namespace: "default", ID: "j"}
	if got := h.FailedOn(k, now); len(got) > 0 {
		t.Errorf("avoided: %v", got)
	}
	h.Failures = append(h.Failures,
		palapi.Failure{At: now, Namespace: "default", Job: "j", Node: "no image", Cause: palapi.CauseInfrastructure, Driver: true},
		palapi.Failure{At: now, Namespace: "default", Job: "j", Node: "exit 1", Cause: palapi.CauseUser})
	if d := cmp.Diff(map[string]bool{"no image": true, "exit 1": true}, h.FailedOn(k, now)); d != "" {
		t.Errorf("avoided (-want +got):\n%s", d)
	}
}
