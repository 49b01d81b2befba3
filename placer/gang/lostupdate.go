// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

const (
	// raceTime is the maximum time between a change by the author and a registration by the placer
	// that replaced this change. Usually only milliseconds pass between the change and the
	// registration, but on a busy server it can be seconds.
	raceTime = 5 * time.Second
	// writeTime is the maximum time from Nomad's check of a registration until Nomad writes the
	// job.
	writeTime = time.Minute
)

// isLostUpdate reports whether the placer made version v of a job from an earlier version (base),
// and so undid a stop or edit that the author made in between:
//
//	base  the job as it waited or ran
//	…     stopped or edited by the author, and perhaps placed after that
//	v     the request of base, with other pins or another gate than any earlier version
//
// Usually the placer rewrites the version immediately before v. A version that a person registered
// by reverting or starting the job equals an earlier version.
//
// Nomad sets the submit time of a version when it checks the registration, just before it writes
// the version (seen on 1.11.3). If v was submitted before a version with a lower number, Nomad
// wrote v late and replaced that version. So version v is not the result of a revert. Version v can
// still equal an earlier version, because two placers can make the same decision. If the two submit
// times differ by more than writeTime, somebody set Nomad's clock between the two submissions, and
// the times prove nothing.
//
// If a deployment fails, Nomad itself can restore an earlier version (auto_revert), including its
// submit time (seen on 1.11.3). Only a restored version and its original have the same submit time.
// When Nomad restores a version, it can drop the original if the original is the oldest version. So
// v also counts as a restored version if it is stable and was submitted before all versions with
// the same request.
//
// isLostUpdate does not notice that a registration by the placer brought back a purged job. Nomad
// keeps no earlier version of a purged job, so the job looks new. The placer that made the
// registration notices that the job is back ([Observation]), and purges the job again. If an
// earlier placer made the registration, a person has to purge the job.
func isLostUpdate(versions map[uint64]*api.Job, v uint64) bool {
	now, last := versions[v], versions[v-1]
	if now == nil || last == nil || rewrite.Stopped(now) {
		return false
	}
	asks := SpecText(rewrite.Author(now))
	base := v - 1
	for versions[base] != nil && (rewrite.Stopped(versions[base]) || SpecText(rewrite.Author(versions[base])) != asks) {
		base--
	}
	if base == v-1 || versions[base] == nil {
		return false
	}
	if revertedByNomad(versions, v) {
		return false
	}
	late, seen := false, false // v was written late; v equals a version before the last
	whole := SpecText(now)
	for u, o := range versions {
		if u >= v {
			continue
		}
		after := submittedAfter(now, o)
		late, seen = late || after < 0 && after >= -writeTime, seen || u < v-1 && SpecText(o) == whole
	}
	return late || submittedAfter(now, last) <= raceTime && !seen
}

// revertedByNomad reports whether Nomad itself restored a version because a deployment failed
// (auto_revert). See [isLostUpdate].
func revertedByNomad(versions map[uint64]*api.Job, v uint64) bool {
	now := versions[v]
	asks, whole := SpecText(rewrite.Author(now)), SpecText(now)
	rests := now.Stable == nil || !*now.Stable // v rewrites a version that Nomad keeps
	for u, o := range versions {
		if u >= v {
			continue
		}
		after := submittedAfter(now, o)
		if after == 0 && SpecText(o) == whole {
			return true
		}
		rests = rests || after >= 0 && SpecText(rewrite.Author(o)) == asks
	}
	return !rests
}

func submittedAfter(a, b *api.Job) time.Duration {
	return time.Duration(*a.SubmitTime - *b.SubmitTime)
}

// SpecText returns the specification of a job version as text, so that versions can be compared.
// SpecText omits the fields that Nomad sets in each version, and the count of an elastic group,
// which the placer sets. SpecText includes the gate and the pins, unless the caller removes them
// with [rewrite.Author].
func SpecText(job *api.Job) string {
	text, err := json.Marshal(job)
	fields := map[string]any{}
	if err != nil || json.Unmarshal(text, &fields) != nil {
		return "" // impossible: the job came as JSON
	}
	for _, kept := range []string{
		"Stop", "Status", "StatusDescription", "Stable", "Version", "VersionTag", "SubmitTime",
		"CreateIndex", "ModifyIndex", "JobModifyIndex", "NomadTokenID", "ConsulToken", "VaultToken",
	} {
		delete(fields, kept) // Nomad's own fields of each version
	}
	e, elastic := rewrite.ElasticOf(job)
	if groups, ok := fields["TaskGroups"].([]any); ok {
		for _, g := range groups {
			if g, ok := g.(map[string]any); ok {
				if s, ok := g["Scaling"].(map[string]any); ok { // the author sets the range; Nomad sets the other fields
					g["Scaling"] = map[string]any{"Min": s["Min"], "Max": s["Max"]}
				}
				if elastic && g["Name"] == e.Group {
					delete(g, "Count") // the placer sets it
				}
			}
		}
	}
	text, err = json.Marshal(bare(fields))
	if err != nil {
		return ""
	}
	return string(text)
}

// bare removes empty parts from a JSON value. bare returns nil if nothing is left.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, m := range v {
			if bare(m) == nil {
				delete(v, k)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = bare(v[i])
		}
	}
	return v
}

// overwroteWith reports whether the placer's registration replaced a change that the placer had not
// seen. Nomad checks the enforced index before it writes, not while it writes (seen on 1.11.3). If
// somebody stops, purges or edits the job between the check and the write, the placer's
// registration undoes this action. The version number shows that an action was undone. Each
// registration increments the number by one, so a higher number than expected means that somebody
// else registered the job in between.
func (g *Observed) overwroteWith(now *api.Job) bool {
	if g.Job == nil || *g.Job.JobModifyIndex != *now.JobModifyIndex {
		return false
	}
	if now.CreateIndex == nil || g.Job.CreateIndex == nil {
		return false
	}
	return *now.CreateIndex != *g.Job.CreateIndex || *now.Version > *g.Job.Version
}

// verify checks in the job's versions whether the placer's last registration replaced the expected
// version.
func (g *memory) verify(versions map[uint64]*api.Job) {
	now := versions[*g.Job.Version]
	if now != nil && *now.JobModifyIndex == *g.Job.JobModifyIndex && !g.overwroteWith(now) {
		g.assumed = nil
	}
}

// undo undoes a registration by the placer that replaced a change by the author. undo purges the
// job again, stops the job again, or restores the author's edit.
func (g *Lifecycle) undo(w World) ([]Effect, bool) {
	if !g.overwrote {
		return nothing()
	}
	if first(g.Job) {
		return []Effect{g.log(Warn, "the job was purged while it was being placed; purging it again"), Deregister{ToUndo, true}}, false
	}
	if !g.read.hasVersions {
		return await(ReadVersions{})
	}
	lost := g.read.versions[*g.Job.Version-1]
	if stop := g.stopBeforeRevert(); stop != nil {
		lost = stop
	}
	switch {
	case g.recreated && lost != nil && first(lost) && ours(lost):
		// Both registrations have pins, so placers made them.
		return []Effect{g.log(Warn, "the job was purged while it was being stopped; purging it again"), Deregister{ToUndo, true}}, false
	case lost == nil:
		return g.wrong(fmt.Errorf("reading version %d, which was replaced while the job was being placed: %w", *g.Job.Version-1, ErrNoVersion), w), false
	case ours(lost) && !rewrite.Stopped(lost) && SpecText(rewrite.Author(lost)) == SpecText(rewrite.Author(g.Job)):
		// Two placers registered the author's version, one after the other, so the author lost
		// nothing. Restoring the first version would rerun members that have finished since then
		// (seen in random walk 30592).
		g.overwrote = false
		return nothing()
	case cluster.Ended(lost) && rewrite.Stopped(lost):
		return []Effect{g.log(Warn, "the job was stopped while it was being placed; stopping it again"), Deregister{ToUndo, false}}, false
	}
	return []Effect{g.log(Warn, "the job was edited while it was being placed; applying the edit"), Register{Why: ToUndo, Job: lost}}, false
}

// first reports whether nobody has changed the job since it was created. A dispatched or periodic
// job begins with the version number of its template. A job that was registered through the RPC
// port begins with the version number in the registration (seen on 1.11.3).
func first(job *api.Job) bool {
	return *job.Version == 0 || job.CreateIndex != nil && *job.CreateIndex == *job.JobModifyIndex
}

// ours reports whether the placer wrote a version. Versions with pins come from the placer, because
// nobody else writes pins.
func ours(job *api.Job) bool {
	_, pinned := rewrite.Pinned(job)
	return pinned
}

// mustLookBack reports whether a placer's registration may have overwritten the author's change
// without this placer's knowledge. The registration may come from an earlier placer, or from this
// placer if it did not recognize its own registration.
func (g *memory) mustLookBack() bool {
	return !g.lookedBack && !g.overwrote && !g.unverified() && len(g.Pins.Groups) > 0 && *g.Job.Version >= 2 &&
		(g.Record == nil || g.Record.JobModifyIndex != *g.Job.JobModifyIndex || g.Record.Unverified)
}

// findEarlierLostUpdate checks once whether an earlier placer replaced the author's change, and
// crashed before it noticed this or restored the change. A job whose last registration is recorded
// as verified needs no check.
func (g *Lifecycle) findEarlierLostUpdate(World) ([]Effect, bool) {
	if g.Record == nil || !g.mustLookBack() {
		return nothing()
	}
	if !g.read.hasVersions {
		return await(ReadVersions{})
	}
	g.lookedBack, g.overwrote = true, isLostUpdate(g.read.versions, *g.Job.Version) || g.stopBeforeRevert() != nil
	return nothing()
}

// stopBeforeRevert returns the version in which the author stopped the job, if the placer's
// registration replaced this stop and Nomad then restored an earlier version (auto_revert).
// Otherwise stopBeforeRevert returns nil. A random walk (8000063) found this case.
func (g *Lifecycle) stopBeforeRevert() *api.Job {
	vs, v := g.read.versions, *g.Job.Version
	if v < 3 || vs[v] == nil || vs[v-2] == nil || !rewrite.Stopped(vs[v-2]) || !revertedByNomad(vs, v) || !isLostUpdate(vs, v-1) {
		return nil
	}
	return vs[v-2]
}
