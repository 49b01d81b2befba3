// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Wait is what the queue says of a waiting job, as people see it.
type Wait struct {
	queue.Wait
	// never: the cluster could not hold it even if all GPUs were free and healthy, or its
	// tenant may not.
	never bool
	// Away: it waits for nodes, or for a driver or a device there, that are not ready now.
	Away bool
	// why is what it waits for, as a sentence without its subject.
	why string
}

// Why replaces the queue's where that does not know the reason.
func (w *Wait) Why() string { return cmp.Or(w.why, w.Wait.Why()) }

// Because is why a job waits or cannot start without the words that it does, for where these stand already: what
// is so. Of one that waits for something, or until something, it is all.
func Because(why string) string {
	return strings.TrimPrefix(strings.TrimPrefix(why, "waits: "), "cannot start: ")
}

// Idle is what it waits for while no placer is at work: nothing can be foretold.
func (w *Wait) Idle() {
	w.From, w.To = 0, 0
	if w.Reason == queue.ReasonNext || w.Reason == queue.ReasonLocality {
		w.why = "waits for a placer: its GPUs are free, but none is at work"
	}
}

// Barred says which group no node could take, even if it were idle; "" for none.
func Barred(found []nomad.Obstacle) string {
	lasting := map[string]int{}
	for _, o := range found {
		if !o.Now {
			lasting[o.Group] += o.Nodes
		}
		if lasting[o.Group] >= o.Total {
			return fmt.Sprintf("no node could take a member of group %q, even if it were idle", o.Group)
		}
	}
	return ""
}

// Obstruct takes over into a decision what keeps the gang from nodes.
func Obstruct(d *pal.Decision, found []nomad.Obstacle) {
	if why := Barred(found); !d.Impossible && why != "" {
		d.Impossible, d.Reason = true, why
	}
	d.Reason = withObstacles(d.Reason, !d.Impossible && d.Candidates.Free >= d.Demand, found)
}

// whereAway is what keeps a job from nodes that may come back, and that it could use then; "" if
// there are none.
func whereAway(found []nomad.Obstacle) string {
	var said []string
	for _, o := range found {
		if text := o.String(); o.Away && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return strings.Join(said, ", ")
}

// mostObstacles are named in a sentence; all are in the explanation.
const mostObstacles = 3

// withObstacles says in a reason what keeps a gang from nodes: what will not pass as jobs end,
// and, with passing, also what will.
func withObstacles(reason string, passing bool, found []nomad.Obstacle) string {
	var said []string
	for _, o := range found {
		if text := o.String(); (passing || !o.Now || o.Away) && !slices.Contains(said, text) { // several groups may lack the same
			said = append(said, text)
		}
	}
	switch {
	case len(said) == 0:
		return reason
	case len(said) > mostObstacles:
		said = append(said[:mostObstacles], fmt.Sprintf("%d more reasons", len(said)-mostObstacles))
	}
	return reason + ": " + strings.Join(said, ", ")
}

// WaitsOf is what each waiting job waits for, by its id in the queue. Those that
// could never run have no position: the others are counted without them. The queue
// takes GPUs that jobs of others hold for ones that are not there.
func (m *Model) WaitsOf(ws []queue.Wait, c *pal.Cluster) map[string]*Wait {
	out := map[string]*Wait{}
	whyNot := whyNotOnce(c)
	position := 0
	for _, w := range ws {
		shown := &Wait{Wait: w, never: w.Reason == queue.ReasonLimit}
		if t := m.ByID(w.Job); t != nil && w.Reason == queue.ReasonTooLarge {
			shown.never, shown.why = whyNot(m.View.Ever(t.Request))
			shown.Reason = queue.ReasonGPUs // others than the queue's gangs hold them, unless it never runs
			found := m.View.LastingObstacles(t.Job)
			if why := Barred(found); !shown.never && why != "" {
				shown.never, shown.why = true, why
			}
			if shown.never {
				shown.Reason = queue.ReasonTooLarge
				shown.why = withObstacles(shown.why, false, found)
			} else if never, _ := pal.WhyNot(c, t.Request.Least()); never {
				shown.Away, shown.why = true, "waits for nodes to be back: "+whereAway(found)
			}
		}
		if t := m.ByID(w.Job); t != nil && w.Reason == queue.ReasonServices {
			if away := whereAway(m.View.LastingObstacles(t.Job)); away != "" {
				shown.why = w.Why() + "; it may start when nodes are back: " + away
			}
		}
		if t := m.ByID(w.Job); t != nil && w.Reason == queue.ReasonNext && t.Trouble != "" {
			shown.why, shown.From, shown.To = t.Trouble, 0, 0 // it has been tried
		}
		if w.Reason == queue.ReasonLocality { // what is free now is not what it waits for
			shown.From = max(shown.From, gang.QueueTime(m.Time)) // 0 if nothing can be foretold
			shown.To = max(shown.From, w.Until)
		}
		if w.Reason == queue.ReasonScattered {
			var kept []string
			for _, k := range m.Queue.KeptFrom(gang.QueueTime(m.Time), w.Job) {
				kept = append(kept, fmt.Sprintf("window %s keeps %d GPUs from it until %s", k.Window, k.GPUs, Moment(k.To)))
			}
			if len(kept) > 0 {
				shown.why = w.Why() + ": " + strings.Join(kept, ", ")
			}
		}
		if w.Reason == queue.ReasonWindow {
			shown.why = fmt.Sprintf("waits until %s at the earliest: the GPUs that it could use are kept until then, and it may run into that", Moment(w.Until))
		}
		if shown.Position = 0; !shown.never {
			position++
			shown.Position = position
		}
		out[w.Job] = shown
	}
	return out
}

// whyNotOnce is [pal.WhyNot] that looks at a large cluster once for gangs that are alike.
func whyNotOnce(c *pal.Cluster) func(pal.Gang) (never bool, why string) {
	type answer struct {
		never bool
		why   string
	}
	known := map[string]answer{}
	return func(g pal.Gang) (bool, string) {
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
