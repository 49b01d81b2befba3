// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Gangs that share GPUs slow each other down. The table of neighbours estimates by how much, per
// pair of classes. For a job name, runs with one kind of neighbour are also compared with runs
// alone. The more such runs there are, and the less they vary, the more they count relative to the
// table.

const (
	// enoughBeside is the least number of runs of each kind for a comparison.
	enoughBeside = 4
	// mostOfRun is the part of its time that a run must have had the same company.
	mostOfRun = 0.75
	// tableErrs is the table's error for a single application: the standard deviation of log(s/t),
	// where s is the application's speed beside a class and t the speed in the table. It is
	// measured from Gavel's pairs on a V100.
	tableErrs = 0.22
	// runsErr is the smallest standard deviation that is assumed for the logarithm of an
	// application's run times, because a few runs may be equal by chance.
	runsErr = 0.1
)

// nobodyKnows is the company of a gang that waits, or for which LookAround has not been called.
const nobodyKnows pal.Company = -1

// company records for how long a gang has had which neighbours.
type company struct {
	seen  bool                           // with is known
	with  pal.Company                    // the neighbours that the gang has had since the time at
	at    time.Duration                  // time of the last call of meet
	spent [pal.Several + 1]time.Duration // time that the gang has spent with each company
}

// meet records the gang's neighbours from now on.
func (c *company) meet(now time.Duration, with pal.Company) {
	if c.seen {
		c.spent[c.with] += max(0, now-c.at)
	}
	c.seen, c.with, c.at = with != nobodyKnows, with, now
}

// mostly returns the company that a gang had for most of its run, as 1 plus its [pal.Company]. It
// returns 0 if that is unknown or [pal.Several], or if no company lasted long enough.
func (c company) mostly(now, ran time.Duration) int8 {
	c.meet(now, nobodyKnows)
	for with, spent := range c.spent[:pal.Several] {
		if spent > 0 && float64(spent) >= mostOfRun*float64(ran) {
			return int8(with) + 1
		}
	}
	return 0
}

// companyOf decodes a stored result of [company.mostly]; one that is out of range counts as 0.
func companyOf(n int64) int8 {
	if n < 0 || n > int64(pal.Several) {
		return 0
	}
	return int8(n)
}

// LookAround records the company of each running gang on shared GPUs, except elastic ones. It
// counts from now until the next call. Call it after the GPUs of running gangs have been reported.
func (rs *runners) LookAround(now time.Duration, c *pal.Cluster) {
	for _, e := range rs.running {
		if e.job.Gang.Sharing != nil && e.elastic == nil {
			e.company.meet(now, c.Company(e.job.Gang, e.placement))
		}
	}
}

// RunsBeside compares the runs of a name beside neighbours of one class with its runs alone.
type RunsBeside struct {
	Runs, Alone int
	// Times is their run time relative to runs alone, and Err the standard error of its logarithm.
	Times, Err float64
}

// RunsBeside compares the finished runs of a name with this number of GPUs, by the class of their
// neighbours. Classes with too few runs have a zero value.
func (fs *foresight) RunsBeside(name string, gpus int) (by [pal.NumClasses]RunsBeside) {
	var of [pal.Several]logs
	for _, s := range fs.samples(name) {
		if s.gpus == gpus && s.beside > 0 {
			of[s.beside-1].add(s.work)
		}
	}
	alone := of[pal.Alone]
	for k := range by {
		if b := of[k]; b.n >= enoughBeside && alone.n >= enoughBeside {
			by[k] = RunsBeside{int(b.n), int(alone.n), math.Exp(b.mean() - alone.mean()), math.Sqrt(b.variance()/b.n + alone.variance()/alone.n)}
		}
	}
	return by
}

// PastRuns summarizes the finished runs of a name with one number of GPUs.
type PastRuns struct {
	ByModel map[string]ModelRuns
	Beside  [pal.NumClasses]RunsBeside
}

// PastRuns returns the summary for a name and a number of GPUs.
func (fs *foresight) PastRuns(name string, gpus int) PastRuns {
	return PastRuns{fs.RunsByModel(name, gpus), fs.RunsBeside(name, gpus)}
}

// logs sums up logarithms of run times.
type logs struct{ n, sum, squares float64 }

func (l *logs) add(d time.Duration) {
	x := math.Log(d.Seconds())
	l.n, l.sum, l.squares = l.n+1, l.sum+x, l.squares+x*x
}

func (l logs) mean() float64 { return l.sum / l.n }

func (l logs) variance() float64 {
	return max(runsErr*runsErr, (l.squares-l.sum*l.mean())/(l.n-1))
}

// Slower returns the run time of a gang beside a neighbour, relative to its run time alone, given
// their classes. It combines the runs and the table, weighted by their errors. seen is the weight
// of the runs, from 0.5 to 1. Without runs, or if they weigh less than the table, both results are
// 0.
func (b RunsBeside) Slower(of, beside pal.AppClass) (slower, seen float64) {
	if b.Runs == 0 {
		return 0, 0
	}
	if seen = tableErrs * tableErrs / (tableErrs*tableErrs + b.Err*b.Err); seen < 0.5 {
		return 0, 0
	}
	told := 1 + pal.Interference(of, beside)
	slower = math.Pow(b.Times, seen) * math.Pow(told, 1-seen)
	const digits = 20 // rounded, so that small changes after each run cause no new decisions
	return max(1, math.Round(slower*digits)/digits), seen
}

// SlowerBeside returns [RunsBeside.Slower] for each class of neighbour, for [pal.Sharing]. from
// describes the source of each value in words.
func SlowerBeside(of pal.AppClass, runs [pal.NumClasses]RunsBeside) (slower [pal.NumClasses]float64, from map[pal.AppClass]string) {
	from = map[pal.AppClass]string{}
	for k, beside := range pal.AppClasses() {
		b, seen := runs[k], 0.0
		if slower[k], seen = b.Slower(of, beside); seen == 0 {
			continue
		}
		percent := int(math.Round(100 * seen))
		from[beside] = fmt.Sprintf("%d %% from %d runs beside it and %d alone; %d %% from the table", percent, b.Runs, b.Alone, 100-percent)
	}
	return slower, from
}
