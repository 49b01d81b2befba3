// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Gangs that share GPUs slow each other down. A table ([pal.Interference]) estimates how much, for
// each pair of classes. For each job name, the Queue also compares two kinds of runs: runs beside
// neighbours of one class, and runs alone. The comparison has more weight relative to the table if
// there are many runs, and if the runs vary little.

const (
	// enoughBeside is the minimum number of runs for a comparison, both beside a class and alone.
	enoughBeside = 4
	// mostOfRun is the minimum fraction of a run during which its company must be the same.
	mostOfRun = 0.75
	// tableErrs is the error of the table for a single application. The error is the standard
	// deviation of log(s/t), where s is the application's speed beside a class, and t is the speed
	// in the table. The value comes from Gavel's measurements of pairs on a V100.
	tableErrs = 0.22
	// runsErr is the minimum standard deviation of the logarithm of an application's run times.
	// Without this minimum, a few runs of equal length could count too much.
	runsErr = 0.1
)

// nobodyKnows means that the company of a gang is unknown, because the gang waits, or because it
// runs and LookAround has not been called yet.
const nobodyKnows pal.Company = -1

// company records how much time a gang has spent beside each kind of neighbour.
type company struct {
	seen  bool                           // whether with is known
	with  pal.Company                    // the neighbours that the gang has had since the time at
	at    time.Duration                  // time of the latest call of meet
	spent [pal.Several + 1]time.Duration // time that the gang has spent with each company
}

// meet records that the gang has these neighbours from now on.
func (c *company) meet(now time.Duration, with pal.Company) {
	if c.seen {
		c.spent[c.with] += max(0, now-c.at)
	}
	c.seen = with != nobodyKnows
	c.with, c.at = with, now
}

// mostly returns the company that a gang had for most of its run, encoded as 1 plus the
// [pal.Company]. If no company lasted for mostOfRun of the run, or if that company is unknown or
// [pal.Several], mostly returns 0.
func (c company) mostly(now, ran time.Duration) int8 {
	c.meet(now, nobodyKnows)
	for with, spent := range c.spent[:pal.Several] {
		if spent > 0 && float64(spent) >= mostOfRun*float64(ran) {
			return int8(with) + 1
		}
	}
	return 0
}

// companyOf converts a stored number to a result of [company.mostly]. If the number is out of
// range, companyOf returns 0.
func companyOf(n int64) int8 {
	if n < 0 || n > int64(pal.Several) {
		return 0
	}
	return int8(n)
}

// LookAround records the company of each running gang that shares GPUs, except elastic gangs. Call
// LookAround after the GPUs of running gangs have been reported.
func (q *Queue) LookAround(now time.Duration, c *pal.Cluster) {
	for _, e := range q.all {
		if e.state >= running && e.job.Gang.Sharing != nil && !e.elastic() {
			e.company.meet(now, c.Company(e.job.Gang, e.placement))
		}
	}
}

// RunsBeside compares two kinds of runs of a name: those beside neighbours of one class (their
// number is Runs), and those without neighbours (their number is Alone).
type RunsBeside struct {
	Runs, Alone int
	// Times is the run time beside these neighbours divided by the run time alone. Err is the
	// standard error of the logarithm of Times.
	Times, Err float64
}

// RunsBeside returns one comparison for each class of neighbours, from the finished runs of a name
// with this number of GPUs. The value for a class with too few runs is zero.
func (fs *foresight) RunsBeside(name string, gpus int) (by [pal.NumClasses]RunsBeside) {
	var of [pal.Several]logs
	for _, s := range fs.samples(name) {
		if s.gpus == gpus && s.beside > 0 {
			of[s.beside-1].add(s.work)
		}
	}
	alone := of[pal.Alone]
	for k := range by {
		b := of[k]
		if b.n >= enoughBeside && alone.n >= enoughBeside {
			by[k] = RunsBeside{int(b.n), int(alone.n), math.Exp(b.mean() - alone.mean()), math.Sqrt(b.variance()/b.n + alone.variance()/alone.n)}
		}
	}
	return by
}

// PastRuns summarizes the finished runs of one name with one number of GPUs.
type PastRuns struct {
	ByModel map[string]ModelRuns
	Beside  [pal.NumClasses]RunsBeside
}

// PastRuns returns the summary for this name and this number of GPUs.
func (fs *foresight) PastRuns(name string, gpus int) PastRuns {
	return PastRuns{fs.RunsByModel(name, gpus), fs.RunsBeside(name, gpus)}
}

// logs contains the number of run times, the sum of their logarithms, and the sum of the squares of
// these logarithms.
type logs struct{ n, sum, squares float64 }

func (l *logs) add(d time.Duration) {
	x := math.Log(d.Seconds())
	l.n++
	l.sum += x
	l.squares += x * x
}

func (l logs) mean() float64 { return l.sum / l.n }

// variance returns the variance of the logarithms, but at least the square of runsErr.
func (l logs) variance() float64 {
	return max(runsErr*runsErr, (l.squares-l.sum*l.mean())/(l.n-1))
}

// Slower returns how much longer a gang runs beside a neighbour than alone, as a factor. The gang
// has the class `of`, and the neighbour has the class `beside`. The factor combines the earlier
// runs with the table, weighted by their errors. The result `seen` is the weight of the runs, from
// 0.5 to 1. Both results are 0 if there are no runs, or if the runs have less weight than the
// table.
func (b RunsBeside) Slower(of, beside pal.AppClass) (slower, seen float64) {
	if b.Runs == 0 {
		return 0, 0
	}
	seen = tableErrs * tableErrs / (tableErrs*tableErrs + b.Err*b.Err)
	if seen < 0.5 {
		return 0, 0
	}
	told := 1 + pal.Interference(of, beside)
	slower = math.Pow(b.Times, seen) * math.Pow(told, 1-seen)
	const digits = 20 // results are multiples of 1/20, so that the small changes after each run cause no new decisions
	return max(1, math.Round(slower*digits)/digits), seen
}

// SlowerBeside returns the factor of [RunsBeside.Slower] for each class of neighbours, in the form
// that [pal.Sharing] needs. The result `from` describes the origin of each factor that is not 0.
func SlowerBeside(of pal.AppClass, runs [pal.NumClasses]RunsBeside) (slower [pal.NumClasses]float64, from map[pal.AppClass]string) {
	from = map[pal.AppClass]string{}
	for k, beside := range pal.AppClasses() {
		b, seen := runs[k], 0.0
		slower[k], seen = b.Slower(of, beside)
		if seen == 0 {
			continue
		}
		percent := int(math.Round(100 * seen))
		from[beside] = fmt.Sprintf("%d %% from %d runs beside this class and %d runs alone; %d %% from the table", percent, b.Runs, b.Alone, 100-percent)
	}
	return slower, from
}
