// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"

	"github.com/nomad-pal/nomad-pal/bench/sim"
	"github.com/nomad-pal/nomad-pal/bench/trace"
)

func (o *options) readNomad() (trace.Trace, sim.Population, error) {
	return trace.Trace{}, sim.Population{}, errors.New("-from-nomad is not there yet")
}
