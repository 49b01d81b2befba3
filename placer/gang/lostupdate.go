// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"encoding/json"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

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
