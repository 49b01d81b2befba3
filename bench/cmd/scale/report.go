// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import "github.com/nomad-pal/nomad-pal/bench/command"

type report struct {
	command.Provenance
	Points   []point   `json:"points"`
	Clients  *clients  `json:"clients,omitempty"`
	Extremes *extremes `json:"extremes,omitempty"`
}

func (r *report) write(path string) error {
	return command.WriteJSON(path, r)
}

// named is a way to submit jobs, with its name.
type named struct {
	name string
	way
}

func (p point) ways() []named {
	return []named{{"plain", p.Plain}, {"gated", p.Gated}}
}
