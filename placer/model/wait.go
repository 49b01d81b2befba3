// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// Wait says what a job waits for. Wait is the queue's answer, prepared for people.
type Wait struct {
	queue.Wait
	// never is true if the gang could not run even on a free and healthy cluster, because the
	// cluster or the tenant's limit is too small.
	never bool
	// Away is true if the gang waits for nodes, drivers or devices that are not ready now.
	Away bool
	// why, if set, replaces the queue's reason.
	why reason.Reason
}

// Why returns what the gang waits for.
func (w *Wait) Why() reason.Reason {
	r := w.why.Or(w.Wait.Why())
	if w.Reason == reason.InWindow && w.why.IsZero() {
		r.Until = at(w.Until)
		if w.Begins > 0 {
			r.From = at(w.Begins)
		}
	}
	return r
}

// at converts a time in the queue's format to a time in UTC.
func at(d time.Duration) time.Time { return time.Unix(0, int64(d)).UTC() }

// Idle adapts the Wait to the case in which no placer is active. Without a placer, there is no
// forecast, and a job that only needs a decision waits for a placer.
func (w *Wait) Idle() {
	w.From, w.To = 0, 0
	switch w.Reason {
	case reason.Starting, reason.Stopping, reason.Shrinking, reason.Reserved, reason.Spared, reason.Order,
		reason.Locality, reason.Next:
		w.why = reason.Reason{Kind: reason.NoPlacer}
	}
}

// Barred returns a reason that names a group that no node could run, not even an idle node. Barred
// returns no reason if every group fits on some node.
func Barred(found []palapi.Obstacle) reason.Reason {
	lasting := map[string]int{}
	for _, o := range found {
		if !o.Now {
			lasting[o.Group] += o.Nodes
		}
		if lasting[o.Group] >= o.Total {
			return reason.Reason{Kind: reason.Barred, Group: o.Group}
		}
	}
	return reason.Reason{}
}

// Obstruct extends a decision by the obstacles that prevent the gang from using nodes.
func Obstruct(d *pal.Decision, found []palapi.Obstacle) {
	why := Barred(found)
	if !d.Impossible && !why.IsZero() {
		d.Impossible, d.Reason = true, why
	}
	passing := !d.Impossible && d.Candidates.Free >= d.Demand
	d.Reason = withObstacles(d.Reason, func(o palapi.Obstacle) bool { return passing || !o.Now || o.Away }, found)
}

// away returns a reason if the job waits for nodes that may come back, or zero if no such node
// could serve the job.
func away(found []palapi.Obstacle) reason.Reason {
	r := withObstacles(reason.Reason{Kind: reason.Away}, func(o palapi.Obstacle) bool { return o.Away }, found)
	if len(r.Because) == 0 {
		return reason.Reason{}
	}
	return r
}

// mostObstacles is the maximum number of obstacles in a reason. The explanation lists all
// obstacles.
const mostObstacles = 3

// withObstacles extends a reason by the obstacles for which counts returns true.
func withObstacles(r reason.Reason, counts func(palapi.Obstacle) bool, found []palapi.Obstacle) reason.Reason {
	var lacks []reason.Reason
	seen := map[string]bool{} // by text, because many groups can have the same obstacle
	for _, o := range found {
		if !counts(o) {
			continue
		}
		lack := o.Reason()
		text := string(lack.Kind) + " " + lack.String()
		if !seen[text] {
			seen[text], lacks = true, append(lacks, lack)
		}
	}
	more := len(lacks) - mostObstacles
	if more > 0 {
		lacks = append(lacks[:mostObstacles], reason.Reason{Kind: reason.More, Total: more})
	}
	return r.Over(lacks...)
}

// lasting reports whether an obstacle would remain if all running jobs ended.
func lasting(o palapi.Obstacle) bool { return !o.Now || o.Away }

// WaitsOf returns what each waiting job waits for. The keys of the map are the ids that the jobs
// have in the queue. Jobs that could never run get no position. If jobs outside the queue hold
// GPUs, the queue does not know why the GPUs are missing, so WaitsOf corrects the queue's reasons.
func (m *Model) WaitsOf(ws []queue.Wait, c *pal.Cluster) map[string]*Wait {
	out := map[string]*Wait{}
	whyNot := whyNotOnce(c)
	position := 0
	for _, w := range ws {
		shown := &Wait{Wait: w, never: w.Reason == reason.Limit}
		t := m.ByID(w.Job)
		if t != nil && w.Reason == reason.TooLarge {
			shown.never, shown.why = whyNot(m.View.Ever(t.Request))
			shown.Reason = reason.GPUs // other jobs hold the GPUs, unless the gang can never run
			found := m.View.LastingObstacles(t.Job)
			why := Barred(found)
			if !shown.never && !why.IsZero() {
				shown.never, shown.why = true, why
			}
			if shown.never {
				shown.Reason = reason.TooLarge
				shown.why = withObstacles(shown.why, lasting, found)
			} else if never, _ := pal.WhyNot(c, t.Request.Least()); never {
				shown.Away, shown.why = true, away(found)
			}
		}
		t = m.ByID(w.Job)
		if t != nil && w.Reason == reason.Services {
			shown.why = w.Why().Over(away(m.View.LastingObstacles(t.Job)).Because...)
		}
		t = m.ByID(w.Job)
		if t != nil && w.Reason == reason.Next && !t.Trouble().IsZero() {
			shown.why = t.Trouble()
			shown.From = 0
			shown.To = 0 // a start of the job has failed
		}
		if w.Reason == reason.Locality { // the job does not take the GPUs that are free now
			now := gang.QueueTime(m.Time)
			shown.To = max(now, w.Until)
			shown.From = min(max(shown.From, now), shown.To) // 0 if there is no forecast
		}
		if w.Reason == reason.Scattered {
			var kept []reason.Reason
			for _, k := range m.Queue.KeptFrom(gang.QueueTime(m.Time), w.Job, c) {
				free := freeOf(c, k.GPUs)
				if free > 0 {
					keeps := reason.Reason{Kind: reason.WindowKeeps, Window: k.Name, Needs: free, Until: at(k.To)}
					if at(k.From).After(m.Time) {
						keeps.From = at(k.From)
					}
					kept = append(kept, keeps)
				}
			}
			shown.why = w.Why().Over(kept...)
		}
		shown.Position = 0
		if !shown.never {
			position++
			shown.Position = position
		}
		out[w.Job] = shown
	}
	return out
}

// freeOf returns the number of free GPUs among the given GPUs.
func freeOf(c *pal.Cluster, gpus []int) (n int) {
	for _, u := range gpus {
		if c.Available(u) {
			n++
		}
	}
	return n
}

// whyNotOnce returns a function like [pal.WhyNot] that remembers its results. The search of a large
// cluster is slow, and many gangs have the same request.
func whyNotOnce(c *pal.Cluster) func(pal.Gang) (never bool, why reason.Reason) {
	type answer struct {
		never bool
		why   reason.Reason
	}
	known := map[string]answer{}
	return func(g pal.Gang) (bool, reason.Reason) {
		key := fmt.Sprint(g.Class, " ", g.MaxTier, " ", g.Demand())
		for _, s := range g.MemberSets {
			key += fmt.Sprintf(" %q", s.Name)
		}
		a, ok := known[key]
		if !ok {
			a.never, a.why = pal.WhyNot(c, g)
			known[key] = a
		}
		return a.never, a.why
	}
}
