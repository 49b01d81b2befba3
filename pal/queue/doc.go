// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package queue is the waiting line and what runs: which gang starts next, on
// which GPUs, who is stopped or moved for it, and what everybody else waits
// for. Like the rest of pal it is pure: the daemon drives it with the wall
// clock, the simulator with simulated time, and both run the same code.
//
// A [Line] hears what happens and is asked what to do. Times are durations
// since an epoch of the caller's, and never go back:
//
//	l, err := queue.New(queue.Options{Order: queue.LAS, Backfill: true, Preempt: true,
//		Placement: pal.Policy{Name: pal.PAL}})
//	err = l.Submit(now, queue.Job{ID: "web/train", Gang: gang, Submitted: now})
//	for _, a := range l.Decide(now, cluster) {
//		switch a.Kind {
//		case queue.Start:   // start a.Job on a.Placement, cluster.Take it, then
//			l.Started(now, a.Job, a.Placement) // or l.Requeue(now, a.Job) if it failed
//		case queue.Preempt: // stop a.Job for a.For; when it has stopped, cluster.Release, then
//			l.Stopped(now, a.Job) // or l.Kept(a.Job) if it could not be stopped
//		case queue.Migrate: // stop a.Job, start it on a.Placement, then
//			l.Started(now, a.Job, a.Placement) // or l.Stopped, or l.Kept
//		}
//	}
//	l.Finished(now, id) // by itself: its run teaches how long its name lasts
//	l.Removed(now, id)  // by its owner, or lost
//
// [Line.Decide] leaves the cluster as it found it: the caller takes and
// releases GPUs as things really happen. The GPUs of actions that were decided
// but not yet reported back are held by the Line, so that Decide may be called
// again in the meantime. A placer that starts anew tells the Line what runs
// with [Line.Restore]. [Line.Wake] says when to ask again if nothing happens.
// [Line.Waiting] lists who waits, in order, with the reason.
//
// GPU and device group numbers belong to one cluster; after building a new one
// call [Line.Rebase].
//
// # Who goes first
//
// [Options.Order] sorts the line. A gang that does not fit becomes the head:
// without [Options.Backfill] nothing behind it starts. With it, a gang behind
// the head starts if it is expected to end before the head's GPUs are free, or
// leaves the head's reserved GPUs alone; with [Options.Passing], wherever it
// fits. With [Options.Preempt] a gang may stop preemptible gangs of a worse
// level; levels are powers, so that equals never stop each other. A gang that
// could not run even if nothing else did, or whose tenant's quota is used up,
// holds nobody up. [Default] is what won in the simulator.
//
// # No starvation
//
// A gang that has waited longer than [Options.Pass] in all is overdue, for
// good: the overdue come first in any order, oldest first; behind an overdue
// head nothing starts, is stopped for another or moves; where preemption is on
// an overdue gang may stop any preemptible one, and only an older overdue gang
// may stop it. So a gang that could run starts at the latest when it has waited
// Pass, plus the time that the older overdue gangs and those then running still
// run (with preemption: plus the time the preemptible ones take to stop), and
// also where more work comes than the cluster can ever do, it runs to its end.
// Quotas and fair shares do not change that, except that a quota is never
// exceeded.
package queue
