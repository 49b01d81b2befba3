// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"

	"github.com/nomad-pal/nomad-pal/placer/measured"
)

type profileExportCommand struct{ base }

func (c *profileExportCommand) Help() string {
	return help("profile export [options]", `
Writes the profile that the agent keeps in Nomad's variables: as it is, for the
device plugin, another cluster or safekeeping; or the times in it as a table.

Export Options:

  -o=<file>                Where to, standard output by default.
  -csv                     The times as a table, as profile build and import read it.
`, examples(
		"Keep the profile:", "nomad-pal profile export -o profile.json",
		"As a table:", "nomad-pal profile export -csv -o times.csv",
	), generalOptions)
}

func (c *profileExportCommand) Run(args []string) int {
	fs := c.only(c.flags("profile export"))
	out := fs.String("o", "", "")
	table := fs.Bool("csv", false, "")
	if _, ok := c.parse(fs, args, 0); !ok {
		return 1
	}
	p, err := c.profileInForce()
	if err != nil {
		return c.fail(err)
	}
	text := p.Encode()
	if *table {
		var b bytes.Buffer
		err = measured.WriteCSV(&b, measured.Samples(p))
		text = b.Bytes()
	}
	if err == nil {
		err = c.writeTo(*out, text)
	}
	if err != nil {
		return c.fail(fmt.Errorf("writing the profile: %w", err))
	}
	if *out != "" && *out != "-" {
		c.printf("Wrote profile version %d, %d GPUs, to %s\n", p.Version, len(p.GPUs), *out)
	}
	return 0
}
