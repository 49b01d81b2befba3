// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Reason says what a waiting gang waits for.
type Reason string

// The reasons.
const (
	ReasonStarting  Reason = "starting"   // decided, on its way
	ReasonStopping  Reason = "stopping"   // gangs are being stopped for it
	ReasonShrinking Reason = "shrinking"  // elastic gangs give GPUs back for it
	ReasonTooLarge  Reason = "too-large"  // could not run on the empty cluster
	ReasonLimit     Reason = "limit"      // its tenant may never hold so many
	ReasonQuota     Reason = "quota"      // its tenant's quota is used up
	ReasonArray     Reason = "array"      // as many of its array run as may
	ReasonGPUs      Reason = "gpus"       // too few GPUs are free
	ReasonScattered Reason = "scattered"  // enough are free, but not where it could use them
	ReasonServices  Reason = "services"   // it does not fit without GPUs of services, which do not end
	ReasonReserved  Reason = "reserved"   // those it could use are kept for a gang ahead
	ReasonOrder     Reason = "order"      // it fits, but nobody passes the head (BackfillNone)
	ReasonWindow    Reason = "window"     // the GPUs it could use are kept for maintenance, or for others
	ReasonLocality  Reason = "locality"   // it fits, but hopes for GPUs closer together
	ReasonNext      Reason = "next-round" // it fits: the next decision starts it
)

// Reasons are all of them.
var Reasons = []Reason{ReasonStarting, ReasonStopping, ReasonShrinking, ReasonTooLarge, ReasonLimit, ReasonQuota, ReasonArray,
	ReasonGPUs, ReasonScattered, ReasonServices, ReasonReserved, ReasonOrder, ReasonWindow, ReasonLocality, ReasonNext}

// Wait is a waiting gang and why it waits.
type Wait struct {
	Job      string `json:"job"`
	Position int    `json:"position"` // in the queue, from 1
	// Reason: it is "starting"; gangs are "stopping" for it, or are only "shrinking"; it could not run on
	// the empty cluster ("too-large"), or its tenant may never hold so many GPUs ("limit"); the
	// tenant's "quota" is used up; as many of its "array" run as may; too few GPUs are free
	// ("gpus"), or not where it could use them ("scattered"); "services" hold too many of those that
	// it could use, and do not end; the free ones are kept for a gang ahead ("reserved"), or for
	// maintenance or others ("window"); nobody passes the gang ahead in strict "order"; it hopes for GPUs closer together ("locality"); or it
	// starts with the "next-round".
	Reason  Reason `json:"reason"`
	Overdue bool   `json:"overdue,omitempty"` // it has waited in all for longer than max_wait, or twice its estimate
	GPUs    int    `json:"gpus"`              // it needs, an elastic gang at least
	Most    int    `json:"most,omitempty"`    // GPUs that an elastic gang could use
	Free    int    `json:"free"`              // free now, of those that it could use
	// FreeOthers are those that are free and that it could not use.
	FreeOthers int    `json:"free_others,omitempty"`
	Limit      int    `json:"limit,omitempty"` // GPUs that its tenant may hold at most, where Reason is "limit"
	Ahead      string `json:"ahead,omitempty"` // the gang that goes first, "" for that one itself
	// AheadGPUs is what those ahead need in all.
	AheadGPUs int      `json:"ahead_gpus,omitempty"`
	Stopping  []string `json:"stopping,omitempty"`  // gangs being stopped for it
	Shrinking []string `json:"shrinking,omitempty"` // elastic gangs giving members back for it
	// From and To are between when it is expected to start, eight times in ten, since
	// the caller's epoch; both 0 if that cannot be told: neither have a few gangs
	// waited yet, nor are the run times of those running and ahead known.
	From, To time.Duration `json:"-"`
	// Until is when it stops hoping for GPUs closer together, where Reason is
	// ReasonLocality: it then starts on those that are free; and when the window ends,
	// where it is ReasonWindow.
	Until time.Duration `json:"-"`
	// spares: it is a service that waits until Ahead, which is behind it, has run.
	spares bool
}

// String is the wait as one line for people.
func (w Wait) String() string {
	return fmt.Sprintf("#%d %s: %s", w.Position, w.Job, w.Why())
}

// Why is what the gang waits for, as a sentence without its subject: position
// and name stand beside it where it is shown.
func (w Wait) Why() string {
	switch w.Reason {
	case ReasonStarting:
		return "is starting"
	case ReasonStopping:
		until := have(w.Stopping) + " stopped for it"
		if len(w.Shrinking) > 0 {
			until += ", and " + w.givenBack()
		}
		return "waits until " + until
	case ReasonShrinking:
		return "waits until " + w.givenBack()
	case ReasonTooLarge:
		return fmt.Sprintf("cannot start: it needs %s of a kind and place that the cluster does not have (unhealthy GPUs and those in quarantine do not count)", pal.CountGPUs(w.GPUs))
	case ReasonLimit:
		return fmt.Sprintf("cannot start: it needs %s, and its tenant may hold %d at most (quota and borrowing_limit)", pal.CountGPUs(w.GPUs), w.Limit)
	case ReasonQuota:
		return "waits: its tenant's quota is used up"
	case ReasonArray:
		return "waits: as many jobs of its array run as may at a time (pal_array_parallel)"
	case ReasonScattered:
		if w.Free == 1 {
			return "waits: 1 GPU is free, but not where it could run"
		}
		return fmt.Sprintf("waits: %s %s free, but not where its %d could run", pal.CountGPUs(w.Free), pal.Are(w.Free), w.GPUs)
	case ReasonServices:
		return fmt.Sprintf("waits: it needs %s, and services hold too many of those that it could use now; they run until somebody stops them", pal.CountGPUs(w.GPUs))
	case ReasonReserved:
		return fmt.Sprintf("waits: the free GPUs that it could use are kept for %s, which goes first", w.Ahead)
	case ReasonOrder:
		return fmt.Sprintf("waits: %s goes first, and nobody passes it in strict order (backfill = none)", w.Ahead)
	case ReasonWindow:
		return "waits for the end of a window: the GPUs that it could use are kept for maintenance or a reservation, and it may still run when that begins"
	case ReasonLocality:
		return "waits for a while for GPUs that are faster, or closer together"
	case ReasonNext:
		return "starts with the next decision"
	}
	others := ""
	if w.FreeOthers > 0 {
		others = fmt.Sprintf("; it could not run on %s more that %s free", pal.CountGPUs(w.FreeOthers), pal.Are(w.FreeOthers))
	}
	return fmt.Sprintf("waits: it needs %s, %d %s free%s", pal.CountGPUs(w.GPUs), w.Free, pal.Are(w.Free), others)
}

// givenBack is what elastic gangs will have done.
func (w Wait) givenBack() string {
	they := "it"
	if len(w.Shrinking) > 1 {
		they = "they"
	}
	return fmt.Sprintf("%s given back members that %s could do without", have(w.Shrinking), they)
}

// have lists gangs with the verb.
func have(ids []string) string {
	if len(ids) == 1 {
		return ids[0] + " has"
	}
	return strings.Join(ids, ", ") + " have"
}

// Waiting lists the waiting gangs in their order, each with what it waits for.
// It decides nothing and leaves the cluster as it is. Where there are windows it looks for
// GPUs for each gang for which enough are free, not once for each kind of gang.
func (q *Queue) Waiting(now time.Duration, c *pal.Cluster) []Wait {
	return q.waits(now, c, func(ws []Wait) []int { return positions(len(ws)) })
}

// positions are those of all of so many.
func positions(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// WaitingAt is Waiting for those who ask about few gangs of a long queue: of those at some
// parts of it from 0 to 1, the gangs aside that are starting, but of no more than wait. Most
// of what Waiting takes is to foretell the starts of all.
func (q *Queue) WaitingAt(now time.Duration, c *pal.Cluster, parts []float64) []Wait {
	return q.waits(now, c, func(ws []Wait) (at []int) {
		first := 0
		for first < len(ws) && ws[first].Reason == ReasonStarting { // they come before all others
			first++
		}
		n := len(ws) - first
		for _, part := range parts[:min(len(parts), n)] {
			at = append(at, first+int(part*float64(n)))
		}
		return at
	})
}

// waits lists those of the waiting gangs that are chosen, by their positions.
func (q *Queue) waits(now time.Duration, c *pal.Cluster, choose func([]Wait) []int) []Wait {
	q.hurry(now)
	p := &pass{Queue: q, c: c, now: now, rooms: map[*fitKind]*room{}, found: map[signature]foundNow{}}
	defer p.putBack()
	p.holdPending() // as Decide does before it goes through the queue
	for _, cl := range q.claims {
		p.keep(cl.placement)
	}
	p.keepForMoving()
	queue := p.inOrder()
	all := p.whys(queue)
	of := choose(all)
	p.expect(queue, all, of)
	ws := make([]Wait, 0, len(of))
	for _, i := range of {
		ws = append(ws, all[i])
	}
	return ws
}

// whys is what each gang of the queue waits for.
func (p *pass) whys(queue []*entry) []Wait {
	ws := make([]Wait, 0, len(queue))
	var head *entry
	ahead, aheadGPUs, free := "", 0, p.freeOnce()
	for i, e := range queue {
		p.toLeast(e)
		w := Wait{Job: e.job.ID, Position: i + 1, GPUs: e.gpus, Most: e.most(), Free: free(e), Overdue: e.overdue,
			Ahead: ahead, AheadGPUs: aheadGPUs}
		w.FreeOthers = p.c.FreeGPUs() - w.Free
		var spares *entry
		if e.claim != nil {
			w.Reason, w.Stopping, w.Shrinking = e.claim.reason()
		} else {
			w.Reason, spares = p.reason(e, head, w.Free)
		}
		if w.Reason == ReasonLocality {
			pl, _ := p.placeNow(e)
			w.Until, _ = p.waitsForLocality(e, pl)
		}
		if w.Reason == ReasonWindow {
			w.Until = p.barring(e).To
		}
		if w.Reason == ReasonLimit {
			w.Limit, _ = e.tooLargeFor(0).limit()
		}
		if w.spares = spares != nil; w.spares {
			w.Ahead = spares.job.ID
		} else if e.state == waiting && w.Reason.holdsUp() {
			if head == nil {
				head, ahead = e, e.job.ID
			}
			aheadGPUs += e.gpus
		}
		ws = append(ws, w)
	}
	return ws
}

// freeOnce is how many of the free GPUs a gang could use: counted once for gangs that are alike.
func (p *pass) freeOnce() func(e *entry) int {
	known := map[*fitKind]int{}
	return func(e *entry) int {
		k := p.kindOf(e)
		n, ok := known[k]
		if !ok {
			n = pal.FreeFor(p.c, e.job.Gang)
			known[k] = n
		}
		return n
	}
}

// holdsUp says whether those behind a gang that waits for this wait for it, too: GPUs are kept
// for no gang that could not use them, does not want those that are free, or has others stopped
// for it.
func (r Reason) holdsUp() bool {
	return r.forGPUs() && r != ReasonLocality && r != ReasonStopping && r != ReasonShrinking
}

// forGPUs says whether GPUs are all that it waits for.
func (r Reason) forGPUs() bool {
	switch r {
	case ReasonTooLarge, ReasonLimit, ReasonQuota, ReasonArray, ReasonWindow, ReasonServices:
		return false
	}
	return true
}

// inOrder lists starting gangs, then the overdue one whose turn it is, then the
// others that wait in order.
func (p *pass) inOrder() []*entry {
	var es []*entry
	for _, e := range p.pending {
		if e.state == starting {
			es = append(es, e)
		}
	}
	first := len(es)
	for _, b := range p.live {
		for i := range b.es {
			es = append(es, b.es[i].e)
		}
	}
	slices.SortFunc(es[first:], func(a, b *entry) int {
		if p.turn != nil && (a == p.turn.by) != (b == p.turn.by) {
			if a == p.turn.by {
				return -1
			}
			return 1
		}
		return a.key.compare(b.key)
	})
	if p.turn != nil && first < len(es) && es[first] == p.turn.by {
		first++
	}
	p.inTurns(es[first:])
	return es
}

// reason is what a gang waits for that nobody is stopped for, and which one it spares if it is a service
// that fits. The first that holds is told: what is decided, then what does not depend on free GPUs (the
// cluster, the array, the quota, a window), then the GPUs, so many of which are free. head is the first
// gang that waits for GPUs, nil for none: it may be why a gang that fits does not start.
func (p *pass) reason(e, head *entry, free int) (r Reason, spares *entry) {
	if e.state == starting {
		return ReasonStarting, nil
	}
	switch {
	case !p.possible(e):
		return ReasonTooLarge, nil
	case e.tooLargeFor(0) != nil:
		return ReasonLimit, nil
	case p.overArray(e):
		return ReasonArray, nil
	case p.overQuota(e):
		return ReasonQuota, nil
	case p.barring(e) != nil:
		return ReasonWindow, nil
	case e.gpus > free:
		return p.unless(e, ReasonGPUs), nil
	}
	pl, ok := p.placeNow(e)
	switch {
	case !ok:
		return p.unless(e, ReasonScattered), nil
	case head != nil && p.opt.Backfill == BackfillNone:
		return ReasonOrder, nil
	case head != nil && pal.Compete(p.c, head.job.Gang, e.job.Gang):
		return ReasonReserved, nil
	}
	if _, waits := p.waitsForLocality(e, pl); waits {
		return ReasonLocality, nil
	}
	if p.ends(e) {
		return ReasonNext, nil
	}
	if f, ok := p.find(e); ok {
		if _, by := p.sparing(e, f); by != nil {
			return ReasonReserved, by
		}
	}
	return ReasonNext, nil
}

// unless is the reason, unless the gang waits for services.
func (p *pass) unless(e *entry, r Reason) Reason {
	if !p.awaits(e) {
		return ReasonServices
	}
	return r
}

// foundNow is what place says of a kind of gang while the cluster stays as it is.
type foundNow struct {
	pl pal.Placement
	ok bool
}

// placeNow is place for one gang of each kind, if it does not matter how long they run.
func (p *pass) placeNow(e *entry) (pal.Placement, bool) {
	if f, known := p.found[e.sig]; known && len(p.windows.list) == 0 {
		return f.pl, f.ok
	}
	pl, ok := p.place(e)
	p.found[e.sig] = foundNow{pl, ok}
	return pl, ok
}

// fitsWithout says whether the gang would fit without some that run. One that fits now
// would then, too, and that is cheaper to find out.
func (p *pass) fitsWithout(e *entry, without func(func())) (fits bool) {
	defer p.withoutWindows()()
	if e.gpus <= p.c.FreeGPUs() {
		if _, ok := p.place(e); ok {
			return true
		}
	}
	without(func() { _, fits = p.place(e) })
	return fits
}
