// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"context"
	"database/sql"
	"math"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

const (
	slowClass = 4
	// enoughRuns is the number of fast runs, and of slow runs, from which on Speed compares them.
	enoughRuns = 10
)

// Speed compares the runs that the filter selects.
func (db *DB) Speed(ctx context.Context, f Filter) (palapi.Speed, error) {
	w := f.ofRuns()
	w.add("took > 0 AND member_gpus = gpus AND (slowest = 1 OR slowest >= ?)", slowClass)
	if !f.Since.IsZero() {
		w.add("submitted >= ?", stored(f.Since))
	}
	type job struct {
		namespace, family, model string
		gpus                     int
	}
	jobs, order := map[job]*[2]logs{}, []job(nil)
	err := db.rows(ctx, "SELECT namespace, family, model, gpus, slowest, took FROM run"+w.String()+" ORDER BY submitted DESC LIMIT 100000", w.args, func(rows *sql.Rows) error {
		var j job
		var slowest, took int64
		err := rows.Scan(&j.namespace, &j.family, &j.model, &j.gpus, &slowest, &took)
		if jobs[j] == nil {
			jobs[j] = new([2]logs)
			order = append(order, j)
		}
		jobs[j][min(1, slowest-1)].add(math.Log(float64(took)))
		return err
	})
	if err != nil {
		return palapi.Speed{}, err
	}
	var both [][2]logs
	for _, j := range order { // in a fixed order, so that the same runs give the same sums
		of := jobs[j]
		if of[0].n > 0 && of[1].n > 0 {
			both = append(both, *of)
		}
	}
	return speedOf(both), nil
}

// logs sums up logarithms of run times.
type logs struct{ n, sum, squares float64 }

func (l *logs) add(v float64) {
	l.n++
	l.sum = l.sum + v
	l.squares = l.squares + v*v
}

// spread is the sum of squared differences from the mean.
func (l logs) spread() float64 { return max(0, l.squares-l.sum*l.sum/l.n) }

// speedOf compares the fast and the slow runs of each job. The ratio of a job counts in proportion
// to how precise it is, if the runs of all jobs scatter equally.
func speedOf(jobs [][2]logs) (s palapi.Speed) {
	weights := 0.0
	ratios := 0.0
	squares := 0.0
	freedom := 0.0
	for _, of := range jobs {
		fast, slow := of[0], of[1]
		s.FastRuns, s.SlowRuns = s.FastRuns+int(fast.n), s.SlowRuns+int(slow.n)
		weight := fast.n * slow.n / (fast.n + slow.n)
		weights, ratios = weights+weight, ratios+weight*(slow.sum/slow.n-fast.sum/fast.n)
		squares, freedom = squares+fast.spread()+slow.spread(), freedom+fast.n+slow.n-2
	}
	if s.FastRuns < enoughRuns || s.SlowRuns < enoughRuns || freedom < enoughRuns {
		return s
	}
	mean, half := ratios/weights, 2*math.Sqrt(squares/freedom/weights)
	share := func(log float64) *float64 { v := math.Exp(log) - 1; return &v }
	s.Slower = share(mean)
	s.Low = share(mean - half)
	s.High = share(mean + half)
	return s
}
