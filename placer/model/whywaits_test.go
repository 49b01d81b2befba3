// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"errors"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// A job that is refused while the placer still stops it is said to be refused, by explain as by the list
// (walk 20385).
func TestRefusedWhileItIsStopped(t *testing.T) {
	var j Tracked
	j.Refused = errors.New("its members had already finished")
	if got := j.WhyWaits(nil, reason.Reason{}); !got.Same(Refused(j.Refused)) {
		t.Errorf("%v", got)
	}
}
