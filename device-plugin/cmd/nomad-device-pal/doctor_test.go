// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// A driver that hangs is what doctor is asked about: it must not hang, too.
func TestDoctorOfAHungDriver(t *testing.T) {
	lib, err := nvmltest.Build(t.TempDir())
	if errors.Is(err, nvmltest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := (nvmltest.State{"sys": {"hang": "1"}}).Write(lib + ".state"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := (nvmltest.State{}).Write(lib + ".state"); err != nil { // let it go
			t.Error(err)
		}
	})
	d := diagnosis{source: source{library: lib, stateDir: t.TempDir()}, nomadConfig: "testdata", cudaLibrary: "libnone.so.1", patience: 50 * time.Millisecond}
	d.run()
	var said []string
	for _, f := range d.findings {
		said = append(said, f.Status+" "+f.Check+" "+f.Message)
	}
	for _, want := range []string{"fail gpus listing the GPUs: the driver does not answer within 50ms", "fail cuda "} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("findings lack %q:\n%s", want, strings.Join(said, "\n"))
		}
	}
}

// Of a directory, the files are read that Nomad reads.
func TestNomadConfigDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.hcl": "plugin_dir = \"/plugins\"\n", "b.json": `{"data_dir": "/data"}`, "notes.txt": "plugin_dir = \"/elsewhere\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := readNomadConfig(dir); err != nil || c.pluginDir != "/plugins" || c.dataDir != "/data" || len(c.unreadable) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
}
