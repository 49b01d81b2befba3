// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// maxSamples is the maximum number of stored runs of a name. The oldest run is dropped first. The
// constant maxNames is the maximum number of stored names; see makeRoom.
const (
	maxSamples = 64
	maxNames   = 200
)

// beyond is a relative difference of run times. If a gang has done more than 1 + beyond times the
// work of an earlier run or of an estimate, this run or estimate no longer predicts the gang.
const beyond = 0.4

// sample is one finished run. A sample contains the run's work at cost 1, its number of GPUs, and
// its number among the submissions of its name (nth).
type sample struct {
	work time.Duration
	gpus int
	nth  int64
	// model is set if the whole run was on one known GPU model. The field `time` is then how long
	// the run would take on the median GPUs of this model. The work is computed from this time,
	// with the speeds of the run's name.
	model string
	time  time.Duration
	// beside says which neighbours shared GPUs with the run; see [company.mostly].
	beside int8
}

// runTimes is the history of one name.
type runTimes struct {
	tenant  string
	samples []sample                     // oldest first
	median  time.Duration                // of the samples' work
	least   time.Duration                // the first decile of the samples' work
	fresh   map[newGang]foreseen         // predictions for gangs that have not run yet
	last    int64                        // value of foresight.lessons when the latest run was added
	speeds  pal.Speeds                   // used to compute the samples' work; see [foresight.rate]
	byModel map[int]map[string]ModelRuns // by number of GPUs; see [foresight.RunsByModel]
}

// set replaces the samples, and drops what was computed from the old ones.
func (h *runTimes) set(samples []sample) {
	h.samples = samples
	h.fresh, h.byModel = nil, nil
	byWork := slices.SortedFunc(slices.Values(samples), func(a, b sample) int { return cmp.Compare(a.work, b.work) })
	h.median, h.least = byWork[(len(byWork)-1)/2].work, byWork[(len(byWork)-1)/10].work
}

// near returns the number of the stored run that was submitted nearest to a gang, plus the distance
// rounded down to a power of two, so that thousands of waiting gangs have only a few different
// numbers. The parameter and the result are numbers among the submissions of the name.
func (h *runTimes) near(nth int64) int64 {
	nearest := h.samples[0].nth
	for _, s := range h.samples {
		if between(s.nth, nth) < between(nearest, nth) {
			nearest = s.nth
		}
	}
	if nth < nearest {
		return nearest - powerOf2(nearest-nth)
	}
	return nearest + powerOf2(nth-nearest)
}

// between returns the distance of two submissions.
func between(a, b int64) int64 { return max(a-b, b-a) }

// powerOf2 returns the greatest power of two that is at most n; 0 for 0.
func powerOf2(n int64) int64 { return (1 << bits.Len64(uint64(n))) >> 1 }

// foresight predicts how long gangs run, from estimates and earlier runs. The order of the queue follows from these predictions.
type foresight struct {
	opt         *Options
	runTimes    map[string]*runTimes
	submissions map[string]int64    // numbers of submissions by name
	usual       time.Duration       // assumed run time without an estimate; see takeSilent
	lessons     int64               // number of runs learned so far
	learned     map[string]struct{} // names whose waiting gangs must be sorted again, or everyName; see resort
	chances     []chance            // memory that remainingRunTime reuses
}

// everyName stands for all names in foresight.learned. No job has this name.
const everyName = "\x00every"

func newForesight(o *Options) foresight {
	return foresight{opt: o, usual: o.DefaultRuntime, runTimes: map[string]*runTimes{}, submissions: map[string]int64{},
		learned: map[string]struct{}{}}
}

// submitted gives a gang its number among the submissions of its name, from 1. If there are many
// names, the names without stored runs are counted from 1 again.
func (fs *foresight) submitted(e *entry) {
	if len(fs.submissions) > 4*maxNames {
		maps.DeleteFunc(fs.submissions, func(name string, _ int64) bool { return fs.runTimes[name] == nil })
	}
	fs.submissions[e.job.Name]++
	e.nth = fs.submissions[e.job.Name]
}

// learn stores a finished run. The next pass sorts the waiting gangs that depend on this name
// again.
func (fs *foresight) learn(tenant, name string, s sample) {
	if name == "" || s.work <= 0 {
		return
	}
	fs.note(tenant, name, s)
	fs.learned[name] = struct{}{}
}

// note adds a run to the history of a name.
func (fs *foresight) note(tenant, name string, s sample) {
	fs.lessons++
	h := fs.runTimes[name]
	if h == nil {
		fs.makeRoom()
		h = &runTimes{tenant: tenant}
		fs.runTimes[name] = h
	}
	h.last = fs.lessons
	h.set(append(slices.Clone(h.samples[max(0, len(h.samples)-maxSamples+1):]), s.at(h.speeds))) // copied, because clones share the old slice
}

// makeRoom deletes the history of one name if maxNames names are already stored. Of the names of
// the tenant with the most names, it deletes the name whose last run is the oldest.
func (fs *foresight) makeRoom() {
	if len(fs.runTimes) < maxNames {
		return
	}
	names, oldest := map[string]int{}, ""
	for _, h := range fs.runTimes {
		names[h.tenant]++
	}
	for name, h := range fs.runTimes {
		o := fs.runTimes[oldest]
		if o == nil || cmp.Or(cmp.Compare(names[o.tenant], names[h.tenant]), cmp.Compare(h.last, o.last)) < 0 {
			oldest = name
		}
	}
	delete(fs.runTimes, oldest)
	fs.learned[oldest] = struct{}{}
}

// RunTimes is the history of one name, in the form in which it is saved.
type RunTimes struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant,omitempty"`
	// Last is the value of [foresight.Lessons] after the latest run of this name. Names with the
	// smallest Last are forgotten first.
	Last int64 `json:"last"`
	// Models are the GPU models of the runs.
	Models []string `json:"models,omitempty"`
	// Runs are the finished runs, oldest first.
	Runs []Run `json:"runs"`
}

// Run is a finished run. A Run has four elements: the run time on the median GPUs of its model, in
// nanoseconds; the number of GPUs; the index of the model in Models, from 1; and the company (see
// [company.mostly]). If the model is unknown, or if there are several models, the index is 0 and
// the run time is at cost 1.
type Run [4]int64

// RunTimes returns the history of all names, sorted by name.
func (fs *foresight) RunTimes() []RunTimes {
	out := make([]RunTimes, 0, len(fs.runTimes))
	for name, h := range fs.runTimes {
		p := RunTimes{Name: name, Tenant: h.tenant, Last: h.last}
		for _, s := range h.samples {
			r := Run{int64(s.work), int64(s.gpus), 0, int64(s.beside)}
			if s.model != "" {
				if !slices.Contains(p.Models, s.model) {
					p.Models = append(p.Models, s.model)
				}
				r[0], r[2] = int64(s.time), int64(slices.Index(p.Models, s.model)+1)
			}
			p.Runs = append(p.Runs, r)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b RunTimes) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Lessons returns the number of runs learned so far. The history changes only if this number
// changes.
func (fs *foresight) Lessons() int64 { return fs.lessons }

// Remember replaces the history with a history that RunTimes of an earlier Queue returned. Invalid
// runs are left out. The remembered runs of a name count as earlier than all submissions of this
// name to this Queue.
func (fs *foresight) Remember(stored []RunTimes) {
	before := fs.runTimes
	fs.runTimes, fs.lessons = map[string]*runTimes{}, 0
	for name := range before {
		fs.learned[name] = struct{}{}
	}
	stored = slices.SortedFunc(slices.Values(stored), func(a, b RunTimes) int { return cmp.Compare(b.Last, a.Last) })
	for _, p := range stored[:min(len(stored), maxNames)] {
		h := &runTimes{tenant: p.Tenant, last: p.Last}
		old := before[p.Name]
		if old != nil {
			h.speeds = old.speeds
		}
		var samples []sample
		runs := p.Runs[max(0, len(p.Runs)-maxSamples):]
		for i, r := range runs {
			if r[0] <= 0 || r[1] <= 0 {
				continue
			}
			s := sample{work: time.Duration(r[0]), gpus: int(r[1]), nth: int64(i - len(runs) + 1), beside: companyOf(r[3])}
			if r[2] > 0 && int(r[2]) <= len(p.Models) {
				s.model, s.time = p.Models[r[2]-1], s.work
			}
			samples = append(samples, s.at(h.speeds))
		}
		if p.Name != "" && len(samples) > 0 {
			h.set(samples)
			fs.runTimes[p.Name], fs.lessons = h, max(fs.lessons, p.Last)
			fs.learned[p.Name] = struct{}{}
		}
	}
	fs.takeSilent()
}

// remaining returns how much longer a gang is expected to run, at cost 1. The prediction uses the
// first of these values that is known: the user's estimate, the history of the gang's name, the
// gang's run time so far. The result is at most the gang's limit. If only the limit is known, the
// result is the limit.
func (fs *foresight) remaining(e *entry, now time.Duration) time.Duration {
	left := e.limit(now)
	if left > 0 && !fs.knowsRunTime(e) {
		return left
	}
	return e.bounded(now, fs.expected(e, now))
}

// knowsRunTime reports whether the gang has an estimate or its name has a history.
func (fs *foresight) knowsRunTime(e *entry) bool {
	return e.job.Estimate > 0 || len(fs.samples(e.job.Name)) > 0
}

// bounded returns d or the gang's remaining limit, whichever is shorter.
func (e *entry) bounded(now, d time.Duration) time.Duration {
	left := e.limit(now)
	if left > 0 {
		return min(left, d)
	}
	return d // no limit, or Nomad is ending the gang
}

// limit returns how long the gang can still run before Nomad ends it, at cost 1. The result is 0 or
// less if there is no limit, or if the gang should already have ended. The limit applies to each
// run separately.
func (e *entry) limit(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.job.Limit
	}
	return atMostLongest(float64(e.job.Limit-max(0, now-e.startedAt)) / e.cost(e.placement))
}

// expected returns the same as [foresight.remaining], but ignores the limit. If a gang has run much
// longer than all known values predict, it is expected to run as long again as it has run so far.
func (fs *foresight) expected(e *entry, now time.Duration) time.Duration {
	return fs.foresee(e, now).mean
}

// index returns [remainingRunTime.index] of the gang, but at most its limit.
func (fs *foresight) index(e *entry, now time.Duration) time.Duration {
	return e.bounded(now, fs.foresee(e, now).index)
}

// foreseen is what follows from a [remainingRunTime].
type foreseen struct{ mean, index time.Duration }

// newGang is the key of the cache runTimes.fresh. Gangs of one name that have not run yet, and have
// equal keys, have the same prediction.
type newGang struct {
	gpus  int
	near  int64 // see runTimes.near
	stops bool
}

// foresee returns what follows from the distribution of the gang's remaining run time. For gangs
// that have not run yet, the result is cached.
func (fs *foresight) foresee(e *entry, now time.Duration) foreseen {
	compute := func() foreseen {
		o := fs.remainingRunTime(e, now)
		return foreseen{o.mean(), o.index()}
	}
	h := fs.runTimes[e.job.Name]
	if h == nil || e.job.Estimate > 0 || e.work(now) > 0 {
		return compute()
	}
	kind := newGang{e.whole(), h.near(e.nth), e.job.Preemptible}
	f, ok := h.fresh[kind]
	if !ok {
		if h.fresh == nil {
			h.fresh = map[newGang]foreseen{}
		}
		f = compute()
		h.fresh[kind] = f
	}
	return f
}

// remainingRunTime is the predicted distribution of how much longer a gang runs, at cost 1. The
// distribution combines known runs with an unknown part, because it is possible that no known run
// predicts the gang. With a history, the unknown part has weight 1. With an
// estimate, the unknown part has no weight at first. A known run loses weight after the gang has
// run longer than this run.
type remainingRunTime struct {
	of    []chance // the known runs, shortest first
	again float64  // median remaining time of the unknown part, in seconds
	rest  float64  // weight of the unknown part
}

// chance is one possible remaining run time, in seconds. Weights need not add up to 1.
type chance struct{ left, weight float64 }

// remainingRunTime returns the distribution for a gang. If the gang's user gave an estimate, the
// earlier runs of the gang's name are not used. The list in the result is valid until the next call.
func (fs *foresight) remainingRunTime(e *entry, now time.Duration) remainingRunTime {
	done := e.work(now)
	o := remainingRunTime{again: max(done, fs.unknown(e)).Seconds(), rest: 1, of: fs.chances[:0]}
	add := func(length time.Duration, weight float64) float64 {
		possible, left := outlasting(length, done)
		if possible > 0 {
			o.of = append(o.of, chance{left, possible * weight})
		}
		return possible
	}
	if e.job.Estimate > 0 {
		o.rest = 1 - add(stretched(fs.Estimate(e.job), 1/e.job.best()), 1)
	} else {
		for work, weight := range fs.earlierRuns(e) {
			add(work, weight)
		}
		slices.SortFunc(o.of, func(a, b chance) int { return cmp.Compare(a.left, b.left) })
	}
	fs.chances = o.of
	return o
}

// earlierRuns yields the work of the stored runs of the gang's name, and the weight of each run in
// the prediction. Submissions of a name are numbered in order. Runs submitted close to the gang have
// more weight, because users submit similar jobs one after the other: the weight is 1 for adjacent
// submissions, 1/2 if there is one submission between them, and so on. A run with another number of
// GPUs has less weight.
func (fs *foresight) earlierRuns(e *entry) iter.Seq2[time.Duration, float64] {
	return func(yield func(time.Duration, float64) bool) {
		h := fs.runTimes[e.job.Name]
		if h == nil {
			return
		}
		gpus, near := e.whole(), h.near(e.nth)
		for _, s := range h.samples {
			alike := float64(min(s.gpus, gpus)) / float64(max(s.gpus, gpus))
			if !yield(s.work, alike/float64(max(1, between(s.nth, near)))) {
				return
			}
		}
	}
}

// weight returns the sum of the weights of all known runs and of the unknown part.
func (o remainingRunTime) weight() float64 {
	all := o.rest
	for _, c := range o.of {
		all += c.weight
	}
	return all
}

// mean returns the expected remaining time. The unknown part has no finite mean. For the unknown
// part, mean uses the median (the field `again`).
func (o remainingRunTime) mean() time.Duration {
	weight, sum := o.rest, o.rest*o.again
	for _, c := range o.of {
		weight, sum = weight+c.weight, sum+c.weight*c.left
	}
	return seconds(sum / weight)
}

// index returns the Gittins index as a time: the least run time that must be spent on gangs of this
// kind, on average, for each gang that ends. If some runs of a name are short and some very long,
// the index is short until the gang has run longer than the short runs.
//
// The index is the minimum over all times at which the Queue could give up on the gang. The value
// for such a time is the expected run time until this time, divided by the probability that the
// gang has ended by then. The minimum is always at the end of a known run or just after now, so
// index tries only these times.
func (o remainingRunTime) index() time.Duration {
	weight, best := o.weight(), math.Inf(1)
	if o.rest > 0 {
		best = o.again * weight / o.rest
	}
	ended, spent := 0.0, 0.0 // weight of the runs that end by c.left, and their weighted run time
	for _, c := range o.of {
		ended += c.weight
		spent += c.weight * c.left
		weight -= c.weight
		run := spent + (weight-o.rest)*c.left + o.rest*o.again*math.Log1p(c.left/o.again)
		ends := ended + o.rest*c.left/(o.again+c.left)
		if run < best*ends {
			best = run / ends
		}
	}
	return seconds(best)
}

// outlasting returns a weight from 1 down to 0. The weight says how well a run of the given length
// still predicts a gang that has done this work. outlasting also returns the remaining time that
// the run predicts, in seconds. The remaining time becomes 0 only after 1 + beyond times the
// length, because no two runs of a name are equally long.
func outlasting(length, done time.Duration) (possible, left float64) {
	possible = 1
	if done > length {
		possible -= min(1, float64(done-length)/(beyond*float64(length)))
	}
	window := time.Duration((1+beyond)*float64(length)) - done
	return possible, max(0, length-done, window/2).Seconds()
}

// samples returns the stored runs of a name, oldest first; nil if none are stored.
func (fs *foresight) samples(name string) []sample {
	h := fs.runTimes[name]
	if h != nil {
		return h.samples
	}
	return nil
}
