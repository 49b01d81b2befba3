// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// TestMayQueryEvaluation counts how often the placer reads the evaluations of late gangs.
func TestMayQueryEvaluation(t *testing.T) {
	p, start := &Placer{evaluationLimit: newEvaluationLimit()}, time.Unix(1000, 0)
	var ts []*model.Tracked
	for i := range 100 {
		ts = append(ts, &model.Tracked{Lifecycle: gang.Of(gang.Observed{Job: benchJob(fmt.Sprint(i), 1)})})
	}
	asks := map[*model.Tracked]int{}
	for ms := range 60000 / 50 {
		now, n := start.Add(time.Duration(ms)*50*time.Millisecond), 0
		for _, x := range ts {
			if p.mayQueryEvaluation(x, now) {
				asks[x]++
				n++
			}
		}
		if n > evaluationQueriesPerSecond {
			t.Fatalf("%d queries in one cycle", n)
		}
	}
	total := 0
	for i, x := range ts {
		total += asks[x]
		if asks[x] == 0 {
			t.Errorf("no query about %d", i)
		}
	}
	if total > 60*evaluationQueriesPerSecond || total < 600 {
		t.Errorf("%d queries within a minute", total)
	}
	alone := &model.Tracked{Lifecycle: gang.Of(gang.Observed{Job: benchJob("alone", 1)})}
	now := start.Add(time.Hour)
	if !p.mayQueryEvaluation(alone, now) || p.mayQueryEvaluation(alone, now.Add(999*time.Millisecond)) || !p.mayQueryEvaluation(alone, now.Add(time.Second)) || p.mayQueryEvaluation(alone, now.Add(2*time.Second)) {
		t.Error("not queried at once and after 1 and 2 s")
	}
	alone.Job = benchJob("alone", 2)
	if !p.mayQueryEvaluation(alone, now.Add(2*time.Second)) {
		t.Error("not queried at once after a new commit")
	}
}
