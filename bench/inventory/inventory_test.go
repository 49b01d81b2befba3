// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package inventory

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

func TestRates(t *testing.T) {
	gpus, err := population.Draw(population.Spec{Cluster: "longhorn", Nodes: 1, GPUsPerNode: 1}, rand.New(rand.NewPCG(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if text := File(gpus); !strings.Contains(text, "rates         = { A = "+strconv.FormatFloat(gpus[0].Rates[0], 'g', 9, 64)+",") {
		t.Errorf("rates %v are not in the inventory:\n%s", gpus[0].Rates, text)
	}
	gpus[0].Rates = [pal.NumClasses]float64{}
	if text := File(gpus); !strings.Contains(text, "rates         = {  }") {
		t.Errorf("no rates:\n%s", text)
	}
}
