// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMain is several programs. In a container it is one of the image's programs, and
// for the engine it is the nvidia runtime. Started by go test, it starts itself again in
// its own namespaces, where the tests run.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if run, ok := imagePrograms()[name]; ok {
		run()
		os.Exit(0)
	}
	switch {
	case name == runtimeName:
		exit(nvidiaRuntime())
	case os.Getenv(stageEnv) == stageInit:
		exit(initProcess())
	case os.Getenv(stageEnv) == stageTests, missing() != "":
		os.Exit(m.Run())
	default:
		exit(enterNamespaces())
	}
}

func exit(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
