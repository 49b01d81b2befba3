// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"errors"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// explain and the list agree that a job is rejected, even while the placer still stops it (walk
// 20385).
func TestRefusedWhileItIsStopped(t *testing.T) {
	var j Tracked
	j.Refused = errors.New("its members had already finished")
	if got := j.WhyWaits(nil, nil, reason.Reason{}); !got.Same(Refused(j.Refused)) {
		t.Errorf("%v", got)
	}
}
