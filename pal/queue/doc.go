// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package queue decides which waiting gang starts next and on which GPUs, and which running gangs
// are stopped, moved or resized so that other gangs can start or run faster. The package also
// reports why each waiting gang waits. Like the rest of pal, this package does no I/O and reads no
// clock. The daemon calls it with the wall clock, and the simulator with simulated time.
//
// The caller reports events to a [Queue] and asks the Queue what to do. Times are durations since
// an epoch that the caller chooses. Times never go back:
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
//	q.SetPlacement(now, id, placement) // members ended by themselves, or got other GPUs
//	q.Finished(now, id) // it ended by itself: the run enters the history of its name
//	q.Removed(now, id)  // stopped by its owner, or lost
//
// [Queue.Decide] leaves the cluster as it was before the call. The caller takes and releases GPUs
// when gangs really start and end. Until the caller reports the outcome of an action, the Queue
// holds the GPUs of that action. So the caller can call Decide again before the outcome is known.
// After a restart, the placer reports running gangs with [Queue.Restore]. [Queue.Wake] returns when
// to call Decide again if nothing happens. [Queue.Waiting] lists the waiting gangs, in order, with
// their reasons.
//
// GPUs and device groups are numbered within one [pal.Cluster]. If the caller builds a new cluster,
// it must call [Queue.Rebase].
//
// # Facts and passes
//
// The Queue keeps facts: the jobs, what the caller reported about them, what was decided and is not
// reported yet, the history of run times, and the use of GPUs. All else is computed in each pass (a
// run of Decide): who holds what, which gang can be stopped, which GPUs are kept and for whom. A pass
// works on a copy of the cluster, and on further copies for its what-ifs, so nothing must be undone.
//
// The caller keeps the only ledger of who holds which GPU. The ledger consists of the cluster that
// the caller passes to Decide, and of the placement that the caller reported last for each gang.
// The ledger does not contain decisions whose outcome is not reported yet. A gang's GPUs can change
// while it runs or is being stopped. Before each Decide, the caller reports them
// ([Queue.SetPlacement]).
//
// To ask is to decide: [Queue.Waiting], [Queue.Ask] and [Queue.RoomFor] run a pass on a copy of the
// Queue. Where the pass passes a gang over, it notes why.
//
// # What must stay true
//
// Changes of this package must preserve the following properties. The tests in property_test.go
// check most of them.
//
//   - A Queue is not safe for concurrent use. A clone is independent.
//   - The same calls in the same order give the same answers and actions. No decision may depend on
//     a clock, on chance or on the order of a map.
//   - [Queue.Decide] and the questions leave the cluster as it was. A question changes no later answer
//     or action.
//   - What the Queue remembers of its computations (memos of an entry, answers to searches) follows
//     from its facts, and can be dropped at any time.
//   - A gang's signature contains everything that decides where the gang fits, except two things.
//     The exceptions are the gang's run time, which matters only on GPUs of a window that has not
//     begun, and whether the gang has its turn. If any other condition were missing from the
//     signature, gangs that fit in different places would share one search.
//
// # Who goes first
//
// [Options.Order] sorts the queue. The overdue gang whose turn it is or, without one, the first gang that
// does not fit becomes the head. With
// [BackfillNone] no gang behind the head starts. With [BackfillReserved] (EASY), a gang behind the
// head starts in two cases: it is expected to end before the head's GPUs are free, or it uses none
// of the head's reserved GPUs.
//
// With [Options.Preempt] a gang can stop preemptible gangs of a worse level. The bounds between
// levels are powers of 4, so gangs of similar rank seldom stop each other. A preemptible gang can
// start even on GPUs that are reserved for the head, unless priorities count and its priority is
// lower than the head's. A preemptible gang can start on reserved GPUs even if the head cannot stop
// it. The turns of overdue gangs limit how long the head waits.
//
// Some waiting gangs delay no gang behind them: gangs that could not run even if no other gang ran,
// gangs that wait for a service to end, and gangs that wait because of a limit or a window.
// [Default] is the policy of the agent and of the simulator's tables.
//
// The Queue predicts the distribution of a gang's remaining run time. The prediction uses the
// user's estimate or, without an estimate, finished runs of the same name. Runs whose submission is
// close in time to the gang's count most. The order [Adaptive] sorts preemptible gangs by the
// Gittins index of that distribution, and other gangs by its mean.
//
// The queue predicts a range for the start of a waiting gang, from the ends that the gang needs.
// Eight of ten gangs should start within their range; docs/results shows how many did on real
// traces.
//
// # Elastic gangs
//
// A gang with [Job.Least] starts with as many members as fit, or with fewer if it then ends sooner.
// The GPUs of members beyond Job.Least are lent to the gang. The gang grows on GPUs that no waiting
// gang can use. If a waiting gang of the same or a better level needs GPUs, the elastic gang gives
// members back. The Queue makes elastic gangs give members back before it stops any gang. The
// comment in elastic.go has the rules.
//
// # No starvation
//
// A gang is overdue when the sum of its waits reaches its patience. The patience is
// [Options.Patience] times its estimated run time or its limit, whichever is shorter, but at least
// an hour. Without an estimate and a limit, the patience is [Options.MaxWait]. Overdue gangs keep
// their places in the queue. In addition, overdue gangs get turns, in order of submission. In its
// turn, a gang starts if it fits, or if it fits after the Queue has stopped other gangs. Otherwise
// the gang becomes the head. Its reservation then stays the same until all reserved GPUs are free.
// A gang that started in its turn is not stopped for others. The protection ends when the placer
// restarts.
//
// During a turn, the rest of the queue works as usual: backfill, preemption, moves and waiting for
// close GPUs. Other gangs use reserved GPUs only if they can be stopped by then, or if they are
// expected to end before all of these GPUs are free, and within MaxWait of the beginning of the turn.
//
// The Queue meters the GPU time that turns use: the time for which reserved GPUs are idle, and the time
// of gangs that started in their turn. Any use beyond [Options.OverdueShare] of the cluster's GPU
// time becomes a debt. The share pays off the debt over time, and no new turn begins before the
// debt is paid. For a gang that could run, the Queue promises the following. N is the number of
// GPUs in the cluster, T is the length of a turn, and no run is longer than L.
//
//   - A turn starts its gang within MaxWait + L, even if estimates are wrong.
//   - After a gang has become overdue, its turn begins within a bounded time. The bound is a sum
//     over all gangs that were submitted before this gang. Each gang adds T + (T + L) × G /
//     (OverdueShare × N), where G is the number of its GPUs. The sum also
//     includes a gang that was submitted later, if it was overdue sooner and already has its turn.
//   - The promise holds even in an overload, but turns then begin later. As long as there are
//     overdue gangs, they get at least OverdueShare of the GPU time in the long run, first come,
//     first served. Overdue gangs cost the other gangs no more than OverdueShare, except for one
//     turn at a time.
//   - The Queue promises turns, not starts: in an overload, many other turns come first. To know
//     when a gang will probably start, use the predicted range of its start (see above).
//
// Under strict order (BackfillNone) no other gang starts during a turn. The meter starts at 0 when
// a placer starts again. A gang that a failure stops needs a new turn. A quota is never exceeded,
// so a gang whose tenant has used up its quota has no turn. On a cluster that is not exclusive,
// other users can take reserved GPUs. If this happens, the Queue reserves other GPUs instead, and the
// turn begins again.
package queue
