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
// [Queue.Decide] leaves the cluster as it found it: the caller takes and releases GPUs when gangs
// really start and end. Until the caller reports the outcome of an action, the Queue holds the GPUs
// of that action. So the caller may call Decide again in the meantime. After a restart, the placer
// reports running gangs with [Queue.Restore]. [Queue.Wake] returns when to call Decide again if
// nothing happens. [Queue.Waiting] lists the waiting gangs, in order, with their reasons.
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
// Before each Decide the caller reports the exact GPUs of all gangs that run or are being stopped
// and whose GPUs may have changed ([Queue.SetPlacement]). Reporting the same placement again
// changes nothing, so the caller need not compare. It need not report other gangs, so 10,000
// unchanged gangs cost nothing.
//
// # What must stay true
//
// A change of this package must keep the following. Most of it is tested in property_test.go.
//
//   - A Queue is not safe for concurrent use, not even by two questions at a time.
//   - The same calls in the same order give the same answers and actions. No decision may depend on
//     a clock, on chance or on the order of a map.
//   - [Queue.Decide] and the questions leave the cluster as they found it. Only [Queue.Beside]
//     marks GPUs as taken, until the caller undoes that.
//   - Questions are all methods that return something about gangs, tenants or the history: Waiting,
//     WaitingAt, WaitsIf, RoomFor, Look, Wake, Ends, Tenants, RunTimes and so on. All other methods
//     report or set something, except Decide. A question must not change later answers and actions.
//   - Questions write to the Queue nevertheless. They fill caches and buffers, resize elastic gangs
//     for a moment, and bring levels and deadlines up to date. Three small effects can be seen from
//     outside: a level that a question has computed is not computed again before it is due;
//     [Queue.RoomFor] and [Queue.TenantUse] add a namespace that is new; and [Queue.WaitsIf]
//     forgets since when the gang has declined GPUs. So ask a clone if possible, as the placer
//     does.
//   - [Queue.Clone] copies all that changes in place. Each new field needs its place in clone.go:
//     pointers to entries, claims, buckets, levels and tenants must lead to their copies, slices
//     and maps must be copied unless they are replaced as a whole, and caches may start empty.
//   - [Queue.Changed] drops all that the Queue caches about the cluster. Whatever is cached for
//     longer than a pass must be dropped there. Whenever a GPU may have come free, Queue.version
//     must grow: on an exclusive cluster ([Options.Exclusive]) a failed search is not repeated
//     before.
//   - A gang's signature contains all that decides where the gang fits, but for two things: its run
//     time, which decides beside windows, and whether it has its turn. Caches by signature must
//     handle both. If a signature lacks anything else, gangs that differ share one search.
//
// # Its parts
//
// A Queue consists of these parts:
//
//   - foresight: how long gangs run, and the order that follows
//   - book: who waits
//   - runners and levels: who runs, and who may be stopped
//   - tenancy, gangKinds, windows, lending, account and forecasts
//
// A pass, and each question, consists of layers. Each layer uses only those before it:
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
// whatever is reserved for the head, unless priorities count and its priority is lower than the
// head's. That holds even at the head's own level, where the head cannot stop it. Keeping GPUs from
// such gangs would shorten some waits and lengthen others, and the turns of overdue gangs bound the
// head's wait anyway.
//
// A gang holds up nobody if it could not run even without the other gangs, if only the end of a
// service could make room for it, or if a limit or a window keeps it waiting. [Default] is the
// policy of the agent and of the simulator's tables.
//
// The Queue predicts how much longer a gang runs as a distribution. It uses the user's estimate, or
// else earlier runs of the gang's name; runs submitted just before or after the gang count most.
// While the gang runs, the progress that it reports counts too, and soon counts more
// ([Queue.Reported]). Adaptive sorts preemptible gangs by the Gittins index of that distribution,
// others by its mean.
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
// A gang is overdue after it has waited, in all, for [Options.Patience] times its estimated run
// time or its limit, whichever is shorter, but at least for an hour. With neither, it is overdue
// after [Options.MaxWait]. Overdue gangs keep their places in the queue. In addition they are
// served in order of submission, one turn after the other. The gang whose turn it is starts if it
// fits, or stops other gangs if that makes room. Otherwise GPUs are kept for it until all of them
// are free. A gang that started in its turn is not stopped for others, until the
// placer starts again.
//
// The rest of the queue goes on meanwhile: backfill, preemption, moves and waiting for close GPUs.
// Other gangs use kept GPUs only if they can be stopped for the turn, or if they are expected to
// end before the kept GPUs are all free and within MaxWait of the beginning of the turn.
//
// The Queue meters the GPU time of turns: of GPUs kept idle, and of gangs that started in their
// turn. Use above [Options.OverdueShare] of the cluster's GPU time becomes a debt. No new turn
// begins before the share has paid the debt off. For a gang that could run, this promises the
// following, where N is the number of GPUs in the cluster and no run is longer than L:
//
//   - A turn takes at most MaxWait + L to start its gang, whatever estimates say.
//   - A gang's turn begins at the latest when it is overdue, plus one turn and
//     (turn + L) × its GPUs / (OverdueShare × N) for each gang submitted before it. If a gang
//     that was submitted later, but was overdue sooner, has its turn then, it adds as much once.
//   - So the promise holds in any overload, with later turns. In the long run the overdue get at
//     least OverdueShare of the GPU time while there are any, first come, first served. They cost
//     the others no more than OverdueShare, except for one turn at a time.
//   - It is a promise about turns, and in an overload many turns come first. Nobody can promise
//     when a gang starts; the range above says what to expect.
//
// Under strict order (BackfillNone) nothing starts behind a turn. The meter starts at 0 when a
// placer starts again, and a gang that is stopped by a failure needs a new turn. A quota is never
// exceeded: a gang whose tenant has used it up has no turn. On a cluster that others use too, GPUs
// that they take from a turn are replaced by others, and the turn begins again.
package queue
