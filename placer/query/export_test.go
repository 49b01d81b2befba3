// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/request"
)

// Tried counts the changes of a job that are tried on a cluster, up to a bound.
func Tried(v *request.View, job *api.Job, most int) int {
	t := &trial{v, job, most}
	t.find()
	return most - t.left
}

// MostTried is how many are in an answer.
const MostTried = mostTried
