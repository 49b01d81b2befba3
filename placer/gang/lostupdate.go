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
	// raceTime bounds the time between the author's change and our registration
	// if one replaced the other: milliseconds, or more on a busy server.
	raceTime = 5 * time.Second
	// writeTime bounds how long Nomad takes to write a registration after it
	// checked it.
	writeTime = time.Minute
)

// isLostUpdate reports whether version v of a job is a rewriting of ours of an earlier
// version that replaced those between, by which the author stopped or edited the job:
//
//	base  as it waited, or ran
//	…     stopped, or edited, and perhaps placed so
//	v     what the base asks for, with other pins, or another gate, than any version before
//
// Our registering rests on the version before it otherwise. A person can make
// such a v by reverting or starting the job; that is like a version before.
//
// Nomad notes when a version was submitted as it checks it, just before it writes it (seen
// on 1.11.3). A v that was submitted before a version that it follows was written late, over
// it: then nobody has reverted anything, though v may be like a version before, where two
// placers have decided the same. If times are further apart than a write takes, Nomad's clock
// was set between them, and they tell nothing.
//
// Nomad itself puts a version back when a deployment fails (auto_revert), all of it: the
// submit time, too (seen on 1.11.3), which no other two versions have in common. It may have dropped the one that
// it put back as it did so, the oldest: a version that succeeded, and that was submitted before all that ask for the
// same, rests on none of them.
//
// A job that was purged and brought back cannot be told from a new one: Nomad
// keeps no version of it. Somebody has to purge it again.
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
	late, seen := false, false // written late; like a version before the last
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

// revertedByNomad reports whether Nomad itself restored a version
// (auto_revert); see [isLostUpdate].
func revertedByNomad(versions map[uint64]*api.Job, v uint64) bool {
	now := versions[v]
	asks, whole := SpecText(rewrite.Author(now)), SpecText(now)
	rests := now.Stable == nil || !*now.Stable // on a version that Nomad keeps
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

// SpecText is what a version asks for, as text to compare: without what Nomad writes into each
// version, and without the count of an elastic group, which is ours. Gate and pins are in it unless
// the caller removes them, see [rewrite.Author].
func SpecText(job *api.Job) string {
	text, err := json.Marshal(job)
	fields := map[string]any{}
	if err != nil || json.Unmarshal(text, &fields) != nil {
		return "" // a job that came as JSON can be written as JSON
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
				if s, ok := g["Scaling"].(map[string]any); ok { // the author sets the range; Nomad sets the rest
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

// bare removes empty members from a JSON value; nil if nothing is left.
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

// overwroteWith reports whether our registration replaced a change that we had
// not seen. Nomad checks the enforced index before it writes, not while it
// writes (seen on 1.11.3): a job that is stopped, purged or edited in the
// milliseconds between is restored. The version shows it: each registration
// makes the next version, so a higher one than expected means another
// registration in between.
func (g *Observed) overwroteWith(now *api.Job) bool {
	if g.Job == nil || *g.Job.JobModifyIndex != *now.JobModifyIndex {
		return false
	}
	if now.CreateIndex == nil || g.Job.CreateIndex == nil {
		return false
	}
	return *now.CreateIndex != *g.Job.CreateIndex || *now.Version > *g.Job.Version
}

// verify checks in the versions whether our last registration replaced the expected version.
func (g *memory) verify(versions map[uint64]*api.Job) {
	now := versions[*g.Job.Version]
	if now != nil && *now.JobModifyIndex == *g.Job.JobModifyIndex && !g.overwroteWith(now) {
		g.assumed = nil
	}
}

// undo undoes a registration that replaced another author's change: it purges a
// purged job, stops a stopped one and restores an edited one.
func (g *Lifecycle) undo(w World) ([]Effect, bool) {
	if !g.overwrote {
		return nothing()
	}
	if first(g.Job) {
		return []Effect{g.log(Warn, "the job was purged while it was being placed, purging it again"), Deregister{ToUndo, true}}, false
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
		// One of our registrations followed another. Authors do not write pins.
		return []Effect{g.log(Warn, "the job was purged while it was being stopped, purging it again"), Deregister{ToUndo, true}}, false
	case lost == nil:
		return g.wrong(fmt.Errorf("version %d, which was replaced while the job was being placed: %w", *g.Job.Version-1, ErrNoVersion), w), false
	case ours(lost) && !rewrite.Stopped(lost) && SpecText(rewrite.Author(lost)) == SpecText(rewrite.Author(g.Job)):
		// Two placers registered the author's version, one after the other, so
		// the author lost nothing. Restoring the first would rerun what has
		// finished since (walk 30592).
		g.overwrote = false
		return nothing()
	case cluster.Ended(lost) && rewrite.Stopped(lost):
		return []Effect{g.log(Warn, "the job was stopped while it was being placed, stopping it again"), Deregister{ToUndo, false}}, false
	}
	return []Effect{g.log(Warn, "the job was edited while it was being placed, taking over the edit"), Register{Why: ToUndo, Job: lost}}, false
}

// first reports whether the job is as it was first registered. A child begins
// with its template's version. A job from the RPC port begins with the version
// that it was sent with (seen on 1.11.3).
func first(job *api.Job) bool {
	return *job.Version == 0 || job.CreateIndex != nil && *job.CreateIndex == *job.JobModifyIndex
}

// ours reports whether a version carries pins: only the placer writes them.
func ours(job *api.Job) bool {
	_, pinned := rewrite.Pinned(job)
	return pinned
}

// mustLookBack reports whether a registration may have overwritten the author's change without this
// placer's knowledge: its own, not recognized as such, or an earlier placer's.
func (g *memory) mustLookBack() bool {
	return !g.lookedBack && !g.overwrote && !g.unverified() && len(g.Pins.Groups) > 0 && *g.Job.Version >= 2 &&
		(g.Record == nil || g.Record.JobModifyIndex != *g.Job.JobModifyIndex || g.Record.Unverified)
}

// findEarlierLostUpdate checks, once, a job that this placer did not register:
// an earlier placer may have replaced the author's change and crashed before it
// saw or undid that. A job whose last registration is recorded as verified
// needs no check.
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

// stopBeforeRevert is the author's stop that our registration replaced, before
// Nomad restored an earlier version (auto_revert); nil if none. Seen in walk
// 8000063.
func (g *Lifecycle) stopBeforeRevert() *api.Job {
	vs, v := g.read.versions, *g.Job.Version
	if v < 3 || vs[v] == nil || vs[v-2] == nil || !rewrite.Stopped(vs[v-2]) || !revertedByNomad(vs, v) || !isLostUpdate(vs, v-1) {
		return nil
	}
	return vs[v-2]
}
