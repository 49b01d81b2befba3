// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"slices"
	"strings"
)

// callNames are the suffixes of paths /v1/job/<id>/… that Nomad's HTTP API interprets as calls
// (JobSpecificRequest, Nomad 1.11.3). Ids may contain slashes. Therefore, the API cannot address a
// job whose id ends with one of these suffixes.
var callNames = []string{
	"action", "actions", "allocations", "deployment", "deployments", "dispatch", "dispatch/payload", "evaluate",
	"evaluations", "periodic/force", "plan", "revert", "scale", "services", "stable", "submission", "summary", "tag", "versions",
}

// longestID is the maximum length of a job's id, in bytes. Nomad has no limit, but a request for a
// job with a longer id can be too long for the agent's API, and its id makes lists, logs and
// variables of other jobs unusable.
const longestID = 1000

// Addressable returns an error if the HTTP API of Nomad or of the agent cannot address a job with
// this id, so that nobody could read or stop the job.
func Addressable(id string) error {
	if len(id) > longestID {
		return fmt.Errorf("job id %.20q… has %d bytes, but nomad-pal supports at most %d: give the job another id", id, len(id), longestID)
	}
	if id == "." || id == ".." {
		return fmt.Errorf("job id %q conflicts with a path of Nomad's HTTP API: give the job another id", id)
	}
	i := slices.IndexFunc(callNames, func(call string) bool { return strings.HasSuffix(id, "/"+call) })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("job id %q ends with /%s, which Nomad's HTTP API interprets as one of its own calls: give the job another id", id, callNames[i])
}
