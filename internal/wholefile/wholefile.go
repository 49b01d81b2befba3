// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package wholefile writes files so that readers see them complete or not at all.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the content of a file in one step: readers find the old content or the new, even
// after a crash. Write follows links. If path is not a regular file, such as /dev/stdout, Write
// writes to it and does not replace it.
func Write(path string, content []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, content, 0o644) // #nosec: as below
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil { // #nosec: results, for everybody to read
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
