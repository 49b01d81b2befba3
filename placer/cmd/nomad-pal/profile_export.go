// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"

	"github.com/nomad-pal/nomad-pal/internal/wholefile"
	"github.com/nomad-pal/nomad-pal/placer/measured"
)

var helpProfileExport = help("profile export [options]", `
Writes the profile that the agent keeps in Nomad's variables: unchanged, for the
device plugin, another cluster or a backup; or only its times, as a table.

Export Options:

  -o=<file>                The file to write. Default: standard output.
  -csv                     Write the times as a table that profile import reads.
`, examples(
	"Back up the profile:", "nomad-pal profile export -o profile.json",
	"As a table:", "nomad-pal profile export -csv -o times.csv",
), generalOptions)

func runProfileExport(b *base, args []string) int {
	fs := b.flagsWithoutJSON("profile export")
	out := fs.String("o", "", "")
	table := fs.Bool("csv", false, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	p, err := profileInForce(b)
	if err != nil {
		return b.fail(err)
	}
	text := p.Encode()
	if *table {
		var csv bytes.Buffer
		err = measured.WriteCSV(&csv, p.Samples())
		text = csv.Bytes()
	}
	if err == nil && *out == "" {
		_, err = b.io.out.Write(text)
	} else if err == nil {
		err = wholefile.Write(*out, text)
	}
	if err != nil {
		return b.fail(fmt.Errorf("writing the profile: %w", err))
	}
	if *out != "" {
		b.io.printf("Wrote profile version %d, %d GPUs, to %s\n", p.Version, len(p.GPUs), *out)
	}
	return 0
}
