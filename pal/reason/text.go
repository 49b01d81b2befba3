// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package reason

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of reasons. The kinds in the first group say what a job in the queue waits for.
const (
	Starting  Kind = "starting"   // the placer has chosen GPUs and is registering the job
	Stopping  Kind = "stopping"   // other jobs are being stopped for the job
	Shrinking Kind = "shrinking"  // elastic jobs give up GPUs for the job
	TooLarge  Kind = "too-large"  // the job could not run even on the empty cluster
	Limit     Kind = "limit"      // the tenant or user must never hold that many GPUs
	Quota     Kind = "quota"      // the tenant or user holds too many GPUs for the job to start
	Array     Kind = "array"      // the array already runs its maximum number of jobs
	GPUs      Kind = "gpus"       // too few GPUs are free
	Scattered Kind = "scattered"  // enough GPUs are free, but not on nodes where the job could use them
	Refused   Kind = "refused"    // enough parts of GPUs are free, but only beside bad neighbours
	Services  Kind = "services"   // services, which do not end, hold the GPUs
	Reserved  Kind = "reserved"   // the GPUs are reserved for a job ahead
	Spared    Kind = "spared"     // the job is a service, and the GPUs go first to a job that ends
	Order     Kind = "order"      // the job fits, but no job may pass the head of the queue (backfill = none)
	InWindow  Kind = "window"     // the GPUs are kept for maintenance, or for other jobs
	Locality  Kind = "locality"   // the job fits, but waits for GPUs that are closer together, or of another model
	Next      Kind = "next-round" // the job fits, and the next decision starts it

	NoPlacer     Kind = "no-placer"     // enough GPUs are free, but no placer is active
	Away         Kind = "nodes-away"    // the job's nodes are not ready
	WindowKeeps  Kind = "window-keeps"  // a window keeps GPUs from the job
	WindowBegins Kind = "window-begins" // the job might not end before a window begins
	Held         Kind = "held"          // a user has put the job on hold
	ComesAfter   Kind = "after"         // the job comes after another job
	Begins       Kind = "begins"        // the job does not start before its pal_begin
	Provided     Kind = "after-planned" // a planned job comes after other jobs
	RetriesAt    Kind = "retries-at"    // the infrastructure failed, and the next try is not due yet
	InDoubt      Kind = "in-doubt"      // the job failed too often, if its last failure counts
	OneTried     Kind = "one-tried"     // another job that failed for the same cause is being tried
	StillEnding  Kind = "ending"        // the job's old members have not ended
	BeingRead    Kind = "being-read"    // the placer has not read all data of the job yet
	NomadRefuses Kind = "nomad-refuses" // Nomad would not place the job now

	// Why a job cannot run.
	NoGPUs          Kind = "no-gpus"       // the job requests no GPUs
	TooFew          Kind = "too-few"       // the cluster has too few GPUs that the job can use
	TooWide         Kind = "too-wide"      // no nodes are large enough
	ManyParts       Kind = "many-parts"    // no GPU has that many parts
	Neighbours      Kind = "neighbours"    // the job and the jobs on the GPUs do not accept each other as neighbours
	MembersApart    Kind = "members-apart" // the job's members must not share a GPU
	PerNode         Kind = "per-node"      // a static port or distinct_hosts limits the members on a node
	SeveralModels   Kind = "models"        // the free GPUs are of several models
	TooMany         Kind = "too-many"      // the nodes cannot hold that many replicas
	TooFar          Kind = "too-far"       // no node, rack or other place within the job's locality limit is large enough
	Apart           Kind = "apart"         // the free GPUs are not close enough together
	Barred          Kind = "barred"        // no node could run one of the job's task groups
	Obstacle        Kind = "obstacle"      // what the nodes lack
	More            Kind = "more"          // how many more reasons there are
	Never           Kind = "never"         // Nomad cannot place the job on any node
	NeverGroup      Kind = "never-group"   // Nomad cannot place one of the job's task groups on any node
	Rejected        Kind = "rejected"      // the placer cannot serve the job as written
	StaysGated      Kind = "stays-gated"   // the job requests no GPUs, but has the gate
	NoChild         Kind = "no-child"      // the placer cannot serve any child of the job
	UngatedChildren Kind = "children-without-gate"
	PayloadChildren Kind = "children-with-payload"
	WouldBeNative   Kind = "would-be-native" // Nomad alone would place the job
	Unreadable      Kind = "unreadable"      // the placer cannot read the job
	PlacerFault     Kind = "placer-fault"    // the placer has a bug with this job
	Template        Kind = "template"        // the job is parameterized or periodic
	Ungated         Kind = "no-gate"         // left to Nomad, because the job has no gate
	NotOurs         Kind = "not-ours"        // left to Nomad, because the placer does not serve jobs like this
	WithoutGPUs     Kind = "leaves-alone"    // left to Nomad, because the job requests no GPUs
	PartNative      Kind = "native-in-part"  // Nomad has placed some of the job's members
	NewJob          Kind = "new"             // the job was registered a moment ago

	// Why a job runs on its nodes.
	SpreadOut Kind = "spread-out" // the replicas are on several nodes, because a node can fail

	// What happens to a running job.
	MembersRun     Kind = "members"         // what the job's members do
	Incomplete     Kind = "incomplete"      // some members are missing
	Deploying      Kind = "deploying"       // Nomad may retry after the deployment
	OthersRun      Kind = "others-run"      // the other members keep running
	OthersDone     Kind = "others-done"     // the other members have finished
	NomadPlaces    Kind = "nomad-places"    // Nomad places the members when there is room
	CanariesRun    Kind = "canaries-run"    // canaries run beside the old version
	WaitsPromotion Kind = "waits-promotion" // the job's new version waits to be promoted
	Deploys        Kind = "deploys"         // Nomad deploys the job's new version
	DeployFailed   Kind = "deploy-failed"
	DeployPaused   Kind = "deploy-paused"
	Blocked        Kind = "blocked" // Nomad finds no node for a task group
	NomadPreempted Kind = "nomad-preempted"
	PreemptedOnce  Kind = "nomad-preempted-for-good"
	MemberFailed   Kind = "member-failed"
	MemberLost     Kind = "member-lost"    // a member failed, and Nomad has no room to replace it
	CutShort       Kind = "client-ended"   // the Nomad client ended a member
	MemberStopped  Kind = "member-stopped" // a member was stopped, and Nomad does not run this member again
	MembersStopped Kind = "members-stopped"
	Replacing      Kind = "replacing-stopped" // the placer has asked Nomad to place stopped members again
	BesidePins     Kind = "beside-pins"       // members of a service run outside the service's pins
	Misplaced      Kind = "misplaced"         // members run outside the job's pins
	DryRunRefuses  Kind = "dry-run"           // Nomad would not place the job on the chosen nodes
	RunsOnAsBefore Kind = "runs-on"           // the old version keeps running; the new version does not fit
	RunsUnread     Kind = "runs-unread"       // the old version keeps running; the new version is invalid
	MemberMissing  Kind = "member-missing"    // a member failed, was preempted or was stopped
	MoreMissing    Kind = "more-missing"
	PlansChild     Kind = "plans-child" // the plan is for a child of the job
	NodesLeaving   Kind = "leaving"     // nodes on which the job runs are leaving
	Error          Kind = "error"       // something failed

	// Why a job is not tried again, or was stopped.
	GaveUp        Kind = "gave-up"       // the job itself failed too often
	LostTooOften  Kind = "lost-often"    // the infrastructure failed too often
	FailedUnseen  Kind = "failed-alone"  // the job failed while no placer was active
	RequeueAsked  Kind = "requeue-asked" // somebody requeued the job
	MakesRoom     Kind = "makes-room"    // the job was stopped for another job
	Moves         Kind = "moves"         // the job was stopped to move to other GPUs
	Edited        Kind = "edited"        // the job was stopped because its author changed it
	NotWhole      Kind = "not-whole"     // not all members could run
	EndedComplete Kind = "complete"      // how many members are complete
	EndedFailed   Kind = "failed"        // a member failed on a node
	NoMembers     Kind = "no-members"    // the job's author set the number of members to 0
	NoMoreRuns    Kind = "no-more-runs"  // the job is parameterized or periodic, and was stopped

	// States of a job that the present job must wait for (pal_after).
	AheadFailed   Kind = "it-failed"
	AheadRejected Kind = "it-is-rejected"
	AheadEndless  Kind = "it-never-ends"
	AheadRuns     Kind = "it-runs"
	AheadWaits    Kind = "it-waits"
	AheadMissing  Kind = "it-is-not-there"
	AheadTemplate Kind = "it-is-a-template"
	AheadGoesOn   Kind = "it-goes-on"
	AheadStopped  Kind = "it-was-stopped"
	AheadUnread   Kind = "it-cannot-be-read"
	AheadChecked  Kind = "it-is-checked"

	// What can be done about a reason.
	WiderFits   Kind = "fits-farther-apart" // the job would fit without pal_locality
	FewerFit    Kind = "fewer-fit"          // the job would fit with fewer members
	EditCount   Kind = "edit-count"         // how to change the count of a service
	AskLess     Kind = "ask-less"           // request no more GPUs than the tenant or user may hold
	AwaitPart   Kind = "await-part"         // wait until a part with better neighbours comes free
	AwaitTenant Kind = "await-tenant"       // wait until other jobs of the tenant have ended
	ChangeJob   Kind = "change-job"         // change the job, or give a node what it lacks
	FixVersion  Kind = "fix-version"

	// What nomad-pal plan says about a job.
	WouldStart     Kind = "would-start"
	WouldStartIdle Kind = "would-start-idle" // the job would start if a placer were active
	WouldRest      Kind = "would-rest"       // the job would have no members
	WouldKeep      Kind = "would-keep"       // the job would keep its GPUs; Nomad restarts only what changes
	WouldCanary    Kind = "would-canary"     // the job would keep its GPUs, and start canaries
	WouldReplace   Kind = "would-replace"    // Nomad would replace the job's members, as the update block says
	WouldRestart   Kind = "would-restart"    // the placer would restart the job as a whole
	WouldRunOn     Kind = "would-run-on"     // the job would keep running as it is
)

// Kinds returns all kinds, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(texts)) }

// Predicate reports whether the text can follow the job's name directly, without a colon: "train
// would start now".
func (k Kind) Predicate() bool { return ofPlans[k] != nil }

// writer writes the text of a reason. Each kind has a writer, in the table of its group. The file
// testdata/reasons.txt shows all texts.
type writer = func(Reason) string

// texts has the functions of all kinds. init fills it, because some functions call [Reason.String],
// which reads texts.
var texts = map[Kind]writer{}

func init() {
	for _, t := range []map[Kind]writer{ofWaiting, ofNever, ofPlace, ofRunning, ofEnd, ofAhead, ofRemedies, ofPlans} {
		maps.Copy(texts, t)
	}
}

// ofWaiting writes what a job waits for.
var ofWaiting = map[Kind]writer{
	Starting:  say("nomad-pal has chosen GPUs and is registering the job"),
	Stopping:  stopping,
	Shrinking: func(r Reason) string { return giving(r.Shrinking) + " for this job" },
	TooLarge: func(r Reason) string {
		return fmt.Sprintf("needs %s, too many for the cluster even when it is empty (unhealthy and quarantined GPUs do not count)", Count(r.Needs))
	},
	Limit: func(r Reason) string {
		if r.User != "" {
			return fmt.Sprintf("needs %s; user %s may hold at most %d (max_gpus_per_user)", counts(r), r.User, r.Limit)
		}
		return fmt.Sprintf("needs %s; the job's tenant may hold at most %d (quota and borrowing_limit)", counts(r), r.Limit)
	},
	Quota: func(r Reason) string {
		switch {
		case r.User != "" && r.Needs == 0:
			return fmt.Sprintf("user %s runs %s in tenant %s and may run at most %d (max_jobs_per_user)", r.User, Counted(int(r.Held), "job", "jobs"), r.Tenant, r.Limit)
		case r.User != "":
			return fmt.Sprintf("needs %s; user %s holds %s in tenant %s and may hold at most %d (max_gpus_per_user)", counts(r), r.User, Number(r.Held), r.Tenant, r.Limit)
		}
		return fmt.Sprintf("needs %s; tenant %s holds %s and may hold at most %d (quota and borrowing_limit)", counts(r), r.Tenant, Number(r.Held), r.Limit)
	},
	Array: func(r Reason) string {
		return fmt.Sprintf("%s running; pal_array_parallel allows %d at a time", Counted(r.Have, "run of its array is", "runs of its array are"), r.Limit)
	},
	GPUs:      func(r Reason) string { return "needs " + Count(r.Needs) + "; " + free(r) },
	Scattered: scattered,
	Refused: func(r Reason) string {
		return fmt.Sprintf("needs %s; %s free, but this job would slow the others on them too much (refuse_bad_neighbours)", Count(r.Needs), are(r.Free))
	},
	Services: func(r Reason) string {
		text := fmt.Sprintf("needs %s; enough GPUs come free only if somebody stops a service", Count(r.Needs))
		if len(r.Because) > 0 {
			text += "; the job may also start when nodes return: " + list(r.Because, ", ")
		}
		return text
	},
	Reserved: func(r Reason) string { return "free GPUs are reserved for " + r.Ahead + ", ahead in the queue" },
	Spared: func(r Reason) string {
		return r.Ahead + " gets free GPUs before this service, because services do not end by themselves"
	},
	Order: func(r Reason) string { return r.Ahead + " is ahead, and no job may pass it (backfill = none)" },
	InWindow: func(r Reason) string {
		if r.Until.IsZero() {
			return "a window reserves GPUs that the job needs"
		}
		return fmt.Sprintf("until %s, a window reserves GPUs that the job needs", Moment(r.Until))
	},
	WindowBegins: func(r Reason) string {
		if r.Until.IsZero() {
			return "the job might still be running when a window reserves its GPUs"
		}
		return "the job might still be running when a window reserves its GPUs; the window lasts" + lasting(r)
	},
	Locality: say("the job could start, but waits for GPUs that are faster or closer together and may soon come free"),
	Next:     say("the job's GPUs are free; nomad-pal starts the job next"),
	NoPlacer: say("no agent is active"),
	Away:     func(r Reason) string { return "the job's nodes are unavailable: " + list(r.Because, ", ") },
	WindowKeeps: func(r Reason) string {
		return fmt.Sprintf("the window %q reserves %s%s", r.Window, Count(r.Needs), lasting(r))
	},
	Held: func(r Reason) string {
		return because(r, "held"+by(r.Cause)+" since "+Moment(r.Until)) + " (to lift the hold: nomad-pal hold -lift <job>)"
	},
	ComesAfter: func(r Reason) string {
		return comesAfter(r) + ": " + list(r.Because, ", ")
	},
	Provided: func(r Reason) string { return "the job also " + comesAfter(r) },
	Begins:   func(r Reason) string { return "the job does not start before " + Moment(r.Until) + " (pal_begin)" },
	RetriesAt: func(r Reason) string {
		return fmt.Sprintf("failed %s because of the infrastructure; the next try is at %s; the last failure: %s", times(r.Tries), Second(r.Until), r.Cause)
	},
	InDoubt: func(r Reason) string {
		return fmt.Sprintf("failed %s: %s; given up at %s, unless Nomad finds that a node of the job went down", times(r.Tries), r.Cause, Second(r.Until))
	},
	OneTried: func(r Reason) string {
		return fmt.Sprintf("failed %s because of the infrastructure; another job that failed for the same cause is tried first; the last failure: %s", times(r.Tries), r.Cause)
	},
	StillEnding: func(r Reason) string {
		return Counted(r.Have, "member is still stopping and holds its GPUs", "members are still stopping and hold their GPUs")
	},
	BeingRead:    say("nomad-pal is still reading the job from Nomad"),
	NomadRefuses: func(r Reason) string { return "Nomad cannot place the job now: " + r.Cause },
}

// ofNever writes why a job cannot run.
var ofNever = map[Kind]writer{
	NoGPUs: say("the job requests no GPUs"),
	TooFew: func(r Reason) string {
		match := fmt.Sprintf("the cluster has %d that match", r.Match)
		if r.Match == 0 {
			match = "the cluster has none that match"
		}
		return because(r, "needs "+Count(r.Needs)+"; "+match)
	},
	TooWide: func(r Reason) string {
		if r.Room == 0 {
			return because(r, fmt.Sprintf("each member of group %q needs %s of one model on one node; no node has that many", r.Group, Count(r.Each)))
		}
		return because(r, fmt.Sprintf("group %q needs %s on one node for each member, all of one model; an idle cluster has room for %d of %d members", r.Group, Count(r.Each), r.Room, r.Members))
	},
	ManyParts: func(r Reason) string {
		return because(r, fmt.Sprintf("each member of group %q needs %d parts of one GPU; no GPU has that many", r.Group, r.Each))
	},
	TooMany: func(r Reason) string {
		return because(r, fmt.Sprintf("group %q needs %s on one node for each member; an idle cluster has room for %d of %d members", r.Group, Count(r.Each), r.Room, r.Members))
	},
	Neighbours: say("this job and the jobs on these GPUs do not accept each other as neighbours (pal_neighbours)"),
	PerNode: func(r Reason) string {
		return fmt.Sprintf("%s allows %s on each node", r.Cause, Counted(r.Members, "member", "members"))
	},
	SeveralModels: func(r Reason) string {
		return fmt.Sprintf("no GPU model has more than %d", r.Free)
	},
	MembersApart: say(`the job's members must not share a GPU (pal_neighbours = "any,self" allows it)`),
	TooFar: func(r Reason) string {
		text := fmt.Sprintf("group %q needs %d × %d GPUs of one model within one %s; an idle %s has room for %d of %d members", r.Group, r.Members, r.Each, r.Tier, r.Tier, r.Room, r.Members)
		if r.Rackless {
			text += "; no node has a rack in its meta (rack_meta), so each node counts as a rack"
		}
		return because(r, text)
	},
	Apart: func(r Reason) string {
		return because(r, fmt.Sprintf("needs %s within one %s; %s free, but too far apart", Count(r.Needs), r.Tier, are(r.Free)))
	},
	Barred: func(r Reason) string {
		return because(r, fmt.Sprintf("no node could run group %q, even when idle", r.Group))
	},
	Obstacle: func(r Reason) string { return because(r, r.Cause+onNodes(r)) },
	More:     func(r Reason) string { return Counted(r.Total, "more reason", "more reasons") },
	Never:    func(r Reason) string { return list(r.Because, "; ") },
	NeverGroup: func(r Reason) string {
		return because(r, fmt.Sprintf("Nomad cannot place group %q on any node: %s%s", r.Group, r.Cause, onNodes(r)))
	},
	Rejected: func(r Reason) string { return r.Cause },
	StaysGated: func(r Reason) string {
		return r.Cause + "; remove the job's constraint on ${meta.pal_gate} and run the job again"
	},
	NoChild:         func(r Reason) string { return "none of the job's runs can be placed: " + r.Cause },
	UngatedChildren: say("the job's runs have no gate, so Nomad places the runs without nomad-pal"),
	PayloadChildren: say("nomad-pal places runs without a payload; runs with a payload stay gated"),
	WouldBeNative:   func(r Reason) string { return "Nomad alone would place the job: " + r.Cause },
	Unreadable:      func(r Reason) string { return "nomad-pal cannot read the job: " + r.Cause },
	PlacerFault: func(r Reason) string {
		return "nomad-pal has a bug that this job triggers, and leaves the job alone until the job changes: " + r.Cause + "; please report the bug with the agent's log"
	},
	Template: func(r Reason) string {
		return because(r, "the job is "+r.kindOfTemplate()+"; nomad-pal status -all lists its runs")
	},
	Ungated: func(r Reason) string {
		text := placedByNomad(r) + "; the job has no gate, so nomad-pal leaves it alone"
		if r.Have > 0 {
			text += " (to add a gate, stop the job first, because nomad-pal removes a gate from a running job)"
		}
		return text
	},
	NotOurs:     func(r Reason) string { return placedByNomad(r) + ": " + r.Cause },
	WithoutGPUs: func(r Reason) string { return r.Cause + ", so nomad-pal leaves the job to Nomad" },
	PartNative:  func(r Reason) string { return fmt.Sprintf("Nomad alone has placed %d of %d members", r.Have, r.Want) },
	NewJob:      say("the job was registered a moment ago, and the agent has not read it yet; ask again"),
}

// ofPlace writes why a job runs on its nodes.
var ofPlace = map[Kind]writer{
	SpreadOut: func(r Reason) string {
		switch {
		case r.Nodes == 1:
			return fmt.Sprintf("the %d replicas share a node, because no other node had usable GPUs", r.Members)
		case r.Room == 1:
			return fmt.Sprintf("the %d replicas are on %d nodes, so losing a node stops only one replica", r.Members, r.Nodes)
		}
		return fmt.Sprintf("the %d replicas are spread over %d nodes, at most %d on each node", r.Members, r.Nodes, r.Room)
	},
}

// ofRunning writes what happens to a running job.
var ofRunning = map[Kind]writer{
	MembersRun:  membersRun,
	Incomplete:  func(r Reason) string { return because(r, placed(r)) },
	Deploying:   func(r Reason) string { return because(r, placed(r)) + "; Nomad may try again after the deployment" },
	OthersRun:   say("the other members keep running"),
	OthersDone:  say("the other members have finished"),
	NomadPlaces: say("Nomad places the members as soon as there is room"),
	Blocked: func(r Reason) string {
		if r.Group == "" {
			return "Nomad has no room, and gives no reason"
		}
		return fmt.Sprintf("Nomad has no room for group %q: %s", r.Group, r.Cause)
	},
	NomadPreempted: say("Nomad preempted a member for a job with a higher priority"),
	PreemptedOnce:  say("Nomad preempted a member for a job with a higher priority, and does not rerun the member"),
	MemberLost:     func(r Reason) string { return fmt.Sprintf("a member on node %s failed: %s", r.Node, r.Cause) },
	MemberFailed:   func(r Reason) string { return "a member failed, and Nomad is not retrying it: " + r.Cause },
	CutShort:       say("a Nomad client ended a member (was its node purged?), and Nomad does not rerun the member"),
	MemberStopped:  say("a member was stopped (node drain?), and Nomad does not rerun the member"),
	MembersStopped: say("the job's members were stopped (by a node drain or a user)"),
	Replacing:      say("members were stopped (node drain?); nomad-pal has asked Nomad to place them again"),
	BesidePins:     say("members of an earlier version keep running outside the job's pins, because no deployment replaces these members"),
	Misplaced:      say("members run outside the job's pins: the pinned GPUs had no room, or Nomad gave the members other or fewer GPUs (a bug of Nomad before 1.11.1: hashicorp/nomad#18364)"),
	DryRunRefuses: func(r Reason) string {
		return fmt.Sprintf("Nomad cannot place group %q on the chosen nodes: %s", r.Group, r.Cause)
	},
	RunsOnAsBefore: func(r Reason) string {
		return because(r, "the old version keeps running; the new version does not fit")
	},
	RunsUnread: func(r Reason) string { return "the old version keeps running; the new version is rejected: " + r.Cause },
	MemberMissing: func(r Reason) string {
		text := fmt.Sprintf("member %s has been missing since %s: %s", r.Member, Second(r.Until), r.Cause)
		if r.Node != "" {
			text += " on node " + r.Node
		}
		return text
	},
	MoreMissing: func(r Reason) string { return Counted(r.Total, "other member is missing", "other members are missing") },
	PlansChild: func(r Reason) string {
		return "the job is " + r.kindOfTemplate() + ", and does not run itself; this plan is for one of its runs"
	},
	NodesLeaving: func(r Reason) string { return r.Cause },
	Error:        func(r Reason) string { return r.Cause },
	CanariesRun: func(r Reason) string {
		return fmt.Sprintf("%s beside %s", Counted(r.Have, "canary of a new version runs", "canaries of a new version run"), Counted(r.Want, "old member", "old members"))
	},
	WaitsPromotion: func(r Reason) string {
		return fmt.Sprintf("version %d waits to be promoted: %d of %s healthy", r.Version, r.Have, Counted(r.Want, "canary is", "canaries are"))
	},
	Deploys: func(r Reason) string {
		text := fmt.Sprintf("Nomad is deploying version %d: %d of %s healthy", r.Version, r.Have, Counted(r.Want, "member is", "members are"))
		if r.Tries > 0 {
			text += fmt.Sprintf(", %d became unhealthy", r.Tries)
		}
		return text
	},
	DeployFailed: func(r Reason) string {
		return fmt.Sprintf("the deployment of version %d has failed: %s", r.Version, r.Cause)
	},
	DeployPaused: func(r Reason) string { return fmt.Sprintf("the deployment of version %d is paused", r.Version) },
}

// ofEnd writes why a job is not tried again, or was stopped.
var ofEnd = map[Kind]writer{
	GaveUp: func(r Reason) string {
		return fmt.Sprintf("given up after %s: %s; fix the job and run it again", Counted(r.Tries, "try", "tries"), r.Cause)
	},
	LostTooOften: func(r Reason) string {
		return fmt.Sprintf("given up after %s; the last failure: %s; fix the cause, then run the job again", Counted(r.Tries, "infrastructure failure", "infrastructure failures"), r.Cause)
	},
	FailedUnseen: func(r Reason) string {
		return fmt.Sprintf("not retried, because no agent handled the failure within %d minutes: %s; run the job again", r.Minutes, r.Cause)
	},
	MakesRoom: func(r Reason) string {
		if r.Ahead == "" {
			return "the job makes room for another job"
		}
		return "the job makes room for " + r.Ahead
	},
	RequeueAsked: func(r Reason) string { return "the job was requeued" + by(r.Cause) + " (nomad-pal requeue)" },
	Moves:        say("the job moves to better GPUs"),
	Edited:       say("the author changed the job"),
	NotWhole: func(r Reason) string {
		if len(r.Because) > 0 {
			return list(r.Because, "; ")
		}
		return "not all members could run"
	},
	EndedComplete: ended,
	EndedFailed:   func(r Reason) string { return fmt.Sprintf("%s on node %s; %s", r.Cause, r.Node, ended(r)) },
	NoMembers:     func(r Reason) string { return r.Cause + ending(r) },
	NoMoreRuns:    say("the job was stopped, and starts no more runs"),
}

// ofAhead writes the states of a job that other jobs wait for.
var ofAhead = map[Kind]writer{
	AheadFailed:   say("that job has failed; run it again"),
	AheadRejected: say("that job is rejected"),
	AheadEndless:  func(r Reason) string { return "a " + r.Cause + " job never finishes" },
	AheadRuns:     say("that job is running"),
	AheadWaits:    say("that job has not started"),
	AheadMissing:  say("Nomad has no such job (purged, garbage-collected, or not yet registered?)"),
	AheadTemplate: say("that job is parameterized or periodic, and never ends; give the id of one of its runs"),
	AheadGoesOn:   say("that job has not ended"),
	AheadStopped:  say("that job was stopped before it finished; run it again"),
	AheadUnread:   func(r Reason) string { return "cannot read that job from Nomad: " + r.Cause },
	AheadChecked:  say("nomad-pal is checking whether that job has finished"),
}

// ofRemedies writes what can be done about a reason.
var ofRemedies = map[Kind]writer{
	WiderFits: func(r Reason) string {
		text := fmt.Sprintf("without pal_locality = %s, the job would fit now, on GPUs farther apart", r.Tier)
		if !r.Until.IsZero() {
			text += "; it would start at " + Moment(r.Until) + " at the latest, because closer GPUs may come free"
		}
		return text
	},
	FewerFit: func(r Reason) string {
		return fmt.Sprintf("with %s = %d instead of %d, the job would fit now", r.Key, r.Room, r.Members)
	},
	EditCount: say("change the count in the jobspec and run the job again (nomad job scale works only after the deployment)"),
	AskLess: func(r Reason) string {
		if r.User != "" {
			return fmt.Sprintf("ask for at most %s, or have the tenant's max_gpus_per_user raised", Count(r.Limit))
		}
		return fmt.Sprintf("ask for at most %s, or have the tenant's quota or borrowing_limit raised", Count(r.Limit))
	},
	AwaitPart:   say("the job waits for a part with better neighbours; once it is overdue, it takes any; pal_class = D suits jobs that mostly leave the GPU idle"),
	AwaitTenant: await,
	ChangeJob:   say("change the job, or give a node what the job needs; nomad-pal tries again when a node changes, or after a few minutes"),
	FixVersion:  say("fix the job and run it again; until then the old version keeps running, but does not restart if it loses members"),
}

// ofPlans writes what nomad-pal plan says.
var ofPlans = map[Kind]writer{
	WouldStart:     func(r Reason) string { return "would start now" + provided(r, "if") },
	WouldStartIdle: func(r Reason) string { return "would start if an agent were active" + provided(r, "and") },
	WouldRest:      func(r Reason) string { return "would have no members: " + r.Cause },
	WouldKeep: func(r Reason) string {
		return fmt.Sprintf("runs on %s and would keep %s; Nomad restarts only the tasks that change", Count(r.Needs), them(r.Needs))
	},
	WouldCanary: func(r Reason) string {
		return fmt.Sprintf("runs on %s and would keep %s; if its tasks change, Nomad first places the canaries, on additional GPUs", Count(r.Needs), them(r.Needs))
	},
	WouldReplace: func(r Reason) string {
		return fmt.Sprintf("runs on %s and now needs different GPUs: Nomad would start, stop or replace members as the update block says", Count(r.Needs))
	},
	WouldRestart: func(r Reason) string {
		return fmt.Sprintf("runs on %s and now needs different GPUs: nomad-pal would stop the whole job and start it again", Count(r.Needs))
	},
	WouldRunOn: func(r Reason) string {
		return because(r, fmt.Sprintf("runs on %s, and would keep running unchanged, because the new version does not fit", Count(r.Needs)))
	},
}

// foreign puts another program's text on one line and removes its final period.
func foreign(text string) string {
	return strings.TrimRight(strings.Join(strings.Fields(text), " "), ".")
}

// say makes the function of a kind whose text is always the same.
func say(text string) func(Reason) string { return func(Reason) string { return text } }

// because appends the reasons in the field Because to a text.
func because(r Reason, text string) string {
	if len(r.Because) == 0 {
		return text
	}
	return text + ": " + list(r.Because, ", ")
}

func list(rs []Reason, between string) string {
	texts := make([]string, 0, len(rs))
	for _, r := range rs {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, between)
}

// stopping names the jobs that are being stopped for this job, and the elastic jobs that shrink.
func stopping(r Reason) string {
	text := names(r.Jobs) + " " + be(len(r.Jobs)) + " being stopped for this job"
	if len(r.Shrinking) > 0 {
		text += "; " + giving(r.Shrinking)
	}
	return text
}

// giving says that elastic jobs are giving back GPUs.
func giving(jobs []string) string { return names(jobs) + " " + be(len(jobs)) + " giving back GPUs" }

// free says how many free GPUs the gang could use, and why other GPUs are not free.
func free(r Reason) string {
	switch {
	case r.slowOnly():
		return outliers(r)
	case r.Match > 0:
		text := fmt.Sprintf("%d of %d that match %s free", r.Free, r.Match, be(r.Free))
		if r.Used != nil && *r.Used != (Used{}) {
			text += " (" + r.Used.String() + ")"
		}
		return text + small(r)
	case r.FreeOthers > 0:
		if r.Used != nil && r.Used.Outliers > 0 {
			return fmt.Sprintf("%s free, not counting %s (too slow) and %d that this job cannot use", are(r.Free), Counted(r.Used.Outliers, "outlier", "outliers"), r.FreeOthers)
		}
		return fmt.Sprintf("%s free, not counting %d that this job cannot use", are(r.Free), r.FreeOthers)
	}
	if r.Used != nil && r.Used.Outliers > 0 {
		return fmt.Sprintf("%s free, not counting %s (too slow)", are(r.Free), Counted(r.Used.Outliers, "outlier", "outliers"))
	}
	return are(r.Free) + " free"
}

// slowOnly reports whether enough GPUs are free for the gang, but not enough without outliers.
func (r Reason) slowOnly() bool {
	return r.Used != nil && r.Used.Outliers > 0 && r.Free < r.Needs && r.Free+r.Used.Outliers >= r.Needs
}

// outliers counts the free GPUs that are too slow.
func outliers(r Reason) string {
	n := r.Free + r.Used.Outliers
	if n == 1 {
		return "1 is free, but it is an outlier (too slow)"
	}
	if r.Used.Outliers == n {
		return fmt.Sprintf("%d are free, but all are outliers (too slow)", n)
	}
	return fmt.Sprintf("%d are free, but %s (too slow)", n, Counted(r.Used.Outliers, "is an outlier", "are outliers"))
}

// ofFreeGPUs reports whether the reason says why the gang cannot use free GPUs. Other causes are
// about nodes.
func (r Reason) ofFreeGPUs() bool {
	return slices.Contains([]Kind{WindowKeeps, Neighbours, MembersApart, SeveralModels, PerNode}, r.Kind)
}

// scattered explains why the gang cannot use the free GPUs.
func scattered(r Reason) string {
	text := "needs " + Count(r.Needs) + "; "
	switch {
	case r.slowOnly():
		return text + outliers(r)
	case len(r.Because) > 0 && r.Because[0].ofFreeGPUs():
		own := slices.IndexFunc(r.Because, func(b Reason) bool { return !b.ofFreeGPUs() })
		if own < 0 {
			own = len(r.Because)
		}
		text += are(r.Free) + " free, but " + list(r.Because[:own], ", ")
		if own < len(r.Because) {
			text += "; " + list(r.Because[own:], ", ")
		}
		return text
	case r.Needs == 1:
		return because(r, text+are(r.Free)+" free, but on nodes with too little CPU, memory or disk")
	}
	return because(r, text+are(r.Free)+" free, but too scattered, or on nodes with too little CPU, memory or disk"+small(r))
}

// small counts the matching GPUs whose model has too few GPUs for the gang.
func small(r Reason) string {
	if r.Small == 0 {
		return ""
	}
	return fmt.Sprintf("; %s of a model that has too few GPUs for this job", Counted(r.Small, "matching GPU is", "matching GPUs are"))
}

// String lists the counts that are not 0.
func (u Used) String() string {
	var parts []string
	for _, of := range []struct {
		n    int
		what string
	}{{u.Allocated, "allocated"}, {u.Unhealthy, "unhealthy"}, {u.Quarantined, "quarantined"}, {u.Unavailable, "unavailable"}} {
		if of.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of.n, of.what))
		}
	}
	if u.Kept > 0 {
		parts = append(parts, fmt.Sprintf("%d reserved for jobs ahead", u.Kept))
	}
	if u.Outliers > 0 {
		parts = append(parts, Counted(u.Outliers, "outlier", "outliers"))
	}
	return strings.Join(parts, ", ")
}

// onNodes counts the nodes to which a reason applies.
func onNodes(r Reason) string {
	if r.Total == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %s)", r.Nodes, Counted(r.Total, "node", "nodes"))
}

// kindOfTemplate returns why a job does not run itself: it is parameterized or periodic.
func (r Reason) kindOfTemplate() string { return cmp.Or(r.Cause, "parameterized or periodic") }

// there writes how many members exist, and how many there should be: "2 of 4 members".
func there(r Reason) string {
	return fmt.Sprintf("%d of %s", r.Have, Counted(r.Want, "member", "members"))
}

// placed says how many members of an incomplete gang Nomad has placed.
func placed(r Reason) string { return fmt.Sprintf("only %s %s placed", there(r), be(r.Have)) }

// placedByNomad counts the members that Nomad has placed, for a job that the placer leaves alone.
func placedByNomad(r Reason) string {
	switch {
	case r.Have == 0:
		return "Nomad has placed none of the job's members"
	case r.Have < r.Want:
		return fmt.Sprintf("managed by Nomad alone on %s, %d of %d members", Count(r.Needs), r.Have, r.Want)
	}
	return "managed by Nomad alone on " + Count(r.Needs)
}

// membersRun describes what a job's members do.
func membersRun(r Reason) string {
	d := *r.Doing
	text := fmt.Sprintf("%d of %d members run", d.Run, r.Want)
	if r.Want == 1 {
		text = map[bool]string{true: "its member runs", false: "its member does not run yet"}[d.Run == 1]
	}
	for _, of := range []struct {
		n    int
		what string
	}{
		{d.Restarting, "ended and now restarting (restart block)"},
		{d.Replacing, "placed but waiting for old members to end (kill_timeout)"},
		{d.Pending, "placed and pending (for example, pulling images)"},
		{d.Complete, "complete"},
		{d.Preempted, "preempted by Nomad for jobs with a higher priority"},
	} {
		if of.n > 0 {
			text += fmt.Sprintf(", %d %s", of.n, of.what)
		}
	}
	return text
}

// ended reports how many members are complete.
func ended(r Reason) string {
	return there(r) + " complete" + ending(r)
}

// ending reports how many members have not ended yet.
func ending(r Reason) string {
	if r.Doing == nil || r.Doing.Ending == 0 {
		return ""
	}
	return "; " + Counted(r.Doing.Ending, "is still stopping and holds its GPUs", "are still stopping and hold their GPUs")
}

// provided says which jobs must have ended before a planned job could start: "if default/a had
// succeeded".
func provided(r Reason, word string) string {
	var all []string
	for _, p := range r.Because {
		all = append(all, names(p.Jobs)+" had succeeded")
	}
	if len(all) == 0 {
		return ""
	}
	return " " + word + " " + names(all) + " (pal_after)"
}

// comesAfter says which jobs must succeed before a job can start.
func comesAfter(r Reason) string {
	return "comes after " + names(r.Jobs) + " (pal_after)"
}

// names lists jobs.
func names(jobs []string) string {
	n := len(jobs)
	if n > 1 {
		return strings.Join(jobs[:n-1], ", ") + " and " + jobs[n-1]
	}
	return strings.Join(jobs, "")
}

// Count writes a number of GPUs: "1 GPU", "2 GPUs".
func Count(n int) string { return Counted(n, "GPU", "GPUs") }

// Amount writes a number of GPUs, in which parts of shared GPUs count as fractions: "0.5 GPUs".
func Amount(n float64) string {
	if n == 1 {
		return "1 GPU"
	}
	return Number(n) + " GPUs"
}

// Number writes an amount of GPUs without a unit: "0.5".
func Number(gpus float64) string { return strconv.FormatFloat(Rounded(gpus), 'f', -1, 64) }

// Rounded rounds an amount of GPUs to three decimals for display.
func Rounded(gpus float64) float64 { return math.Round(gpus*1000) / 1000 }

// counts writes the number of GPUs by which a job counts towards a limit. Parts of shared GPUs
// count as fractions.
func counts(r Reason) string { return Amount(cmp.Or(r.Counts, float64(r.Needs))) }

// Counted writes a number of things: "1 job", "2 jobs".
func Counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// are writes a count with a verb: "none is", "1 is", "2 are".
func are(n int) string {
	if n == 0 {
		return "none is"
	}
	return fmt.Sprintf("%d %s", n, be(n))
}

func be(n int) string { return map[bool]string{true: "is", false: "are"}[n == 1] }

func them(n int) string { return map[bool]string{true: "it", false: "them"}[n == 1] }

// times writes a number of repetitions: "once", "2 times".
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Second writes a time to the second, in UTC.
func Second(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// Moment writes a time to the minute, in UTC.
func Moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// lasting writes the beginning and the end of a window, or only the end if the window has begun.
func lasting(r Reason) string {
	if r.From.IsZero() {
		return " until " + Moment(r.Until)
	}
	return " from " + Moment(r.From) + " to " + Moment(r.Until)
}

// by writes who did something: " by ops". If the person is unknown, it returns "".
func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// await names the user or tenant whose limit is reached, and whose jobs must end before the job's
// members start.
func await(r Reason) string {
	if r.User != "" {
		return fmt.Sprintf("the limit of user %s is reached: the job's members start when other jobs of the user end", r.User)
	}
	return "the tenant's limit is reached: the job's members start when other jobs of the tenant end"
}
