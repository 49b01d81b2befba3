// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files in the state directory.
const (
	recordsFile   = "measurements.json"
	ordersDir     = "measure" // a file named after a GPU orders a session of it
	recordsFormat = "nomad-pal/measurements/1"
)

// recordsForm is the form of the file of results.
type recordsForm struct {
	Format string            `json:"format"`
	GPUs   map[string]record `json:"gpus"`
}

// loadRecords is nil without a directory or a file in it.
func loadRecords(dir string) (map[string]record, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, recordsFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading measurements: %w", err)
	}
	var f recordsForm
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("reading measurements %q: %w", path, err)
	}
	if f.Format != recordsFormat {
		return nil, fmt.Errorf("reading measurements %q: format is %q, want %q", path, f.Format, recordsFormat)
	}
	return f.GPUs, nil
}

func saveRecords(dir string, records map[string]record) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("storing measurements: %w", err)
	}
	data, err := json.MarshalIndent(recordsForm{recordsFormat, records}, "", " ")
	if err != nil {
		return fmt.Errorf("storing measurements: %w", err)
	}
	return writeFile(filepath.Join(dir, recordsFile), append(data, '\n'))
}

// Order asks the plugin that uses dir as its state directory to measure a GPU
// as soon as it is idle.
func Order(dir, gpu string) error {
	if gpu == "" || filepath.Base(gpu) != gpu {
		return fmt.Errorf("device id %q is not a UUID", gpu)
	}
	if err := os.MkdirAll(filepath.Join(dir, ordersDir), 0o755); err != nil {
		return fmt.Errorf("ordering to measure %q: %w", gpu, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ordersDir, gpu), nil, 0o644); err != nil {
		return fmt.Errorf("ordering to measure %q: %w", gpu, err)
	}
	return nil
}

func ordered(dir, gpu string) bool {
	if dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, ordersDir, gpu))
	return err == nil
}

func removeOrder(dir, gpu string) error {
	if !ordered(dir, gpu) {
		return nil
	}
	return os.Remove(filepath.Join(dir, ordersDir, gpu))
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
