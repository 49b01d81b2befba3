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

// maxSamples bounds what is remembered of a name, the oldest goes first; and
// maxNames the names, where that goes first which taught nothing for longest.
const (
	maxSamples = 64
	maxNames   = 200
)

// beyond is by how much of its time a run may be longer than another one of its
// name, or than its user's estimate, before that tells nothing of it any more.
const beyond = 0.4

// sample is one finished run: its work at cost 1, how many GPUs it had, and the how manyth submission
// of its name it was.
type sample struct {
	work time.Duration
	gpus int
	nth  int64
	// Of a run on one GPU model that is known: which, and how long it would take on the median GPUs of
	// that model. Its work follows from that by the speeds of its name.
	model string
	time  time.Duration
}

// submissions counts those of a name, for as long as gangs of it are here or runs are remembered.
type submissions struct {
	count int64
	live  int // gangs that are here
}

// submitted numbers a gang among those of its name, from 1.
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

// gone is that a gang is not here any more.
func (fs *foresight) gone(e *entry) {
	fs.submissions[e.job.Name].live--
	fs.forgetSubmissions(e.job.Name)
}

func (fs *foresight) forgetSubmissions(name string) {
	if s := fs.submissions[name]; s != nil && s.live == 0 && fs.history[name] == nil {
		delete(fs.submissions, name)
	}
}

// runHistory is what is remembered of a name.
type runHistory struct {
	tenant  string
	samples []sample                     // oldest first
	sorted  []sample                     // the same, shortest first; nil: to be sorted
	nths    []int64                      // of the samples, ascending; nil: to be sorted
	fresh   map[nearKind]*foreseen       // of gangs that have not run
	last    int64                        // number of the lesson that came last
	speeds  pal.Speeds                   // by which the samples' work is reckoned, see [foresight.rate]
	byModel map[int]map[string]ModelRuns // by GPUs, see [foresight.RunsByModel]
}

// foresight is how long gangs run, as their users, earlier runs and their own reports tell, and in which
// order that puts them.
type foresight struct {
	opt         *Options
	history     map[string]*runHistory
	submissions map[string]*submissions // by name
	estimated   bool                    // somebody says how long gangs run
	usual       time.Duration           // what silence is taken for, see learnSilent
	lessons     int64                   // taken in so far
	learned     map[string]struct{}     // names whose gangs must be sorted again
	named       map[string][]*entry     // waiting gangs by the name that tells how long they run
	chances     []chance                // memory of outlook
}

func newForesight(o *Options) foresight {
	return foresight{opt: o, usual: o.DefaultRuntime, history: map[string]*runHistory{}, submissions: map[string]*submissions{},
		learned: map[string]struct{}{}, named: map[string][]*entry{}}
}

// learn remembers a finished run: what is expected of those gangs changes that wait and are
// told by its name.
func (fs *foresight) learn(tenant, name string, s sample) {
	if name == "" || s.work <= 0 {
		return
	}
	fs.note(tenant, name, s)
	fs.learned[name] = struct{}{}
}

// note adds a finished run.
func (fs *foresight) note(tenant, name string, s sample) {
	fs.lessons++
	h := fs.history[name]
	if h == nil {
		fs.makeRoom()
		h = &runHistory{tenant: tenant}
		fs.history[name] = h
	}
	h.last, h.sorted, h.nths, h.fresh, h.byModel = fs.lessons, nil, nil, nil, nil
	h.samples = append(slices.Clone(h.samples[max(0, len(h.samples)-maxSamples+1):]), s.at(h.speeds)) // clones have the old ones
}

// makeRoom forgets a name where there are as many as may be: one of the tenant with
// the most, so that whoever gives each job a name of its own makes nobody else's
// forgotten.
func (fs *foresight) makeRoom() {
	if len(fs.history) < maxNames {
		return
	}
	names, most := map[string]int{}, ""
	for _, h := range fs.history {
		names[h.tenant]++
	}
	for tenant, n := range names {
		if n > names[most] || n == names[most] && tenant < most {
			most = tenant
		}
	}
	oldest := ""
	for name, h := range fs.history {
		if h.tenant == most && (oldest == "" || h.last < fs.history[oldest].last) {
			oldest = name
		}
	}
	delete(fs.history, oldest)
	fs.forgetSubmissions(oldest)
	fs.learned[oldest] = struct{}{}
}

// RunHistory is what is remembered of the runs of a name, to be kept while there is
// no Queue.
type RunHistory struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant,omitempty"`
	// Last grows with each lesson of the Queue: names with the smallest are
	// forgotten first.
	Last int64 `json:"last"`
	// Models are GPU models that runs were on.
	Models []string `json:"models,omitempty"`
	// Runs are the finished ones, oldest first.
	Runs []Run `json:"runs"`
}

// Run is a finished run: how long it would take on the median GPUs of its model, in nanoseconds; GPUs;
// and which of Models that is, from 1. 0: several, or it is not known; then the time is at cost 1.
type Run [3]int64

// History is all that is remembered, by name.
func (fs *foresight) History() []RunHistory {
	out := make([]RunHistory, 0, len(fs.history))
	for name, h := range fs.history {
		p := RunHistory{Name: name, Tenant: h.tenant, Last: h.last, Runs: make([]Run, len(h.samples))}
		for i, s := range h.samples {
			if p.Runs[i] = (Run{int64(s.work), int64(s.gpus)}); s.model == "" {
				continue
			}
			if !slices.Contains(p.Models, s.model) {
				p.Models = append(p.Models, s.model)
			}
			p.Runs[i][0], p.Runs[i][2] = int64(s.time), int64(slices.Index(p.Models, s.model)+1)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b RunHistory) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Lessons counts the runs taken in: the history is as it was while it stays.
func (fs *foresight) Lessons() int64 { return fs.lessons }

// Remember replaces what is remembered by what an earlier Queue knew. Runs that
// make no sense are left out. They count as the submissions just before those that the Queue has heard of.
func (fs *foresight) Remember(history []RunHistory) {
	for name := range fs.history {
		fs.learned[name] = struct{}{}
	}
	before := fs.history
	fs.history, fs.lessons = map[string]*runHistory{}, 0
	for name := range before {
		fs.forgetSubmissions(name)
	}
	history = slices.Clone(history)
	slices.SortFunc(history, func(a, b RunHistory) int { return cmp.Compare(b.Last, a.Last) })
	for _, p := range history[:min(len(history), maxNames)] {
		h := &runHistory{tenant: p.Tenant, last: p.Last}
		runs := p.Runs[max(0, len(p.Runs)-maxSamples):]
		for i, r := range runs {
			if r[0] <= 0 || r[1] <= 0 {
				continue
			}
			s := sample{work: time.Duration(r[0]), gpus: int(r[1]), nth: int64(i - len(runs) + 1)}
			if r[2] > 0 && int(r[2]) <= len(p.Models) {
				s.model, s.time = p.Models[r[2]-1], s.work
			}
			if old := before[p.Name]; old != nil {
				h.speeds = old.speeds
			}
			h.samples = append(h.samples, s.at(h.speeds))
		}
		if p.Name != "" && len(h.samples) > 0 {
			fs.history[p.Name], fs.lessons = h, max(fs.lessons, p.Last)
			fs.learned[p.Name] = struct{}{}
			fs.estimated = fs.estimated || strings.HasPrefix(p.Name, estimatesOf(""))
		}
	}
	fs.takeSilent()
}

// remaining is how long a gang is expected to run on, at cost 1: by its user's
// estimate, by the history of its name, or as long as it ran already; until its
// limit at most, which is what is expected where there is neither estimate nor history.
func (fs *foresight) remaining(e *entry, now time.Duration) time.Duration {
	if left := e.limit(now); left > 0 && !fs.told(e) && !e.tells(now) {
		return left
	}
	return e.bounded(now, fs.expected(e, now))
}

// told reports whether its user or the history of its name tells how long the gang runs.
func (fs *foresight) told(e *entry) bool {
	return e.job.Estimate > 0 || len(fs.samples(e.job.Name)) > 0
}

// bounded is a time that the gang may run on, its limit where that is shorter.
func (e *entry) bounded(now, d time.Duration) time.Duration {
	if left := e.limit(now); left > 0 {
		return min(left, d)
	}
	return d // no limit, or it is being ended
}

// limit is how long the gang may run on at most, at cost 1; 0 or less where
// nothing says so, or it should have ended. Each run has the whole limit.
func (e *entry) limit(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.job.Limit
	}
	return time.Duration(float64(e.job.Limit-max(0, now-e.startedAt)) / e.cost(e.placement))
}

// expected is [foresight.remaining] without a limit. What is not known of a gang that
// outlasts all that is known is that it runs as long again.
func (fs *foresight) expected(e *entry, now time.Duration) time.Duration {
	return fs.foresee(e, now, func(f *foreseen) *time.Duration { return &f.mean }, outlook.mean)
}

// index is [outlook.index] of the gang, until its limit at most.
func (fs *foresight) index(e *entry, now time.Duration) time.Duration {
	return e.bounded(now, fs.foresee(e, now, func(f *foreseen) *time.Duration { return &f.index }, outlook.index))
}

// foreseen is what was told of gangs that have not run; 0: it was not yet.
type foreseen struct{ mean, index time.Duration }

// nearKind is what gangs of a name have in common of which the same is foreseen before they run.
type nearKind struct {
	gpus  int
	near  int64 // see runHistory.near
	stops bool
}

// foresee asks the gang's outlook; of gangs of a kind that have not run yet it does so once.
func (fs *foresight) foresee(e *entry, now time.Duration, kept func(*foreseen) *time.Duration, ask func(outlook) time.Duration) time.Duration {
	h := fs.history[e.job.Name]
	if h == nil || e.job.Estimate > 0 || e.work(now) > 0 {
		return ask(fs.outlook(e, now))
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
		*d = ask(fs.outlook(e, now))
	}
	return *d
}

// near is which submission of the name a gang counts as, so that of thousands of gangs that wait few are
// different: the nearest one that is remembered, or, before and after these, one that is a power of two away.
func (h *runHistory) near(nth int64) int64 {
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

// powerOf2 is the greatest power of two that is not above n.
func powerOf2(n int64) int64 { return 1 << (bits.Len64(uint64(n)) - 1) }

// outlook is the distribution of how long a gang may run on, at cost 1: as long as one of
// the runs that are known, or as long as nobody knows. Beside a history the unknown weighs
// as the last run of the gang's size, or, where the gang cannot be stopped, [doubtOfMean] of it: beside an estimate
// nothing at first. What the gang has outlasted loses its weight, so the unknown gains.
type outlook struct {
	of    []chance // the known ones, shortest first
	again float64  // how long it runs on if nobody knows, in seconds
	rest  float64  // the weight of that
}

// chance is one way to run on: for so many seconds. Weights need not add up to 1.
type chance struct{ left, weight float64 }

// outlook works it out for a gang, by the estimate alone if its user gave one. Its list is
// valid until the next call, which uses the same memory: a pass may ask for thousands.
func (fs *foresight) outlook(e *entry, now time.Duration) outlook {
	done := e.work(now)
	o := outlook{again: max(done, fs.unknown(e)).Seconds(), of: fs.chances[:0]}
	if e.job.Estimate > 0 {
		p, left := outlasting(fs.Estimate(e.job), done)
		o.rest = 1 - p
		o.of = append(o.of, chance{left, p})
	} else {
		o.rest = doubtOfMean
		if fs.mayStop(e) {
			o.rest = 1
		}
		runs, whole, near := fs.sortedSamples(e.job.Name), e.whole(), int64(0)
		if len(runs) > 0 {
			near = fs.history[e.job.Name].near(e.nth)
		}
		// Those that it has outlasted by far, the shortest, tell nothing any more.
		first := sort.Search(len(runs), func(i int) bool { p, _ := outlasting(runs[i].work, done); return p > 0 })
		for _, s := range runs[first:] {
			p, left := outlasting(s.work, done)
			o.of = append(o.of, chance{left, p * likeness(s.gpus, whole) * nearness(s.nth, near)})
		}
	}
	o = o.withReports(e, done)
	fs.chances = o.of
	return o
}

// mean is the expected time; of those of which nobody knows it is again.
func (o outlook) mean() time.Duration {
	weight, sum := o.rest, o.rest*o.again
	for _, c := range o.of {
		weight, sum = weight+c.weight, sum+c.weight*c.left
	}
	return seconds(sum / weight)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// doubt is how many times longer than without a history an index may be because of
// one: a gang whose name ran long before may be short, and must get to show it some time.
// It was chosen on virtual clusters of the Philly trace. With 1, 2, 4, 8 and 16 the
// average JCT was 1.013, 0.993, 0.974, 0.963 and 0.960 times that of the best other
// policy that knows as little, and the p99 of the slowdown at worst 1.4, 2.1, 1.7, 2.4
// and 6.4 times the least; without a bound 37 times.
const doubt = 8

// index is the Gittins index as a time: how long the gang must run, at best, for
// each time that one like it ends. When some runs of a name are short and some
// very long, it is short until the gang has outlasted the short ones; their mean
// would make all of them look long. (Tiresias's 2D-Gittins index is that of GPU time.)
//
// At best means: over all times after which one could give up on the gang. It is enough to
// try the known ends, and a moment after the start, when only those of which nobody knows
// can end: each time, what the gang is expected to run until then, over the chance that
// it has ended.
func (o outlook) index() time.Duration {
	weight := o.rest
	for _, c := range o.of {
		weight += c.weight
	}
	best := math.Inf(1)
	if o.rest > 0 {
		best = o.again * weight / o.rest
	}
	ended, spent := 0.0, 0.0 // weight of those that end by then, and what they run
	for _, c := range o.of {
		ended, spent, weight = ended+c.weight, spent+c.weight*c.left, weight-c.weight
		run := spent + (weight-o.rest)*c.left + o.rest*o.again*math.Log1p(c.left/o.again)
		ends := ended + o.rest*c.left/(o.again+c.left)
		if run < best*ends {
			best = run / ends
		}
	}
	if o.rest > 0 {
		best = min(best, doubt*o.again)
	}
	return seconds(best)
}

// outlasting is how far a run of a known length still says something of one that
// has done so much, from 1 down to 0, and how many seconds are left by it. Runs of
// a name are never quite as long as each other: one that is about to end must not
// look as if it had only begun.
func outlasting(length, done time.Duration) (possible, left float64) {
	possible = 1
	if done > length {
		possible -= min(1, float64(done-length)/(beyond*float64(length)))
	}
	window := time.Duration((1+beyond)*float64(length)) - done
	return possible, max(0, length-done, window/2).Seconds()
}

// samples are those of a name, oldest first; nil if nothing is known of it.
func (fs *foresight) samples(name string) []sample {
	if h := fs.history[name]; h != nil {
		return h.samples
	}
	return nil
}

// sortedSamples are the samples of a name, shortest first.
func (fs *foresight) sortedSamples(name string) []sample {
	h := fs.history[name]
	if h == nil {
		return nil
	}
	if h.sorted == nil {
		h.sorted = slices.SortedStableFunc(slices.Values(h.samples), func(a, b sample) int { return cmp.Compare(a.work, b.work) })
	}
	return h.sorted
}

// nearness weighs a run by how many submissions of its name lie between it and the gang: users submit
// what is alike one after the other. A half for one in between, a third for two.
func nearness(a, b int64) float64 { return 1 / float64(max(1, a-b, b-a)) }

// doubtOfMean is how much the unknown weighs for a gang that cannot be stopped. It is short, so with
// all of its weight the mean of whatever is known to be long is far too short, and who then starts
// cannot be corrected.
const doubtOfMean = 0.1

// likeness weighs a run by how near its size is: 1 for the same, a half if one is
// twice the other.
func likeness(a, b int) float64 {
	if a > b {
		a, b = b, a
	}
	return float64(a) / float64(b)
}
