// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

const (
	recordsFile   = "measurements.json" // in the state directory
	recordsFormat = "nomad-pal/measurements/1"
)

// recordsForm is the form of the file of results.
type recordsForm struct {
	Format string            `json:"format"`
	GPUs   map[string]record `json:"gpus"`
}

// loadRecords is nil without a directory or a file in it.
func loadRecords(d statedir.Dir) (map[string]record, error) {
	var f recordsForm
	if found, err := d.Read(recordsFile, &f); !found || err != nil {
		return nil, err
	}
	if f.Format != recordsFormat {
		return nil, fmt.Errorf("reading state %q: format is %q, want %q", recordsFile, f.Format, recordsFormat)
	}
	return f.GPUs, nil
}

func saveRecords(d statedir.Dir, records map[string]record) error {
	return d.Write(recordsFile, recordsForm{recordsFormat, records})
}
