// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/cli"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/measured"
)

var helpProfile = help("profile <command>", "A profile says how fast each GPU is, per application class.",
	examples("Show the current profile:", "nomad-pal profile show"))

// runProfile prints only the list of the command's subcommands.
func runProfile(*base, []string) int { return cli.RunResultHelp }

// readMeasurements reads measured times from files.
func readMeasurements(b *base, files []string) ([]measured.Row, error) {
	var rows []measured.Row
	for _, f := range files {
		data, err := b.io.readFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading measurements: %w", err)
		}
		name := f
		if f == "-" {
			name = "standard input"
		}
		more, err := measured.Read(name, data, "")
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// samplesOf returns the samples in rows. If known contains a sample's GPU, the sample gets the
// GPU's model from known. strangers contains the GPUs that are not in known, each with the place of
// its first row in the files.
func samplesOf(rows []measured.Row, known map[string]string) (samples []profile.Sample, strangers map[string]string, err error) {
	strangers = map[string]string{}
	for _, r := range rows {
		model, here := known[r.GPU]
		switch {
		case here && r.Model != "" && r.Model != model:
			return nil, nil, fmt.Errorf("%s: GPU %q is a %q in the cluster, not a %q", r.At, r.GPU, model, r.Model)
		case here:
			r.Model = model
		case r.Model == "" && err == nil: // return this error only at the end, because the caller first decides about strangers
			err = fmt.Errorf("%s: no model is given for GPU %q: add a column model", r.At, r.GPU)
		}
		_, seen := strangers[r.GPU]
		if !here && !seen {
			strangers[r.GPU] = r.At
		}
		samples = append(samples, r.Sample)
	}
	return samples, strangers, err
}

// strange returns an error that lists GPUs that the cluster does not have, and the places of their
// rows.
func strange(strangers map[string]string) error {
	ids := slices.Sorted(maps.Keys(strangers))
	places := each(ids, func(id string) string { return fmt.Sprintf("%s: GPU %q", strangers[id], id) })
	return fmt.Errorf("%d GPUs are not in the cluster: %s. Check the ids with nomad-pal gpus, or use -allow-unknown", len(ids), firstOf(places))
}
