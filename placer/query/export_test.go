// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/request"
)

// Tried returns how many changes of a job are tried on a cluster, up to a limit.
func Tried(v *request.View, job *api.Job, most int) int {
	t := &trial{v, job, most}
	t.find()
	return most - t.left
}

// MostTried is the largest number of changes that one answer tries.
const MostTried = mostTried
