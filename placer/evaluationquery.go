// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/nomad-pal/nomad-pal/placer/model"
)

// When a gang is late, the placer queries its evaluations from Nomad: for one gang at
// once and again after 1 s, 2 s, … slowestEvaluationQuery, and for all gangs together
// at most evaluationQueriesPerSecond times a second, so that a slow Nomad is not made
// slower.
const (
	evaluationQueriesPerSecond = 20
	slowestEvaluationQuery     = 8 * time.Second
)

func newEvaluationLimit() *rate.Limiter {
	return rate.NewLimiter(evaluationQueriesPerSecond, evaluationQueriesPerSecond)
}

// mayQueryEvaluation says whether the job's evaluations may be queried now, and counts
// the query if so.
func (p *Placer) mayQueryEvaluation(t *model.Tracked, now time.Time) bool {
	q := &t.EvaluationQueries
	if index := *t.Job.JobModifyIndex; q.Index != index {
		*q = model.EvaluationQueries{Index: index}
	}
	if q.Count > 0 && now.Sub(q.Last) < min(time.Second<<min(q.Count-1, 10), slowestEvaluationQuery) {
		return false
	}
	if !p.evaluationLimit.AllowN(now, 1) {
		return false
	}
	q.Last, q.Count = now, q.Count+1
	return true
}
