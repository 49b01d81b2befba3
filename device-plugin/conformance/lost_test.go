// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// restart ends the plugin and starts it again with the same driver.
func (w *world) restart(config string) *stream {
	w.t.Helper()
	w.Stop()
	w.launch()
	if err := w.Configure(config); err != nil {
		w.t.Fatal(err)
	}
	return w.fingerprint()
}

// A GPU that fell off the bus before the plugin started does not vanish: it is published as
// lost after every start, until the operator clears it.
func TestGPULostBeforeTheStart(t *testing.T) {
	ours(t)
	dir := t.TempDir()
	config := fast + fmt.Sprintf("\nstate_dir = %q", dir)
	w, _ := follow(t, 8, config)
	w.state.Set("gpu7", "uuid", "")
	w.write()
	lost := nvmltest.UUID(7)
	var s *stream
	for range 2 {
		s = w.restart(config)
		got := s.until("a lost GPU", reason(lost, "gpu-lost"))
		if attribute(got[0], "count") != "int 8 " || attribute(got[0], "healthy_count") != "int 7 " {
			t.Errorf("count %s, healthy_count %s; want 8 and 7", attribute(got[0], "count"), attribute(got[0], "healthy_count"))
		}
	}
	doctor := exec.Command(binary, "doctor", "-state-dir", dir)
	doctor.Env = append(os.Environ(), w.env...)
	out, err := doctor.CombinedOutput()
	if err == nil || !strings.Contains(string(out), lost+" was present when the plugin last ran, but is missing now") {
		t.Errorf("doctor does not miss %s: %v\n%s", lost, err, out)
	}
	run(t, binary, "clear", "-state-dir", dir, lost)
	s.until("seven GPUs", listed(7))
	if got := w.restart(config).until("the GPUs", func(gs []*device.DeviceGroup) bool { return devices(gs) > 0 }); devices(got) != 7 {
		t.Errorf("a cleared GPU is back: %s", describe(got))
	}
}
