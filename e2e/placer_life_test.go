// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerLife: what happens to gangs after they are placed. One cluster of 4
// nodes × 4 GPUs.
func TestPlacerLife(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{})
	const preempting = "queue {\n  order = \"fifo\"\n  preempt = true\n  quantum = \"1s\"\n  restart_cost = \"1s\"\n}\n"
	b.tell([]scene{
		{"priority preempts", preempting, testPreempt},
		{"history", "", testHistory},
		{"fails by a GPU's fault", "", testGPUFailure},
	})
}

// TestPlacerServices: jobs that run until they are stopped, whose members Nomad
// replaces one by one.
func TestPlacerServices(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{})
	b.tell([]scene{
		{"canary promoted by hand", "", testCanaryByHand},
	})
}

// TestPlacerOutages: agents of Nomad and of ours crash or hang.
func TestPlacerOutages(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{HeartbeatTTL: 2 * time.Second})
	b.tell([]scene{
		{"failover", "high_availability {\n  enabled = true\n  lock_ttl = \"10s\"\n}\n", testFailover},
		{"node goes down", "", testNodeDown},
		// This test is last: a new leader waits five minutes before it marks
		// silent nodes as down.
		{"server restarts", "", testServerRestarts},
	})
}

// A gang of higher priority stops one that allows it. The stopped gang starts
// again when it fits.
func testPreempt(t *testing.T, b *bed) {
	b.stopAgent()
	b.config += fmt.Sprintf("history {\n  database = %q\n}\n", filepath.Join(t.TempDir(), "history.db"))
	b.startAgent("nomad-pal")
	low := gang("low", 4, 4)
	low.meta, low.extra = `pal_preempt = "true"`, "priority = 20"
	b.runs(low, 16)
	high := gang("high", 2, 4)
	high.extra = "priority = 80"
	b.runs(high, 8)
	b.untilWaits("low")
	b.untilSays("history -csv -columns=job,stops,lost,sooner", "default/high,0,,0.")
	b.untilSays("history -csv -columns=job,stops,lost,sooner", "default/low,1,0.00,")
	b.purge("high")
	b.untilGPUs("low", 16)
	b.purge("low")
	b.until("both ends are recorded, with the gain and the cost of the stop", func() string {
		out, _ := b.pal("history", "-json", "-by=namespace")
		var usage []struct {
			Runs, Stops int
			Lost        float64 `json:"stops_lost_gpu_hours"`
			Sooner      float64 `json:"stops_saved_wait_hours"`
		}
		err := json.Unmarshal([]byte(out), &usage)
		if err != nil || len(usage) != 1 || usage[0].Runs != 2 || usage[0].Stops != 1 || usage[0].Lost <= 0 || usage[0].Sooner <= 0 {
			return fmt.Sprint(err, out)
		}
		return ""
	})
}

// gate reports the job's gate, "" if it has none.
func (b *bed) gate(id string) string {
	info, _, err := b.API().Jobs().Info(id, nil)
	if err != nil {
		return err.Error()
	}
	if rewrite.Gated(info) {
		return "the gate is on"
	}
	return ""
}

// untilDeployed waits until the job's last deployment has succeeded.
func (b *bed) untilDeployed(id string) {
	b.t.Helper()
	b.until("deployment of "+id, func() string {
		d, _, err := b.API().Jobs().LatestDeployment(id, nil)
		if err != nil {
			return err.Error()
		}
		if d != nil && d.Status != "successful" {
			return d.Status + ": " + d.StatusDescription
		}
		return ""
	})
}
