// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/cli"

	"github.com/nomad-pal/nomad-pal/internal/wholefile"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/measured"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

var helpProfile = help("profile <command>", "A profile says how fast each GPU is, per application class.",
	examples("Show the current profile:", "nomad-pal profile show"))

// runProfile prints only the list of the command's subcommands.
func runProfile(*base, []string) int { return cli.RunResultHelp }

const fileOptions = `
File Options:

  -app=<name>              The application of rows without one.
  -model=<name>            The GPU model of rows without one.
  -key=<key>               The comparability key of rows without one. Two times are compared only
                           if their keys are equal (batch size, power limit, driver branch).

Files are tables (CSV) with a header and the columns gpu, app, time and
optionally model, key, noise and rate (work per second, in TFLOP/s for the classes A
and B, GB/s for C, Gload/s for D); JSON arrays of objects with these names; reports
of nomad-device-pal measure; or profiles. "-" is standard input.
`

// fileFlags adds the flags that the help text fileOptions describes.
func fileFlags(fs *flag.FlagSet, d *measured.Defaults) {
	fs.StringVar(&d.App, "app", "", "")
	fs.StringVar(&d.Model, "model", "", "")
	fs.StringVar(&d.Key, "key", "", "")
}

// readMeasurements reads measured times from files.
func readMeasurements(b *base, files []string, d measured.Defaults) ([]measured.Row, error) {
	var rows []measured.Row
	for _, f := range files {
		data, err := b.readFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading measurements: %w", err)
		}
		name := f
		if f == "-" {
			name = "standard input"
		}
		more, err := measured.Read(name, data, d)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// readCalibration reads the cluster's measurements and profile, without the import whose name is in
// but. readCalibration prints a warning about measurements that it cannot use.
func readCalibration(b *base, client *nomad.Client, but string) (*placer.Calibration, error) {
	cal, problem, err := placer.ReadCalibration(b.ctx, client, but)
	if err == nil && problem != nil {
		fmt.Fprintln(b.io.err, "Warning: left out:", problem)
	}
	return cal, err
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
			err = fmt.Errorf("%s: no model is given for GPU %q: add a column model, or use -model", r.At, r.GPU)
		}
		if _, seen := strangers[r.GPU]; !here && !seen {
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
	var lines []string
	for _, id := range ids[:min(few, len(ids))] {
		lines = append(lines, fmt.Sprintf("  %s: GPU %q", strangers[id], id))
	}
	if len(ids) > few {
		lines = append(lines, fmt.Sprintf("  and %d more", len(ids)-few))
	}
	return fmt.Errorf("%d GPUs are not in the cluster:\n%s\nCheck the ids with nomad-pal gpus, or use -allow-unknown", len(ids), strings.Join(lines, "\n"))
}

// writeTo writes data to a file atomically, or to standard output if path is "" or "-".
func writeTo(b *base, path string, data []byte) error {
	if path == "" || path == "-" {
		_, err := b.io.out.Write(data)
		return err
	}
	return wholefile.Write(path, data)
}
