// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package statedir stores the device plugin's state across restarts, as JSON files in one
// directory. An operator's command writes orders for the running plugin into this directory: one
// file per order, named after the GPU.
//
// The plugin runs as root. So only root can read the directory (0700) and the files (0600), and the
// plugin follows no link in the directory. The plugin refuses a directory that other users can
// write to.
//
// A [Dir] of "" keeps nothing and accepts no orders.
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Dir is the plugin's state_dir.
type Dir string

const (
	dirMode  = 0o700
	fileMode = 0o600
	// maxBytes limits the size of a file; a node's state is far smaller.
	maxBytes = 64 << 20
)

// Prepare makes the directory if it does not exist. The error explains why the directory cannot be
// used.
func (d Dir) Prepare() error {
	if d == "" {
		return nil
	}
	root, err := d.make()
	if err != nil {
		return err
	}
	return root.Close()
}

// Check returns nil if the plugin would use the directory.
func (d Dir) Check() error {
	root, err := d.open()
	if err != nil {
		return err
	}
	return root.Close()
}

// make opens the directory, and creates it first if it does not exist.
func (d Dir) make() (*os.Root, error) {
	if err := os.MkdirAll(string(d), dirMode); err != nil {
		return nil, fmt.Errorf("making state directory: %w", err)
	}
	return d.open()
}

// open opens the directory if nobody else can change its content.
func (d Dir) open() (*os.Root, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, fmt.Errorf("opening state directory: %w", err)
	}
	st, err := root.Stat(".")
	if err == nil {
		err = private(st)
	}
	if err != nil {
		return nil, fmt.Errorf("opening state directory %q: %w", string(d), errors.Join(err, root.Close()))
	}
	return root, nil
}

// private returns nil if only this user, or root, can change a directory.
func private(st fs.FileInfo) error {
	if st.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("other users can write to it (mode %04o): give the plugin a directory of its own", st.Mode().Perm())
	}
	if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d", s.Uid)
	}
	return nil
}

// Read decodes a file. If the file does not exist, found is false and into is unchanged.
func (d Dir) Read(name string, into any) (found bool, err error) {
	if d == "" {
		return false, nil
	}
	root, err := d.open()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer root.Close()
	path := filepath.Join(string(d), name)
	data, err := read(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading state %q: %w", path, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("reading state %q: %w", path, err)
	}
	return true, nil
}

// read reads a regular file; it refuses a link, pipe or device.
func read(root *os.Root, name string) ([]byte, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a regular file (%s)", before.Mode().Type())
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(before, now) {
		return nil, errors.New("it was replaced while it was being opened")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if len(data) > maxBytes {
		return nil, fmt.Errorf("it is larger than %d MiB", maxBytes>>20)
	}
	return data, err
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
	root, err := d.make()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := replace(root, name, data); err != nil {
		return fmt.Errorf("writing state %q: %w", filepath.Join(string(d), name), err)
	}
	return nil
}

// replace writes a new file and renames it. replace does not follow links.
func replace(root *os.Root, name string, data []byte) error {
	next := "." + name + ".new"
	if err := root.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // left by a crash, and cannot be removed
	}
	f, err := root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(next, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(next))
	}
	return nil
}

// clearDir is the directory of the operator's orders to forget the faults of a GPU: a file for each.
const clearDir = "clear"

// clearOrders opens clearDir, which must not be a link.
func clearOrders(root *os.Root) (*os.Root, error) {
	st, err := root.Lstat(clearDir)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%q is not a directory", clearDir)
	}
	return root.OpenRoot(clearDir)
}

// OrderClear orders the plugin that uses the directory to forget the faults of a GPU.
func (d Dir) OrderClear(gpu string) error {
	if gpu == "" || filepath.Base(gpu) != gpu {
		return fmt.Errorf("device id %q is not a UUID", gpu)
	}
	if err := d.orderClear(gpu); err != nil {
		return fmt.Errorf("giving the order to clear %q: %w", gpu, err)
	}
	return nil
}

func (d Dir) orderClear(gpu string) error {
	root, err := d.make()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(clearDir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	orders, err := clearOrders(root)
	if err != nil {
		return err
	}
	defer orders.Close()
	return replace(orders, gpu, nil)
}

// TakeCleared returns the GPUs whose faults the operator cleared, sorted, and removes the orders.
func (d Dir) TakeCleared() []string {
	if d == "" {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(string(d), clearDir)); err != nil {
		return nil // nobody ever gave such an order
	}
	root, err := d.open()
	if err != nil {
		return nil
	}
	defer root.Close()
	orders, err := clearOrders(root)
	if err != nil {
		return nil
	}
	defer orders.Close()
	entries, err := fs.ReadDir(orders.FS(), ".")
	if err != nil {
		return nil
	}
	var ids []string
	for _, e := range entries {
		if e.Name()[0] != '.' && orders.Remove(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	return ids
}
