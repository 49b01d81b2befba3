// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nomad-pal/nomad-pal/e2e/programs"
	"github.com/nomad-pal/nomad-pal/internal/guard"
)

// TestMain puts programs on PATH that stand for those of the images in jobspecs/.
func TestMain(m *testing.M) {
	testscript.Main(guarded{m}, programs.Commands(failOnce))
}

// guarded are tests whose processes end with them.
type guarded struct{ *testing.M }

// Run has all that tests start collect garbage rarely: that is a quarter of what it takes to start a
// process of Nomad, and a fifth of what a server takes later.
func (g guarded) Run() int {
	os.Setenv("GOGC", "400")
	return guard.Main(g.M)
}

// failOnce fails the first run of each job. Tasks have the cluster's folder as their
// TMPDIR.
func failOnce() error {
	if os.Mkdir(filepath.Join(os.TempDir(), "failed-"+os.Getenv("NOMAD_JOB_ID")), 0o755) == nil {
		return errors.New("rank 1 fails once")
	}
	return nil
}
