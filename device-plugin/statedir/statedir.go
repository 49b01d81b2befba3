// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package statedir stores the device plugin's state across restarts, as JSON files in one
// directory. An operator's command writes orders for the running plugin into this directory: one
// file per order, named after the GPU.
//
// The plugin runs as root. So only root can read the directory (0700) and the files (0600), and the
// plugin refuses a directory that other users can write to.
//
// A [Dir] of "" keeps nothing and accepts no orders.
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dir is the plugin's state_dir.
type Dir string

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// Prepare makes the directory if it does not exist. The error explains why the directory cannot be
// used.
func (d Dir) Prepare() error {
	if d == "" {
		return nil
	}
	if err := os.MkdirAll(string(d), dirMode); err != nil {
		return fmt.Errorf("making state directory: %w", err)
	}
	return d.Check()
}

// Check returns nil if the plugin would use the directory: only this user, or root, can change it.
func (d Dir) Check() error {
	st, err := os.Stat(string(d))
	if err != nil {
		return fmt.Errorf("opening state directory: %w", err)
	}
	switch s, ok := st.Sys().(*syscall.Stat_t); {
	case !st.IsDir():
		err = errors.New("it is not a directory")
	case st.Mode().Perm()&0o022 != 0:
		err = fmt.Errorf("other users can write to it (mode %04o): give the plugin a directory of its own", st.Mode().Perm())
	case ok && s.Uid != 0 && int(s.Uid) != os.Geteuid():
		err = fmt.Errorf("it belongs to user %d", s.Uid)
	}
	if err != nil {
		return fmt.Errorf("opening state directory %q: %w", string(d), err)
	}
	return nil
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// Read decodes a file. If the file does not exist, found is false and into is unchanged.
func (d Dir) Read(name string, into any) (found bool, err error) {
	if d == "" {
		return false, nil
	}
	err = d.Check()
	var data []byte
	if err == nil {
		data, err = os.ReadFile(d.path(name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return false, fmt.Errorf("reading state %q: %w", d.path(name), err)
	}
	return true, nil
}

// Write writes v as JSON into a file, which it replaces.
func (d Dir) Write(name string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("writing state %q: %w", name, err)
	}
	return d.Replace(name, append(data, '\n'))
}

// Replace replaces a file in one step, so that even after a crash the file is complete.
func (d Dir) Replace(name string, data []byte) error {
	if d == "" {
		return nil
	}
	if err := d.Prepare(); err != nil {
		return err
	}
	if err := replace(d.path("."+name+".new"), d.path(name), data); err != nil {
		return fmt.Errorf("writing state %q: %w", d.path(name), err)
	}
	return nil
}

func replace(next, path string, data []byte) error {
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return nil
}

// clearPrefix begins the names of the operator's orders to forget the faults of a GPU.
const clearPrefix = "clear-"

// OrderClear orders the plugin that uses the directory to forget the faults of a GPU.
func (d Dir) OrderClear(gpu string) error {
	if gpu == "" || filepath.Base(gpu) != gpu {
		return fmt.Errorf("device id %q is not a UUID", gpu)
	}
	return d.Replace(clearPrefix+gpu, nil)
}

// TakeCleared returns the GPUs whose faults the operator cleared, sorted, and removes the orders.
func (d Dir) TakeCleared() (ids []string) {
	if d == "" || d.Check() != nil {
		return nil
	}
	entries, _ := os.ReadDir(string(d)) // without the directory, there are no orders
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), clearPrefix); ok && os.Remove(d.path(e.Name())) == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
