// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"hardware": main,
	})
}

// plugin builds the plugin, and returns its path.
func plugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nomad-device-pal")
	out, err := exec.Command("go", "build", "-o", path, "github.com/nomad-pal/nomad-pal/device-plugin/cmd/nomad-device-pal").CombinedOutput()
	if err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	return path
}

// TestScripts plays the stories of testdata/script, with the real plugin. In the state directory
// "released", the operator has released the driver.
func TestScripts(t *testing.T) {
	binary := plugin(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PLUGIN", binary)
			return deviceplugin.Release(filepath.Join(env.WorkDir, "released"), time.Now().Add(time.Hour))
		},
	})
}
