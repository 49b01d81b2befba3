// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// Explain says if one of a gang's GPUs has become an outlier since the gang was placed. It does not
// mention small differences.
func TestRemeasured(t *testing.T) {
	d := pal.Decision{Class: pal.ClassA, Chosen: &pal.Choice{Cost: 1}}
	for _, c := range []struct {
		cost float64
		asks pal.AppClass
		want int
	}{{1.02, "", 1}, {2.4, pal.ClassA, 2}, {0.7, "", 2}, {2.4, pal.ClassD, 1}} {
		e := &draft{holds: &pal.Choice{Cost: c.cost}, asks: c.asks, Explanation: palapi.Explanation{Alternatives: []palapi.Alternative{{What: "the best now", Choice: &pal.Choice{Cost: 1}}}}}
		if e.remeasured(d); len(e.Alternatives) != c.want || c.want == 2 && (e.Alternatives[0].What != palapi.MeasuredNow || e.Alternatives[0].Cost != c.cost) {
			t.Errorf("%v: %+v", c, e.Alternatives)
		}
	}
}
