// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package mps

import (
	"errors"
	"fmt"
)

var (
	errNotRunning = errors.New("the MPS control daemon of config key \"sharing.pipe_directory\" does not run: start it with nvidia-cuda-mps-control -d")
	errStarts     = fmt.Errorf("the MPS control daemon has ended %d times within %s: see its log directory; the plugin tries again later", mostStarts, startsWithin)
	errPause      = errors.New("the MPS control daemon has ended; the plugin starts it again")
	errOrphans    = errors.New("an MPS server has died: its clients can no longer compute")
)

// errMeanwhile means that a server started or ended during a question about the servers.
var errMeanwhile = errors.New("an MPS server started or ended during the query")
