// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"strings"
	"testing"
)

// Validate refuses a gang from outside whose numbers make no sense.
func TestGangValidate(t *testing.T) {
	for want, change := range map[string]func(*Gang){
		"":                                          func(*Gang) {},
		`application class "Z" is unknown`:          func(g *Gang) { g.Class = "Z" },
		"-1 members of 2 GPUs":                      func(g *Gang) { g.MemberSets[0].Members = -1 },
		"3 members of -2 GPUs":                      func(g *Gang) { g.MemberSets[0].GPUs = -2 },
		"CPU -1, memory 0 MB, disk 0 MB":            func(g *Gang) { g.MemberSets[0].Need.CPU = -1 },
		"CPU 0, memory -1 MB, disk 0 MB":            func(g *Gang) { g.MemberSets[0].Need.MemoryMB = -1 },
		"CPU 0, memory 0 MB, disk -1 MB":            func(g *Gang) { g.MemberSets[0].Need.DiskMB = -1 },
		"the gang asks for more than 16777216 GPUs": func(g *Gang) { g.MemberSets[0].Members = MaxGPUs },
	} {
		g := Gang{Class: ClassA, MemberSets: []MemberSet{{Name: "g", Members: 3, GPUs: 2}}}
		change(&g)
		if err := g.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error()+" ", want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
