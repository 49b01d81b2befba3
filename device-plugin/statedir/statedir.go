// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package statedir keeps what the device plugin must not forget when it is
// restarted, as JSON files in one directory, and takes orders that an operator's
// command leaves there for the running plugin: a file for each, named after the
// GPU it is about.
//
// A [Dir] of "" keeps nothing and takes no orders.
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is the plugin's state_dir.
type Dir string

// Read decodes a file. Where there is none, into is left as it is and found is
// false.
func (d Dir) Read(name string, into any) (found bool, err error) {
	if d == "" {
		return false, nil
	}
	path := filepath.Join(string(d), name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading state: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("reading state %q: %w", path, err)
	}
	return true, nil
}

// Write replaces a file by v as JSON.
func (d Dir) Write(name string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("writing state %q: %w", name, err)
	}
	return d.Replace(name, append(data, '\n'))
}

// Replace replaces a file in one step: after a crash it is the old one or the
// new one, whole.
func (d Dir) Replace(name string, data []byte) error {
	if d == "" {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	return ReplaceFile(filepath.Join(string(d), name), data)
}

// ReplaceFile writes a file in one step.
func ReplaceFile(path string, data []byte) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("writing %q: %w", path, errors.Join(err, os.Remove(next)))
	}
	return nil
}

// Orders is a kind of orders, and the directory below the state directory that
// they lie in.
type Orders string

// The kinds of orders.
const (
	Clear   Orders = "clear"   // forget the latched faults of a GPU
	Measure Orders = "measure" // measure a GPU as soon as it is idle
)

// Give leaves an order about a GPU for the plugin that uses the directory.
func (o Orders) Give(d Dir, gpu string) error {
	if gpu == "" || filepath.Base(gpu) != gpu {
		return fmt.Errorf("device id %q is not a UUID", gpu)
	}
	orders := filepath.Join(string(d), string(o))
	err := os.MkdirAll(orders, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(orders, gpu), nil, 0o644)
	}
	if err != nil {
		return fmt.Errorf("giving the order to %s %q: %w", o, gpu, err)
	}
	return nil
}

// Given says whether there is an order about the GPU.
func (o Orders) Given(d Dir, gpu string) bool {
	if d == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(string(d), string(o), gpu))
	return err == nil
}

// Done takes the order about the GPU away, if there is one.
func (o Orders) Done(d Dir, gpu string) error {
	if !o.Given(d, gpu) {
		return nil
	}
	return os.Remove(filepath.Join(string(d), string(o), gpu))
}

// Take returns the GPUs that there are orders about, sorted, and takes the
// orders away.
func (o Orders) Take(d Dir) []string {
	if d == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(string(d), string(o)))
	if err != nil {
		return nil // nobody ever gave one
	}
	var ids []string
	for _, e := range entries {
		if o.Done(d, e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids
}
