// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Gangs that share GPUs slow each other. The table of neighbours tells by how much, by classes. Runs
// of a name that had one kind of neighbour, and runs that had none, tell it of that name. The more
// they are, and the more alike, the more they count beside the table.

const (
	// enoughBeside is how many runs of each kind tell something.
	enoughBeside = 4
	// mostOfRun is the part of its time that a run must have had the same company.
	mostOfRun = 0.75
	// tableErrs is how far an application's speed beside a class is from that of its class in the
	// table, as the standard deviation of its logarithm: of Gavel's pairs on a V100.
	tableErrs = 0.22
	// runsErr is how far two runs of one application are apart at least, likewise. Few runs may be
	// alike by chance.
	runsErr = 0.1
)

// nobodyKnows is the company of a gang that waits, or that the Queue has not looked at.
const nobodyKnows pal.Company = -1

// company is for how long a gang has had which neighbours.
type company struct {
	seen  bool        // since at, with
	with  pal.Company // who is there
	at    time.Duration
	spent [pal.Several + 1]time.Duration
}

// meet records who is beside the gang from now.
func (c *company) meet(now time.Duration, with pal.Company) {
	if c.seen {
		c.spent[c.with] += max(0, now-c.at)
	}
	c.seen, c.with, c.at = with != nobodyKnows, with, now
}

// mostly tells who was next to a gang for most of the time that it has run: 1 more than the
// [pal.Company]. 0: nobody knows, it changed, or there were several.
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

// LookAround notes who shares GPUs with the running gangs, from now until it is called again. Call it
// when the GPUs of running gangs have been reported.
func (rs *runners) LookAround(now time.Duration, c *pal.Cluster) {
	for _, e := range rs.running {
		if e.job.Gang.Sharing != nil && e.elastic == nil {
			e.company.meet(now, c.Company(e.job.Gang, e.placement))
		}
	}
}

// RunsBeside are runs of a name beside neighbours of one class, compared with those alone.
type RunsBeside struct {
	Runs, Alone int
	// Times is how many times as long as alone they take, and Err the standard error of its logarithm.
	Times, Err float64
}

// RunsBeside returns the finished runs of a name with that many GPUs that had neighbours, by their
// class; none if there are too few to tell anything.
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

// PastRuns are what is remembered of the finished runs of a name with some number of GPUs.
type PastRuns struct {
	ByModel map[string]ModelRuns
	Beside  [pal.NumClasses]RunsBeside
}

// PastRuns returns both.
func (fs *foresight) PastRuns(name string, gpus int) PastRuns {
	return PastRuns{fs.RunsByModel(name, gpus), fs.RunsBeside(name, gpus)}
}

// logs are logarithms of run times.
type logs struct{ n, sum, squares float64 }

func (l *logs) add(d time.Duration) {
	x := math.Log(d.Seconds())
	l.n, l.sum, l.squares = l.n+1, l.sum+x, l.squares+x*x
}

func (l logs) mean() float64 { return l.sum / l.n }

func (l logs) variance() float64 {
	return max(runsErr*runsErr, (l.squares-l.sum*l.mean())/(l.n-1))
}

// Slower is how many times as long as alone a gang of the class takes beside one of another class:
// by the runs, and by the table, each as far as it can be trusted. seen is how much the runs count,
// from half to 1. Without runs, or if they tell less than the table, both are 0.
func (b RunsBeside) Slower(of, beside pal.AppClass) (slower, seen float64) {
	if b.Runs == 0 {
		return 0, 0
	}
	if seen = tableErrs * tableErrs / (tableErrs*tableErrs + b.Err*b.Err); seen < 0.5 {
		return 0, 0
	}
	told := 1 + pal.Interference(of, beside)
	slower = math.Pow(b.Times, seen) * math.Pow(told, 1-seen)
	const digits = 20 // it moves a little with each run, and nothing should be decided again for that
	return max(1, math.Round(slower*digits)/digits), seen
}

// SlowerBeside is [RunsBeside.Slower] by the class of the neighbour, for [pal.Sharing], and in words
// where that is known from.
func SlowerBeside(of pal.AppClass, runs [pal.NumClasses]RunsBeside) (slower [pal.NumClasses]float64, from map[pal.AppClass]string) {
	for k, beside := range pal.AppClasses() {
		b, seen := runs[k], 0.0
		if slower[k], seen = b.Slower(of, beside); seen == 0 {
			continue
		}
		if from == nil {
			from = map[pal.AppClass]string{}
		}
		percent := int(math.Round(100 * seen))
		from[beside] = fmt.Sprintf("%d %% seen in %d runs, %d alone; %d %% the table", percent, b.Runs, b.Alone, 100-percent)
	}
	return slower, from
}
