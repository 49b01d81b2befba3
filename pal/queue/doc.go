// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package queue decides which waiting gang starts next and on which GPUs, which running
// gangs are stopped, moved or resized for that, and tells what everybody else waits
// for. Like the rest of pal it is pure: the daemon drives it with the wall
// clock, the simulator with simulated time, and both run the same code.
//
// A [Queue] hears what happens and is asked what to do. Times are durations
// since an epoch of the caller's, and never go back:
//
//	q, err := queue.New(queue.Default())
//	err = q.Submit(now, queue.Job{ID: "web/train", Gang: gang, Submitted: now})
//	for _, a := range q.Decide(now, cluster) {
//		switch a.Kind {
//		case queue.Start:   // start a.Job on a.Placement, cluster.Take it, then
//			q.Started(now, a.Job, a.Placement) // or q.Requeue(now, a.Job) if it failed
//		case queue.Preempt: // stop a.Job for a.For; when it has stopped, cluster.Release, then
//			q.Stopped(now, a.Job) // or q.NotStopped(a.Job) if it could not be stopped
//		case queue.Migrate: // stop a.Job, start it on a.Placement, then
//			q.Started(now, a.Job, a.Placement) // or q.Stopped, or q.NotStopped
//		case queue.Resize: // end or start members of a.Job until they are those of a.Placement, then
//			q.Started(now, a.Job, a.Placement) // or q.NotStopped
//		}
//	}
//	q.Reported(now, id, 0.42)          // a running gang reports how much it has done
//	q.SetPlacement(now, id, placement) // members ended by themselves, or got other GPUs
//	q.Finished(now, id) // by itself: its run teaches how long its name lasts
//	q.Removed(now, id)  // by its owner, or lost
//
// [Queue.Decide] leaves the cluster as it found it: the caller takes and
// releases GPUs as things really happen. The GPUs of actions that were decided
// but not yet reported back are held by the Queue, so that Decide may be called
// again in the meantime. A placer that starts again tells the Queue what runs
// with [Queue.Restore]. [Queue.Wake] says when to ask again if nothing happens.
// [Queue.Waiting] lists who waits, in order, with the reason.
//
// GPU and device group numbers belong to one cluster; after building a new one
// call [Queue.Rebase].
//
// # One ledger
//
// Who holds which GPU is the caller's to say, and there is one ledger of it: the cluster
// that Decide is given, and for each gang the placement that was reported last. The
// Queue's placements are nothing else; it changes none by itself. They are no second ledger
// but what the Queue has reckoned with: sizes, usage, work done, expected ends and levels are
// derived when a placement is reported, and lists are sorted by them. So a placement cannot be
// looked up as it is asked for: what is derived would be of another one. What was decided and
// not reported yet (starts, moves, claims) is a plan, and in no ledger.
//
// Before each Decide every gang that runs, or is being stopped, must be reported on just the
// GPUs that it holds ([Queue.SetPlacement]). To report the same again changes nothing, so the
// caller reports whatever may have changed and compares nothing. Gangs that go on as they were
// are not reported: a pass at 10,000 gangs costs nothing for them.
//
// # Its parts
//
// A Queue is made of parts that know nothing of each other: foresight (how long gangs run, and the order
// that follows), book (who waits), runners and levels (who runs, and who may be stopped), tenancy,
// gangKinds, windows, lending, account and forecasts. A pass is made of layers, each of which uses only
// those before it: whatIf (the cluster as it would be), finder (where one gang fits), planner (whom a
// start would delay), and on top pass, which decides, and asker, which only tells.
//
// # Who goes first
//
// [Options.Order] sorts the queue. A gang that does not fit becomes the head:
// with [BackfillNone] nothing behind it starts. With [BackfillReserved] (EASY), a gang
// behind the head starts if it is expected to end before the head's GPUs are
// free, or leaves the head's reserved GPUs alone. With [Options.Preempt] a gang
// may stop gangs of a worse level that allow it; levels are powers, so that
// gangs of much the same rank never stop each other. A gang that may be stopped starts wherever
// it fits, whatever is reserved for the head, also if it is of the head's level, so that the head
// cannot stop it: keeping GPUs from such gangs makes some gangs wait less and others more, and
// the turns of the overdue bound what the head waits. A gang that could not run even if nothing else did, or whose tenant's
// limit is reached, holds nobody up. [Default] is the policy of the agent and of
// the simulator's tables.
//
// How long a gang runs on is told by its user's estimate, or by the earlier runs
// of its name, as a distribution: those that were submitted just before or after it count most. While
// it runs, the progress that it reports counts beside that, and soon more ([Queue.Reported]). Adaptive sorts preemptible gangs by the Gittins index of that
// distribution, others by its mean.
//
// When a waiting gang starts is told as a range that holds eight times in ten, by the
// waits of gangs like it; docs/results says how often it does on real traces.
//
// # Elastic gangs
//
// A gang with [Job.Least] starts with as many members as fit, or end soonest. What it has
// beyond the least is lent: it grows on GPUs that nobody who waits can use, and gives members
// back for a gang of its level or a better one, before anybody is stopped; elastic.go has the
// rules.
//
// # No starvation
//
// A gang of which its user says how long it runs is overdue when it has waited for [Options.Patience] times
// as long in all, an hour at least; any other when it has waited for [Options.MaxWait]. The overdue
// stay in the queue at their places. Beside that they are served in order of
// submission, one turn after the other: the first of them starts if it fits, or
// stops what may be stopped if that makes room, or has GPUs kept for it until all
// of them are free. A gang that had its turn is not stopped for others. The rest of
// the queue goes on meanwhile: backfill, preemption, moves and waiting for close
// GPUs. Kept GPUs are used by others only if these can be stopped for the turn, or
// are expected to end before it and within MaxWait of its beginning.
//
// What turns use is metered: GPUs kept idle and GPUs of gangs that run by their
// turn. The part of it above [Options.OverdueShare] of the cluster's GPU time is a debt,
// and no new turn begins before the share has paid it off. What that promises, for
// a gang that could run, where N is the cluster's GPUs and no run is longer than L:
//
//   - A turn takes at most MaxWait + L to start its gang, whatever estimates say.
//   - A gang's turn begins at the latest when it is overdue, plus for each
//     gang submitted before it one turn and (turn + L) × its GPUs / (OverdueShare × N), and
//     once as much for a gang that was submitted later, was overdue sooner and has its turn.
//   - So it holds in any overload, and degrades: in the long run the overdue get at
//     least OverdueShare of the GPU time while there are any, first come first served, and
//     cost the others no more than OverdueShare, except for one turn at a time.
//   - It is a promise about turns, and in an overload there are many before it. When a gang
//     starts, nobody can promise; the range above says what to expect.
//
// Under strict order (BackfillNone) nothing starts behind a turn. The meter starts
// at 0 when a placer starts again, and a gang that is stopped by a failure needs a
// new turn. A quota is never exceeded: a gang whose tenant has used it up has no
// turn. On a cluster that others use too, GPUs that they take from a turn are
// replaced by others, and the turn begins again.
package queue
