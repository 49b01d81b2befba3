// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package mps

import (
	"errors"
	"fmt"
)

var (
	errNotRunning = errors.New("the MPS control daemon of config key \"sharing.pipe_directory\" does not run: start it with nvidia-cuda-mps-control -d")
	errStarts     = fmt.Errorf("the MPS control daemon has ended %d times within %s: see its log directory; the next try is later", mostStarts, startsWithin)
	errPause      = errors.New("the MPS control daemon has ended; the plugin starts it again")
)

// errMeanwhile means that a server came or went while the daemon was queried about each.
var errMeanwhile = errors.New("an MPS server started or ended during the query")

// serverError describes what is wrong with a server, which may still run.
type serverError struct {
	pid  int // 0 if unknown
	what string
}

func (e *serverError) Error() string {
	if e.pid == 0 {
		return "an MPS server " + e.what
	}
	return fmt.Sprintf("MPS server %d %s", e.pid, e.what)
}
