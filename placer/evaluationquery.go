// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"time"

	"golang.org/x/time/rate"
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

// evaluationQueries counts the queries for one job since it was committed at index.
type evaluationQueries struct {
	index uint64
	last  time.Time
	count int
}

// mayQueryEvaluation says whether the job's evaluations may be queried now, and counts
// the query if so.
func (p *Placer) mayQueryEvaluation(t *tracked, now time.Time) bool {
	q := &t.evaluationQueries
	if index := *t.Job.JobModifyIndex; q.index != index {
		*q = evaluationQueries{index: index}
	}
	if q.count > 0 && now.Sub(q.last) < min(time.Second<<min(q.count-1, 10), slowestEvaluationQuery) {
		return false
	}
	if !p.evaluationLimit.AllowN(now, 1) {
		return false
	}
	q.last, q.count = now, q.count+1
	return true
}
