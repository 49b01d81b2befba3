// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
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

// submissions counts the submissions of one name. The count is kept as long as the Queue has gangs
// of the name or stores runs of the name.
type submissions struct {
	count int64
	live  int // gangs of the name in the Queue
}

// submitted gives a gang its number among the submissions of its name, from 1.
func (fs *foresight) submitted(e *entry) {
	s := fs.submissions[e.job.Name]
	if s == nil {
		s = &submissions{}
		fs.submissions[e.job.Name] = s
	}
	s.count++
	s.live++
	e.nth = s.count
}

// gone records that a gang has left the Queue.
func (fs *foresight) gone(e *entry) {
	fs.submissions[e.job.Name].live--
	fs.forgetSubmissions(e.job.Name)
}

// forgetSubmissions deletes the count of a name without gangs in the Queue and without stored runs.
func (fs *foresight) forgetSubmissions(name string) {
	if s := fs.submissions[name]; s != nil && s.live == 0 && fs.runTimes[name] == nil {
		delete(fs.submissions, name)
	}
}

// runTimes is the history of one name.
type runTimes struct {
	tenant  string
	samples []sample                     // oldest first
	sorted  []sample                     // samples, shortest first; nil: not sorted yet
	nths    []int64                      // nth of all samples, ascending; nil: not sorted yet
	fresh   map[nearKind]*foreseen       // predictions for gangs that have not run yet
	last    int64                        // value of foresight.lessons when the latest run was added
	speeds  pal.Speeds                   // used to compute the samples' work; see [foresight.rate]
	byModel map[int]map[string]ModelRuns // by number of GPUs; see [foresight.RunsByModel]
}

// foresight predicts how long gangs run, from estimates and earlier runs. The order of the queue follows from these predictions.
type foresight struct {
	opt         *Options
	runTimes    map[string]*runTimes
	submissions map[string]*submissions // by name
	estimated   bool                    // a run with an estimate has been stored; see judge
	usual       time.Duration           // assumed run time without an estimate; see takeSilent
	lessons     int64                   // number of runs learned so far
	learned     map[string]struct{}     // names whose waiting gangs must be sorted again; see resort
	named       map[string][]*entry     // waiting gangs by the name that predicts their run time; see toldBy
	chances     []chance                // memory that remainingRunTime reuses
}

func newForesight(o *Options) foresight {
	return foresight{opt: o, usual: o.DefaultRuntime, runTimes: map[string]*runTimes{}, submissions: map[string]*submissions{},
		learned: map[string]struct{}{}, named: map[string][]*entry{}}
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
	h.last, h.sorted, h.nths, h.fresh, h.byModel = fs.lessons, nil, nil, nil, nil
	h.samples = append(slices.Clone(h.samples[max(0, len(h.samples)-maxSamples+1):]), s.at(h.speeds)) // copied, because clones share the old slice
}

// makeRoom deletes the history of one name if maxNames names are already stored. Of the names of
// the tenant with the most names, it deletes the name whose last run is the oldest.
func (fs *foresight) makeRoom() {
	if len(fs.runTimes) < maxNames {
		return
	}
	names, most := map[string]int{}, ""
	for _, h := range fs.runTimes {
		names[h.tenant]++
	}
	for tenant, n := range names {
		if n > names[most] || n == names[most] && tenant < most {
			most = tenant
		}
	}
	oldest := ""
	for name, h := range fs.runTimes {
		if h.tenant == most && (oldest == "" || h.last < fs.runTimes[oldest].last) {
			oldest = name
		}
	}
	delete(fs.runTimes, oldest)
	fs.forgetSubmissions(oldest)
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
		p := RunTimes{Name: name, Tenant: h.tenant, Last: h.last, Runs: make([]Run, len(h.samples))}
		for i, s := range h.samples {
			if p.Runs[i] = (Run{int64(s.work), int64(s.gpus), 0, int64(s.beside)}); s.model == "" {
				continue
			}
			if !slices.Contains(p.Models, s.model) {
				p.Models = append(p.Models, s.model)
			}
			p.Runs[i][0], p.Runs[i][2] = int64(s.time), int64(slices.Index(p.Models, s.model)+1)
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
		fs.forgetSubmissions(name)
	}
	stored = slices.Clone(stored)
	slices.SortFunc(stored, func(a, b RunTimes) int { return cmp.Compare(b.Last, a.Last) })
	for _, p := range stored[:min(len(stored), maxNames)] {
		h := &runTimes{tenant: p.Tenant, last: p.Last}
		runs := p.Runs[max(0, len(p.Runs)-maxSamples):]
		for i, r := range runs {
			if r[0] <= 0 || r[1] <= 0 {
				continue
			}
			s := sample{work: time.Duration(r[0]), gpus: int(r[1]), nth: int64(i - len(runs) + 1), beside: companyOf(r[3])}
			if r[2] > 0 && int(r[2]) <= len(p.Models) {
				s.model, s.time = p.Models[r[2]-1], s.work
			}
			if old := before[p.Name]; old != nil {
				h.speeds = old.speeds
			}
			h.samples = append(h.samples, s.at(h.speeds))
		}
		if p.Name != "" && len(h.samples) > 0 {
			fs.runTimes[p.Name], fs.lessons = h, max(fs.lessons, p.Last)
			fs.learned[p.Name] = struct{}{}
			fs.estimated = fs.estimated || strings.HasPrefix(p.Name, estimatesOf(""))
		}
	}
	fs.takeSilent()
}

// remaining returns how much longer a gang is expected to run, at cost 1. The prediction uses the
// first of these values that is known: the user's estimate, the history of the gang's name, the
// gang's run time so far. The result is at most the gang's limit. If only the limit is known, the
// result is the limit.
func (fs *foresight) remaining(e *entry, now time.Duration) time.Duration {
	if left := e.limit(now); left > 0 && !fs.knowsRunTime(e) {
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
	if left := e.limit(now); left > 0 {
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
	return fs.foresee(e, now, func(f *foreseen) *time.Duration { return &f.mean }, remainingRunTime.mean)
}

// index returns [remainingRunTime.index] of the gang, but at most its limit.
func (fs *foresight) index(e *entry, now time.Duration) time.Duration {
	return e.bounded(now, fs.foresee(e, now, func(f *foreseen) *time.Duration { return &f.index }, remainingRunTime.index))
}

// foreseen caches predictions for gangs that have not run yet; 0 means not computed yet.
type foreseen struct{ mean, index time.Duration }

// nearKind is the key of the cache runTimes.fresh. Gangs of one name with equal keys have the same
// prediction.
type nearKind struct {
	gpus  int
	near  int64 // see runTimes.near
	stops bool
}

// foresee applies `ask` to the distribution of the gang's remaining run time, and returns the
// result. For gangs that have not run yet, one result per nearKind is cached. The function `kept`
// returns the cache field for this result.
func (fs *foresight) foresee(e *entry, now time.Duration, kept func(*foreseen) *time.Duration, ask func(remainingRunTime) time.Duration) time.Duration {
	h := fs.runTimes[e.job.Name]
	if h == nil || e.job.Estimate > 0 || e.work(now) > 0 {
		return ask(fs.remainingRunTime(e, now))
	}
	kind := nearKind{e.whole(), h.near(e.nth), e.job.Preemptible}
	f := h.fresh[kind]
	if f == nil {
		if h.fresh == nil {
			h.fresh = map[nearKind]*foreseen{}
		}
		f = &foreseen{}
		h.fresh[kind] = f
	}
	d := kept(f)
	if *d == 0 {
		*d = ask(fs.remainingRunTime(e, now))
	}
	return *d
}

// near rounds the submission number of a gang. Thousands of waiting gangs then have only a few
// different numbers. The result is the number of the nearest stored run. Outside the stored runs,
// the distance to the first or last run is rounded down to a power of two.
func (h *runTimes) near(nth int64) int64 {
	if h.nths == nil {
		for _, s := range h.samples {
			h.nths = append(h.nths, s.nth)
		}
		slices.Sort(h.nths)
	}
	first, last := h.nths[0], h.nths[len(h.nths)-1]
	switch {
	case nth > last:
		return last + powerOf2(nth-last)
	case nth < first:
		return first - powerOf2(first-nth)
	}
	i, _ := slices.BinarySearch(h.nths, nth)
	if i > 0 && nth-h.nths[i-1] <= h.nths[i]-nth {
		i--
	}
	return h.nths[i]
}

// powerOf2 returns the greatest power of two that is at most n.
func powerOf2(n int64) int64 { return 1 << (bits.Len64(uint64(n)) - 1) }

// remainingRunTime is the predicted distribution of how much longer a gang runs, at cost 1. The
// distribution combines known runs with an unknown part, because it is possible that no known run
// predicts the gang. With a history, the unknown part has weight 1 or, if the gang cannot be
// stopped, [doubtOfMean]. With an estimate, the unknown part has no weight at first. A known run
// loses weight after the gang has run longer than this run.
type remainingRunTime struct {
	of    []chance // the known runs, shortest first
	again float64  // median remaining time of the unknown part, in seconds
	rest  float64  // weight of the unknown part
}

// chance is one possible remaining run time, in seconds. Weights need not add up to 1.
type chance struct{ left, weight float64 }

// remainingRunTime returns the distribution for a gang. If the gang's user gave an estimate, the
// earlier runs of the gang's name are not used. The list in the result is valid until the next
// call.
func (fs *foresight) remainingRunTime(e *entry, now time.Duration) remainingRunTime {
	done := e.work(now)
	o := remainingRunTime{again: max(done, fs.unknown(e)).Seconds(), of: fs.chances[:0]}
	if e.job.Estimate > 0 {
		p, left := outlasting(stretched(fs.Estimate(e.job), 1/e.job.best()), done)
		o.rest = 1 - p
		o.of = append(o.of, chance{left, p})
	} else {
		o.rest = doubtOfMean
		if fs.mayStop(e) {
			o.rest = 1
		}
		runs, whole, near := fs.sortedSamples(e.job.Name), e.whole(), int64(0)
		if len(runs) > 0 {
			near = fs.runTimes[e.job.Name].near(e.nth)
		}
		// Skip runs that the gang has outlasted by far: the shortest ones.
		first := sort.Search(len(runs), func(i int) bool { p, _ := outlasting(runs[i].work, done); return p > 0 })
		for _, s := range runs[first:] {
			p, left := outlasting(s.work, done)
			o.of = append(o.of, chance{left, p * likeness(s.gpus, whole) * nearness(s.nth, near)})
		}
	}
	fs.chances = o.of
	return o
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
		ended, spent, weight = ended+c.weight, spent+c.weight*c.left, weight-c.weight
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
	if h := fs.runTimes[name]; h != nil {
		return h.samples
	}
	return nil
}

// sortedSamples returns the stored runs of a name, shortest first.
func (fs *foresight) sortedSamples(name string) []sample {
	h := fs.runTimes[name]
	if h == nil {
		return nil
	}
	if h.sorted == nil {
		h.sorted = slices.SortedStableFunc(slices.Values(h.samples), func(a, b sample) int { return cmp.Compare(a.work, b.work) })
	}
	return h.sorted
}

// nearness returns the weight of an earlier run in the prediction of a gang. Submissions with the
// same name are numbered in order: a is the number of the run, b the number of the gang. Runs
// submitted close to the gang have more weight, because users submit similar jobs one after the
// other. The weight is 1 for adjacent submissions, 1/2 if there is one submission between them, 1/3
// if there are two, and so on.
func nearness(a, b int64) float64 { return 1 / float64(max(1, a-b, b-a)) }

// doubtOfMean is the weight of the unknown part for a gang that cannot be stopped. With the weight
// 1, the predicted mean of a name with long runs would be far too short.
const doubtOfMean = 0.1

// likeness returns the weight of an earlier run in the prediction of a gang, given the numbers of
// GPUs of both: the smaller number divided by the larger one.
func likeness(a, b int) float64 {
	if a > b {
		a, b = b, a
	}
	return float64(a) / float64(b)
}
