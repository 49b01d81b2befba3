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

// TestMain puts stand-ins for the programs in the images of jobspecs/ on PATH.
func TestMain(m *testing.M) {
	testscript.Main(guarded{m}, programs.Commands(failOnce))
}

// guarded are tests whose processes end with them.
type guarded struct{ *testing.M }

// Run makes all processes that tests start collect garbage rarely. That saves three quarters of the
// time to start a Nomad process, and four fifths of a server's later time.
func (g guarded) Run() int {
	os.Setenv("GOGC", "400")
	return guard.Main(g.M)
}

// failOnce fails the first run of each job. TMPDIR of the tasks is the cluster's
// folder.
func failOnce() error {
	if os.Mkdir(filepath.Join(os.TempDir(), "failed-"+os.Getenv("NOMAD_JOB_ID")), 0o755) == nil {
		return errors.New("rank 1 fails once")
	}
	return nil
}
