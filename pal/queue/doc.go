// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package queue decides which waiting gang starts next and on which GPUs, and which running gangs
// are stopped, moved or resized for that. It also reports why every other gang waits. Like the rest
// of pal it is pure: the daemon drives it with the wall clock, the simulator with simulated time,
// and both run the same code.
//
// The caller reports events to a [Queue] and asks it what to do. Times are durations since an epoch
// of the caller's, and never go back:
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
//	q.Finished(now, id) // it ended by itself: the run enters the history of its name
//	q.Removed(now, id)  // stopped by its owner, or lost
//
// [Queue.Decide] leaves the cluster as it found it: the caller takes and releases GPUs as things
// really happen. Until the outcome of an action is reported, the Queue holds its GPUs. So Decide
// may be called again in the meantime. After a restart, the placer reports running gangs with
// [Queue.Restore]. [Queue.Wake] returns when to call Decide again if nothing happens.
// [Queue.Waiting] lists the waiting gangs, in order, with their reasons.
//
// GPU and device group numbers belong to one cluster; after building a new one call [Queue.Rebase].
//
// # One ledger
//
// The caller keeps the only ledger of who holds which GPU: the cluster that it passes to Decide,
// and the placement that it reported last for each gang. The Queue never changes a placement by
// itself. It stores placements because it derives values from them when they are reported: sizes,
// usage, work done, expected ends and levels. Lists are sorted by these values, so the Queue cannot
// look up a placement at the moment when it needs one. Decisions that are not reported yet (starts,
// moves, claims) are plans, and in no ledger.
//
// Before each Decide the caller reports the exact GPUs of every gang that runs or is being stopped
// ([Queue.SetPlacement]). Reporting the same placement again changes nothing, so the caller reports
// whatever may have changed and need not compare. It need not report unchanged gangs, so 10,000
// unchanged gangs cost nothing.
//
// # Its parts
//
// A Queue consists of parts that do not depend on each other:
//
//   - foresight: how long gangs run, and the order that follows
//   - book: who waits
//   - runners and levels: who runs, and who may be stopped
//   - tenancy, gangKinds, windows, lending, account and forecasts
//
// A pass consists of layers, and each uses only those before it:
//
//   - whatIf: the cluster as it would be
//   - finder: where one gang fits
//   - planner: whom a start would delay
//   - pass, which decides, and asker, which only answers questions
//
// # Who goes first
//
// [Options.Order] sorts the queue. A gang that does not fit becomes the head. With [BackfillNone]
// nothing behind it starts. With [BackfillReserved] (EASY), a gang behind the head starts in two
// cases: it is expected to end before the head's GPUs are free, or it leaves the head's reserved
// GPUs alone.
//
// With [Options.Preempt] a gang may stop gangs of a worse level that allow it. Levels are powers,
// so gangs of similar rank never stop each other. A preemptible gang starts wherever it fits,
// whatever is reserved for the head. That holds even at the head's own level, where the head cannot
// stop it. Keeping GPUs from such gangs would shorten some waits and lengthen others, and the turns
// of the overdue bound the head's wait anyway.
//
// A gang holds up nobody if it could not run even on an empty cluster, or if its tenant's limit is
// reached. [Default] is the policy of the agent and of the simulator's tables.
//
// How much longer a gang runs is a distribution. It comes from its user's estimate, or else from
// earlier runs of its name; runs submitted just before or after it count most. While the gang runs,
// the progress that it reports counts too, and soon counts more ([Queue.Reported]). Adaptive sorts
// preemptible gangs by the Gittins index of that distribution, others by its mean.
//
// The start of a waiting gang is predicted as a range from the waits of similar gangs. The range
// should be right eight times in ten; docs/results shows how often it is on real traces.
//
// # Elastic gangs
//
// A gang with [Job.Least] starts with as many members as fit, or with fewer if it then ends sooner.
// Members beyond the least are lent. The gang grows on GPUs that no waiting gang can use. It gives
// members back for a gang of its level or a better one, before any gang is stopped; elastic.go has
// the rules.
//
// # No starvation
//
// A gang is overdue after it has waited for [Options.Patience] times its estimated run time in all,
// or an hour if that is longer. Without an estimate it is overdue after [Options.MaxWait]. Overdue
// gangs keep their places in the queue. In addition they are served in order of submission, one
// turn after the other. The gang whose turn it is starts if it fits, or stops what may be stopped
// if that makes room. Otherwise GPUs are kept for it until all of them are free. A gang that had
// its turn is not stopped for others.
//
// The rest of the queue goes on meanwhile: backfill, preemption, moves and waiting for close GPUs.
// Others use kept GPUs only if they can be stopped for the turn, or are expected to end before it
// and within MaxWait of its beginning.
//
// What turns use is metered: GPUs kept idle and GPUs of gangs that run by their turn. The part
// above [Options.OverdueShare] of the cluster's GPU time is a debt. No new turn begins before the
// share has paid the debt off. For a gang that could run, this promises the following, where N is
// the number of GPUs in the cluster and no run is longer than L:
//
//   - A turn takes at most MaxWait + L to start its gang, whatever estimates say.
//   - A gang's turn begins at the latest when it is overdue, plus one turn and
//     (turn + L) × its GPUs / (OverdueShare × N) for each gang submitted before it. A gang that was
//     submitted later, was overdue sooner and has its turn adds once as much.
//   - So the promise holds in any overload, with later turns. In the long run the overdue get at least
//     OverdueShare of the GPU time while there are any, first come, first served. They cost the others
//     no more than OverdueShare, except for one turn at a time.
//   - It is a promise about turns, and in an overload many turns come first. Nobody can promise when a
//     gang starts; the range above says what to expect.
//
// Under strict order (BackfillNone) nothing starts behind a turn. The meter starts at 0 when a
// placer starts again, and a gang that is stopped by a failure needs a new turn. A quota is never
// exceeded: a gang whose tenant has used it up has no turn. On a cluster that others use too, GPUs
// that they take from a turn are replaced by others, and the turn begins again.
package queue
