// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// placesHelp documents the forms in which commands accept GPUs.
const placesHelp = `
<gpu> is a prefix of a UUID (GPU-8d3f), nvidia-smi's number on a node (node-1:3),
or a PCI address (node-1:1a:00.0; the node can be left out if no other node has it).
`

// at returns the ids of the GPUs that a word names by their place: NODE:INDEX, NODE:BUS-ID or
// BUS-ID. Parts of a shared GPU and MIG instances have their GPU's place.
func at(all []palapi.GPU, word string) (ids []string) {
	for _, g := range all {
		slot := attr.Slot{Index: g.Index, BusID: g.BusID}
		place, ofNode := strings.CutPrefix(word, g.Node+":")
		if ofNode && slot.Named(place) || g.BusID != "" && attr.BusID(word) == g.BusID {
			ids = append(ids, g.ID)
		}
	}
	return ids
}

// oneGPU returns the whole GPU that a word names: the place of a GPU in all, or the beginning of one
// of the ids, which are those of what. A MIG instance counts as a GPU.
func oneGPU(all []palapi.GPU, ids []string, what, word string) (string, error) {
	found := attr.GPUsOf(at(all, word))
	if len(found) == 0 {
		found = beginningWith(attr.GPUsOf(ids), word)
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%q matches no %s", word, what)
	}
	return "", fmt.Errorf("%q matches %d GPUs: %s", word, len(found), firstOf(found))
}

// placeOf names a GPU as nvidia-smi on its node does; "" if its place is unknown.
func placeOf(g palapi.GPU) string {
	switch {
	case g.Index != nil && g.BusID != "":
		return fmt.Sprintf("GPU %d in nvidia-smi (%s)", *g.Index, g.BusID)
	case g.Index != nil:
		return fmt.Sprintf("GPU %d in nvidia-smi", *g.Index)
	}
	return g.BusID
}

// placeColumns reports whether a table of GPUs shows indexes, and whether it shows PCI addresses,
// which are for GPUs without a known index.
func placeColumns(gpus []palapi.GPU) (index, bus bool) {
	index = slices.ContainsFunc(gpus, func(g palapi.GPU) bool { return g.Index != nil })
	return index, slices.ContainsFunc(gpus, func(g palapi.GPU) bool { return g.Index == nil && g.BusID != "" })
}

func indexOf(g palapi.GPU) string {
	if g.Index == nil {
		return "-"
	}
	return strconv.Itoa(*g.Index)
}
