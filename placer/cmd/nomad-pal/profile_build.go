// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/measured"
)

var helpProfileBuild = help("profile build [options] [<file>...]", `
Turns measured times into a profile: how fast every GPU is for every
application, relative to the median GPU of its kind, and its variability class.
The profile is printed, or written to a file that the device plugin can read
(plugin config "profile"). Nothing in the cluster changes: to import times, see
profile import.

Build Options:

  -cluster                 Also use what the cluster's nodes publish, and earlier imports.
  -o=<file>                Write the profile to this file, and a summary to standard output.
  -previous=<file>         The previous profile. The new profile gets the next version, and
                           a GPU changes its class only if its score moves far enough.
`, fileOptions, examples(
	"Turn measured times into a profile for the device plugin:", "nomad-pal profile build -o profile.json times.csv",
	"Build the profile again from the cluster's measurements:", "nomad-pal profile build -cluster",
), outputOptions, generalOptions)

func runProfileBuild(b *base, args []string) int {
	fs := b.flags("profile build")
	var defaults measured.Defaults
	fileFlags(fs, &defaults)
	cluster := fs.Bool("cluster", false, "")
	out := fs.String("o", "", "")
	previous := fs.String("previous", "", "")
	files, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	if len(files) == 0 && !*cluster {
		return b.fail(fmt.Errorf("nothing to build from: give files, or use -cluster; see nomad-pal profile build -help"))
	}
	rows, err := readMeasurements(b, files, defaults)
	if err != nil {
		return b.fail(err)
	}
	cal, err := calibration(b, *cluster, *previous)
	if err != nil {
		return b.fail(err)
	}
	samples, _, err := samplesOf(rows, cal.Known)
	if err != nil {
		return b.fail(err)
	}
	options := profile.DefaultOptions()
	options.Created = time.Now().UTC().Format(time.RFC3339)
	p, err := cal.Build(options, samples...)
	if err != nil {
		return b.fail(err)
	}
	if err := writeTo(b, *out, p.Encode()); err != nil {
		return b.fail(fmt.Errorf("writing the profile: %w", err))
	}
	if *out == "" || *out == "-" {
		return 0
	}
	return b.show(summarize(p, ""), func() { printProfile(b, p, "", false) })
}

// calibration returns the basis of a new profile: the cluster's measurements if cluster is set, and
// the previous profile if previous names a file.
func calibration(b *base, cluster bool, previous string) (*placer.Calibration, error) {
	cal := &placer.Calibration{}
	if cluster {
		client, err := b.client()
		if err != nil {
			return nil, err
		}
		if cal, err = readCalibration(b, client, ""); err != nil {
			return nil, err
		}
	}
	var err error
	if previous != "" {
		cal.Profile, err = parseProfile(b, previous, "the previous profile")
	}
	return cal, err
}
