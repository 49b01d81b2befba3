// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// raceTime is how close together an author's doing and our registering are where
// Nomad let the one replace the other: milliseconds, but on a busy server.
const raceTime = 5 * time.Second

// broughtBack says whether version v of a job is a rewriting of ours of version
// v-2 that replaced version v-1, by which the author stopped or edited the job:
//
//	v-2  as it waited, or ran
//	v-1  stopped, or edited
//	v    what v-2 asks for, with other pins, or another gate, than any version before
//
// Our registering rests on the version before it otherwise. A person can make
// such a v by reverting or starting the job; that is like a version before.
//
// A job that was purged and brought back cannot be told from a new one: Nomad
// keeps no version of it. Somebody has to purge it again.
func broughtBack(versions map[uint64]*api.Job, v uint64) bool {
	now, lost, base := versions[v], versions[v-1], versions[v-2]
	if now == nil || lost == nil || base == nil || stopped(now) || stopped(base) {
		return false
	}
	if apart := time.Duration(*now.SubmitTime - *lost.SubmitTime).Abs(); apart > raceTime {
		return false
	}
	asks := wishes(rewrite.Author(now))
	if wishes(rewrite.Author(base)) != asks || !stopped(lost) && wishes(rewrite.Author(lost)) == asks {
		return false
	}
	whole := wishes(now)
	for u, o := range versions {
		if u < v-1 && wishes(o) == whole {
			return false
		}
	}
	return true
}

func stopped(job *api.Job) bool { return job.Stop != nil && *job.Stop }

// wishes is what a version asks for, as text that is the same where that is.
func wishes(job *api.Job) string {
	text, err := json.Marshal(job)
	fields := map[string]any{}
	if err != nil || json.Unmarshal(text, &fields) != nil {
		return "" // a job that came as JSON goes as JSON
	}
	for _, kept := range []string{
		"Stop", "Status", "StatusDescription", "Stable", "Version", "VersionTag", "SubmitTime",
		"CreateIndex", "ModifyIndex", "JobModifyIndex", "NomadTokenID", "ConsulToken", "VaultToken",
	} {
		delete(fields, kept) // by Nomad, of each version
	}
	if groups, ok := fields["TaskGroups"].([]any); ok {
		for _, g := range groups {
			if g, ok := g.(map[string]any); ok {
				delete(g, "Scaling") // switched off with the job
			}
		}
	}
	text, err = json.Marshal(bare(fields))
	if err != nil {
		return ""
	}
	return string(text)
}

// bare is a JSON value without members that hold nothing.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, m := range v {
			if m = bare(m); m == nil {
				delete(v, k)
			} else {
				v[k] = m
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
