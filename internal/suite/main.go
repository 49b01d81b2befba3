// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command suite runs parts of the tests as `go test` does, notes their times and skipped tests, and
// prints these notes:
//
//	suite packages race ./...      list packages whose tests run under the race detector
//	suite packages norace ./...    list other packages, and those of which race runs a sample
//	suite run race -race ./...     run go test -race ./..., and note it as "race"
//	suite run e2e -again ./e2e     the same; up to three failed tests run once more, each alone
//	suite time lint -- make lint   run any command, and note it as "lint"
//	suite beside 20 -- make e2e    run a command beside 20 threads that use all CPU time they get
//	suite apart 20 -- nice make    the same, with these threads in a session of their own
//	suite forget                   delete the notes
//	suite summary CONTRIBUTING.md  print what was skipped, and each part's times
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// notes is the folder for the notes, relative to the root of the repository.
const notes = "build/test"

func main() {
	code, err := command(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func command(args []string) (int, error) {
	switch {
	case len(args) == 1 && args[0] == "forget":
		return 0, os.RemoveAll(notes)
	case len(args) == 2 && args[0] == "summary":
		return 0, summary(os.Stdout, args[1])
	case len(args) > 2 && args[0] == "packages":
		return packages(os.Stdout, args[1], args[2:])
	case len(args) > 2 && args[0] == "run":
		return runTests(args[1], args[2:])
	case len(args) > 3 && args[0] == "time" && args[2] == "--":
		return timed(args[1], args[3:])
	case len(args) > 3 && (args[0] == "beside" || args[0] == "apart") && args[2] == "--":
		return beside(args[1], args[0] == "apart", args[3:])
	case len(args) == 2 && args[0] == "burn":
		return burn(args[1])
	case len(args) > 2 && args[0] == "exec":
		return measured(args[1], args[2:])
	}
	return 2, errors.New("packages PART PATTERN…, run NAME ARGS…, time NAME -- COMMAND…, beside N -- COMMAND…, apart N -- COMMAND…, forget, or summary FILE")
}

// exitCode returns the exit code of a command that has ended.
func exitCode(err error) (int, error) {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return max(1, ended.ExitCode()), nil
	}
	return 0, err
}
