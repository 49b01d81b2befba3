// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// visibleDevices is the variable that Nomad's device plugins give a task.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES="

// visibleTo says which of the GPUs a process of this machine was given, as
// Nomad gives them: there is no call for the end of a reservation, and a task
// may leave its GPU idle for a while. Processes of others can be read by root
// only; what cannot be read is skipped.
func visibleTo(proc string, gpus []string) map[string]bool {
	used := map[string]bool{}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return used
	}
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		env, err := os.ReadFile(filepath.Join(proc, e.Name(), "environ"))
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			list, ok := strings.CutPrefix(string(v), visibleDevices)
			if !ok {
				continue
			}
			for id := range strings.SplitSeq(list, ",") {
				used[id] = true
			}
		}
	}
	found := map[string]bool{}
	for _, id := range gpus {
		if used[id] {
			found[id] = true
		}
	}
	return found
}
