// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
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

// A GPU that is lost in the middle of a scan is stored with its known values: after a
// restart, another card in its slot replaces it.
func TestGPULostInAScanAndReplaced(t *testing.T) {
	ours(t)
	config := fast + fmt.Sprintf("\nstate_dir = %q", t.TempDir())
	w, s := follow(t, 2, config)
	w.set("gpu1", "ret.nvmlDeviceGetDisplayMode", "15")
	s.until("a lost GPU", reason(nvmltest.UUID(1), "gpu-lost"))
	w.Stop()
	w.state.Set("gpu1", "ret.nvmlDeviceGetDisplayMode", "")
	w.set("gpu1", "uuid", "GPU-new")
	s = w.restart(config)
	if got := s.next(); devices(got) != 2 || !healthy("GPU-new")(got) {
		t.Errorf("got %s, want the other GPU and the new one", describe(got))
	}
}

// A GPU that was missing at the start becomes healthy when it comes back.
func TestGPULostBeforeTheStartComesBack(t *testing.T) {
	ours(t)
	config := fast + fmt.Sprintf("\nstate_dir = %q", t.TempDir())
	w, _ := follow(t, 2, config)
	w.state.Set("gpu1", "uuid", "")
	w.write()
	s := w.restart(config)
	s.until("a lost GPU", reason(nvmltest.UUID(1), "gpu-lost"))
	w.set("gpu1", "uuid", nvmltest.UUID(1))
	s.until("the GPU back", healthy(nvmltest.UUID(1)))
}

// Another division into MIG instances is not a loss, and neither is another card in the slot.
func TestWhatIsNoLoss(t *testing.T) {
	ours(t)
	for name, change := range map[string]func(nvmltest.State){
		"undivided":       func(s nvmltest.State) { s.Set("gpu1", "mig", "0") },
		"no instances":    func(s nvmltest.State) { delete(s, "mig1.0"); delete(s, "mig1.1") },
		"another card":    func(s nvmltest.State) { s.Set("gpu0", "uuid", "GPU-new") },
		"fewer instances": func(s nvmltest.State) { delete(s, "mig1.1") },
		"another host": func(s nvmltest.State) {
			for i := range 2 {
				s.Set(fmt.Sprintf("gpu%d", i), "uuid", fmt.Sprintf("GPU-of-another-host-%d", i))
				s.Set(fmt.Sprintf("gpu%d", i), "bus", fmt.Sprint(0x50+i))
			}
			s.Set("gpu1", "mig", "0")
		},
		"divided entirely": func(s nvmltest.State) { s.Split(0, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			config := fast + fmt.Sprintf("\nstate_dir = %q", t.TempDir())
			state := nvmltest.H200(2)
			state.Split(1, 2)
			w := start(t, state, config)
			w.fingerprint().until("a GPU and two instances", listed(3))
			w.Stop() // a running plugin would see a loss
			change(w.state)
			w.write()
			got := w.restart(config).until("the GPUs", func(gs []*device.DeviceGroup) bool { return devices(gs) > 0 })
			for _, g := range got {
				for _, d := range g.Devices {
					empty := name == "no instances" && d.ID == nvmltest.UUID(1) && d.HealthDesc == "mig-without-instances"
					if !d.Healthy && !empty {
						t.Errorf("%s is %s", d.ID, d.HealthDesc)
					}
				}
			}
		})
	}
}

// A library that is not NVML causes an error in the log, but does not end the process.
func TestLibraryThatIsNotNVML(t *testing.T) {
	ours(t)
	w := start(t, nvmltest.H200(1), fast+"\nnvml_library = \"libc.so.6\"")
	if got := w.fingerprint().next(); devices(got) != 0 {
		t.Errorf("got %s, want no devices", describe(got))
	}
	eventually(t, "the log to say why", func() bool {
		return strings.Contains(w.log.String(), "is not NVML, because it has no function nvmlInit")
	})
	if w.Exited() {
		t.Error("the plugin died")
	}
}

// A plugin that restarts while one GPU hangs does not report the others as unhealthy.
func TestRestartBesideAHungGPU(t *testing.T) {
	ours(t)
	dir := t.TempDir()
	config := fast + "\nstate_dir = \"" + dir + "\""
	w := start(t, nvmltest.H200(4), config)
	w.fingerprint().until("4 GPUs", listed(4))
	w.Stop()
	w.set("gpu1", "hang", "1")
	again := *w
	again.launch()
	if err := again.Configure(config); err != nil {
		t.Fatal(err)
	}
	begin, starved := time.Now(), patience.Starved()
	s := again.fingerprint()
	go func() {
		_, err := again.Device.Reserve([]string{nvmltest.UUID(0)})
		t.Logf("Reserve of a good GPU after %s: %v", time.Since(begin).Round(time.Millisecond), err)
	}()
	for time.Since(begin) < 17*time.Second {
		got := s.next()
		t.Logf("%s: %s", time.Since(begin).Round(time.Millisecond), describe(got))
		if d := instance(got, nvmltest.UUID(0)); d != nil && !d.Healthy {
			wrong := fmt.Sprintf("after %s GPU 0, which answers, is %s", time.Since(begin).Round(time.Millisecond), d.HealthDesc)
			if share := starved(); share > 0.5 { // the plugin itself got no CPU until its time limits had passed
				t.Skipf("processes waited for a processor for %.0f %% of the time: %s", 100*share, wrong)
			}
			t.Error(wrong)
		}
		if d := instance(got, nvmltest.UUID(0)); d != nil && d.Healthy {
			break
		}
	}
}

// An upgrade replaces the driver's library while the plugin runs, so no new task could use a GPU.
func TestDriverLibraryIsReplaced(t *testing.T) {
	ours(t)
	w := driverless(t, nvmltest.H200(2))
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	install := func() {
		data, err := os.ReadFile(filepath.Join(library, "libnvidia-ml.so.1"))
		if err == nil {
			err = errors.Join(os.WriteFile(path+".new", data, 0o755), os.Rename(path+".new", path))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install()
	w.env[1] = "LD_LIBRARY_PATH=" + filepath.Dir(path)
	w.launch()
	if err := w.Configure(fast); err != nil {
		t.Fatal(err)
	}
	s := w.fingerprint()
	s.until("two healthy GPUs", func(gs []*device.DeviceGroup) bool {
		return healthy(nvmltest.UUID(0))(gs) && healthy(nvmltest.UUID(1))(gs)
	})
	install()
	s.until("two unhealthy GPUs", func(gs []*device.DeviceGroup) bool {
		a, b := instance(gs, nvmltest.UUID(0)), instance(gs, nvmltest.UUID(1))
		return a != nil && b != nil && a.HealthDesc == "driver-library-replaced" && b.HealthDesc == "driver-library-replaced"
	})
	if _, err := w.Device.Reserve([]string{nvmltest.UUID(0)}); err == nil {
		t.Error("a task could reserve a GPU that it cannot use")
	}
	if log := w.log.String(); !strings.Contains(log, "the driver's package was upgraded while the driver is loaded") {
		t.Errorf("the log has no remedy:\n%s", log)
	}
}
