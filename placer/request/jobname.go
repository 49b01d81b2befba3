// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"slices"
	"strings"
)

// callNames are what Nomad's HTTP API takes at the end of /v1/job/<id>/… for one of its
// calls (JobSpecificRequest, Nomad 1.11.3). Ids may hold slashes, so that one which ends
// with such a name is never seen as an id.
var callNames = []string{
	"action", "actions", "allocations", "deployment", "deployments", "dispatch", "dispatch/payload", "evaluate",
	"evaluations", "periodic/force", "plan", "revert", "scale", "services", "stable", "submission", "summary", "tag", "versions",
}

// Addressable reports why Nomad's HTTP API cannot be asked about a job of that id, nor told to
// stop it; nil if it can.
func Addressable(id string) error {
	if id == "." || id == ".." {
		return fmt.Errorf("job id %q is a part of the path to Nomad's HTTP API: give the job another id", id)
	}
	i := slices.IndexFunc(callNames, func(call string) bool { return strings.HasSuffix(id, "/"+call) })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("job id %q ends with /%s, which Nomad's HTTP API takes for a call of its own: give the job another id", id, callNames[i])
}
