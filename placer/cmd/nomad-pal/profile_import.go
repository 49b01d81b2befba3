// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/measured"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

var helpProfileImport = help("profile import [options] <file>...", `
Stores measured times in Nomad's variables. The agent reads them at its next
full read (every 5 minutes) or at once on SIGHUP, and calibrates
again. For GPUs and applications in the file, these times replace those that the
nodes publish. A second import under the same name replaces the first.

Import Options:

  -name=<name>             The name of this import. Default: the name of the first file.
  -allow-unknown           Accept GPUs that the cluster does not have now.
  -dry-run                 Print what would change, and change nothing.
  -delete                  Delete what was imported under -name.

Files are tables (CSV) with a header and the columns gpu, app, time and
optionally model, key, noise and rate (work per second, in TFLOP/s for the classes A
and B, GB/s for C, Gload/s for D); JSON arrays of objects with these names; reports
of nomad-device-pal measure; or profiles. Two times are compared only if their keys are
equal (batch size, power limit, driver branch). "-" is standard input.
`, examples(
	"What would measurements from elsewhere change?", "nomad-pal profile import -dry-run times.csv",
	"Import measurements for nomad-pal:", "nomad-pal profile import -name bench times.csv",
	"Delete an import:", "nomad-pal profile import -name bench -delete",
), outputOptions, generalOptions)

// imported is what nomad-pal profile import prints with -json.
type imported struct {
	Source  string          `json:"source"`       // name of the import
	Samples int             `json:"samples"`      // number of measured times in the files
	GPUs    int             `json:"gpus"`         // number of GPUs in the files
	Unknown int             `json:"unknown_gpus"` // number of these GPUs that the cluster does not have now
	Changes []profile.Event `json:"changes"`      // changes to the profile, by GPU; empty with -delete
	DryRun  bool            `json:"dry_run"`      // nothing was stored
}

func runProfileImport(b *base, args []string) int {
	fs := b.flags("profile import")
	source := fs.String("name", "", "")
	allow := fs.Bool("allow-unknown", false, "")
	dry := fs.Bool("dry-run", false, "")
	drop := fs.Bool("delete", false, "")
	files, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	if *drop != (len(files) == 0) || *drop && *source == "" {
		return b.fail(fmt.Errorf("give files to import, or use -delete and -name; see nomad-pal profile import -help"))
	}
	if *source == "" {
		*source = sourceName(files[0])
	}
	if err := store.CheckSource(*source); err != nil {
		return b.fail(fmt.Errorf("-name: %w", err))
	}
	rows, err := readMeasurements(b, files)
	if err != nil {
		return b.fail(err)
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	if *drop {
		return dropImported(b, client, *source)
	}
	return storeImported(b, client, imported{Source: *source, DryRun: *dry}, rows, *allow)
}

func dropImported(b *base, client *nomad.Client, source string) int {
	kept := store.In(client).Measurements(source)
	paths, err := kept.Paths(b.ctx)
	if err == nil && len(paths) == 0 {
		if _, err = kept.ReadOrRefused(b.ctx); err == nil { // if the read is refused, Nomad may hide the imports from this token
			err = fmt.Errorf("nothing is imported under %q", source)
		}
	}
	if err == nil {
		err = kept.Write(b.ctx, nil)
	}
	if err != nil {
		return b.fail(err)
	}
	return b.show(imported{Source: source}, func() { b.io.printf("Nothing is imported under %q now.\n", source) })
}

// storeImported stores the new rows, after it has checked that the agent can calibrate with them.
func storeImported(b *base, client *nomad.Client, im imported, rows []measured.Row, allow bool) int {
	cal, problem, err := placer.ReadCalibration(b.ctx, client, im.Source)
	if err != nil {
		return b.fail(err)
	}
	if problem != nil {
		b.io.complain("Warning: left out: " + problem.Error())
	}
	samples, strangers, err := samplesOf(rows, cal.Known)
	if len(strangers) > 0 && !allow {
		err = strange(strangers)
	}
	if err != nil {
		return b.fail(err)
	}
	options := profile.DefaultOptions()
	if cal.Profile != nil {
		options = cal.Profile.Options
	}
	p, err := cal.Build(options, samples...)
	if err != nil {
		return b.fail(err)
	}
	im.Samples = len(samples)
	im.Unknown = len(strangers)
	im.Changes = profile.Diff(cal.Profile, p)
	gpus := map[string]bool{}
	for _, s := range samples {
		gpus[s.GPU] = true
	}
	im.GPUs = len(gpus)
	if !im.DryRun {
		if err := store.In(client).Measurements(im.Source).Write(b.ctx, samples); err != nil {
			return b.fail(err)
		}
	}
	return b.show(im, func() { printImported(b, im) })
}

func printImported(b *base, im imported) {
	verb := "Imported"
	if im.DryRun {
		verb = "Would import"
	}
	b.io.printf("%s %d measurements of %d GPUs as %q", verb, im.Samples, im.GPUs, im.Source)
	if im.Unknown > 0 {
		b.io.printf(", %d of which the cluster does not have now", im.Unknown)
	}
	b.io.printf(".\n")
	for _, e := range im.Changes {
		b.io.printf("  %s\n", e)
	}
	if !im.DryRun {
		b.io.printf("The agent uses these measurements after its next full read, or at once on SIGHUP.\n")
	}
}

// sourceName derives the name of an import from the name of its file.
func sourceName(file string) string {
	base := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	name := regexp.MustCompile(`[^a-zA-Z0-9_-]+`).ReplaceAllString(base, "-")
	return name[:min(64, len(name))]
}
