// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// The more groups a job has, the fewer changes are tried for the advice, because other answers wait
// meanwhile.
func TestTriesOfLargeJobs(t *testing.T) {
	t.Parallel()
	for groups, want := range map[int]int{1: 100, 10: 100, 20: 50, 1000: 3} {
		if got := triesOf(&api.Job{TaskGroups: make([]*api.TaskGroup, groups)}); got != want {
			t.Errorf("%d groups: %d tries, want %d", groups, got, want)
		}
	}
}
