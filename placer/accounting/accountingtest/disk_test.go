// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accountingtest

import (
	"os"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/guard"
)

func TestMain(m *testing.M) { os.Exit(guard.Main(m)) }

// If another program uses a disk when the disk's test ends, the test does not fail, and the disk's
// folder is removed.
func TestSmallDiskInUse(t *testing.T) {
	var looks *os.File
	t.Run("test", func(t *testing.T) {
		var err error
		if looks, err = os.Open(SmallDisk(t, 1<<20).Dir); err != nil {
			t.Fatal(err)
		}
	})
	if looks == nil {
		t.Skip("mounting a small disk needs root")
	}
	defer looks.Close()
	if _, err := os.Stat(looks.Name()); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", looks.Name(), err)
	}
}
