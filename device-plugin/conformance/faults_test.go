// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// reason waits until a GPU is unhealthy for this reason.
func reason(id, want string) func([]*device.DeviceGroup) bool {
	return func(gs []*device.DeviceGroup) bool {
		d := instance(gs, id)
		return d != nil && !d.Healthy && d.HealthDesc == want
	}
}

func TestFatalXidIsReportedAtOnce(t *testing.T) {
	w, s := follow(t, 2, `fingerprint_period = "1h"`)
	w.state.Set("gpu1", "field.230", "1")
	w.set("sys", "event.1", "1 8 79 -1")
	took := patience.Stopwatch()
	got := s.until("a GPU fallen off the bus", unhealthy(nvmltest.UUID(1)))
	if took := took(); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	if d := instance(got, nvmltest.UUID(1)); !strings.Contains(d.HealthDesc, "79") {
		t.Errorf("reason %q does not name the Xid", d.HealthDesc)
	}
}

// A latched fault survives a restart, until the operator clears it.
func TestLatchedXidSurvivesARestartUntilCleared(t *testing.T) {
	ours(t)
	state := nvmltest.H200(1)
	state.Set("gpu0", "field.230", "") // a driver without recovery actions
	dir := t.TempDir()
	config := fast + "\nstate_dir = \"" + dir + "\""
	w := start(t, state, config)
	s := w.fingerprint()
	s.until("a GPU", listed(1))
	w.set("sys", "event.1", "0 8 95 -1")
	s.until("the Xid", reason(nvmltest.UUID(0), "xid:95"))
	w.Stop()
	w.state.Set("sys", "event.1", "")
	w.write()
	w.launch()
	if err := w.Configure(config); err != nil {
		t.Fatal(err)
	}
	s = w.fingerprint()
	s.until("the Xid after a restart", reason(nvmltest.UUID(0), "xid:95"))
	run(t, binary, "clear", "-state-dir", dir, nvmltest.UUID(0))
	s.until("the GPU cleared", healthy(nvmltest.UUID(0)))
}

func TestDriverUnloadedAndLoadedAgain(t *testing.T) {
	w, s := follow(t, 2, fast)
	w.set("sys", "init", "9")
	s.until("no GPUs", listed(0))
	w.set("sys", "init", "")
	s.until("two GPUs", listed(2))
}

func TestHungGPULeavesTheOthersAlone(t *testing.T) {
	ours(t)
	w, s := follow(t, 4, fast)
	w.set("gpu1", "hang", "1")
	got := s.until("a GPU that does not answer", reason(nvmltest.UUID(1), "driver-not-answering"))
	if !instance(got, nvmltest.UUID(0)).Healthy || devices(got) != 4 {
		t.Errorf("got %s", describe(got))
	}
	took := patience.Stopwatch()
	if _, err := w.Device.Reserve([]string{nvmltest.UUID(0)}); err != nil || took() > time.Second {
		t.Errorf("Reserve of a good GPU: %v after %s", err, took())
	}
	w.statistics(func(all map[string]*device.DeviceStats) bool { return all[nvmltest.UUID(0)] != nil })
	w.set("gpu2", "remap", "2") // the plugin still reads the GPU in each scan
	got = s.until("another fault", reason(nvmltest.UUID(2), "row-remap-failure"))
	if !instance(got, nvmltest.UUID(0)).Healthy || !instance(got, nvmltest.UUID(3)).Healthy {
		t.Errorf("got %s", describe(got))
	}
	w.set("gpu1", "hang", "")
	s.until("the GPU back", healthy(nvmltest.UUID(1)))
}

// If a driver answers nothing, the first message still comes in time. Later the process ends, but
// the stream does not.
func TestHungDriverEndsTheProcess(t *testing.T) {
	ours(t)
	state := nvmltest.H200(1)
	state.Set("sys", "hang", "1")
	w := start(t, state, fast+"\nwatchdog = \"2s\"")
	took := patience.Stopwatch()
	s := w.fingerprint()
	if got := s.next(); devices(got) != 0 || took() > time.Second {
		t.Errorf("got %s after %s, want nothing within a second", describe(got), took())
	}
	if _, err := w.Device.Reserve([]string{"GPU-x"}); err == nil {
		t.Error("reserved an unknown GPU")
	}
	eventually(t, "the watchdog to end the process", w.Exited)
}

func TestMIGLayoutChangesAreFollowed(t *testing.T) {
	w, s := follow(t, 2, fast)
	w.state.Split(1, 7)
	w.write()
	s.until("seven instances and a GPU", listed(8))
	w.set("mig1.6", "uuid", "")
	s.until("six instances and a GPU", listed(7))
	w.set("gpu1", "mig", "0")
	s.until("two GPUs", listed(2))
}

func TestSevenMIGInstancesOnEightGPUs(t *testing.T) {
	state := nvmltest.H200(8)
	for i := range 8 {
		state.Split(i, 7)
	}
	w := start(t, state, fast)
	got := w.fingerprint().until("56 instances", listed(56))
	if got, want := got[0].Name, "NVIDIA H200 MIG 1g.18gb"; got != want {
		t.Errorf("group %q, want %q", got, want)
	}
	w.statistics(func(all map[string]*device.DeviceStats) bool { return len(all) == 56 })
}

func TestNewStatistics(t *testing.T) {
	ours(t)
	w, _ := follow(t, 1, fast)
	got := w.statistics(func(all map[string]*device.DeviceStats) bool {
		s := all[nvmltest.UUID(0)]
		return s != nil && s.Stats.Attributes["DRAM active"] != nil
	})[nvmltest.UUID(0)].Stats.Attributes
	for name, want := range map[string]string{
		"SM clock": "int 345 MHz", "Throttle reasons": "string idle ", "Power cap time": "float 0 %",
		"DRAM active": "float 0.5 %", "Health": "string healthy ",
	} {
		if got := statValue(got[name]); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	w.set("gpu0", "gpm", "0")
	w2 := start2(t, w)
	got = w2.statistics(func(all map[string]*device.DeviceStats) bool { return all[nvmltest.UUID(0)] != nil })[nvmltest.UUID(0)].Stats.Attributes
	if v := got["DRAM active"]; v != nil {
		t.Errorf("DRAM active of a GPU without GPM: %s, want it absent", statValue(v))
	}
}

func TestTopologyIsPublished(t *testing.T) {
	ours(t)
	state := nvmltest.H200(4)
	for i, toward := range []string{"27", "26", "29", "28"} { // two bridged pairs: 1a-1b, 1c-1d
		state.Set(fmt.Sprintf("gpu%d", i), "nvlink_to", toward)
	}
	w := start(t, state, fast)
	g := w.fingerprint().until("four GPUs", listed(4))[0]
	for name, want := range map[string]string{
		"unique.nvlink_island_0": "string " + nvmltest.UUID(0) + "," + nvmltest.UUID(1), "nvlink_island_1_count": "int 2 ",
	} {
		if got := attribute(g, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// degraded waits until a GPU works, but is degraded for these reasons.
func degraded(id, reasons string) func([]*device.DeviceGroup) bool {
	return func(gs []*device.DeviceGroup) bool {
		d := instance(gs, id)
		return d != nil && d.Healthy && d.HealthDesc == "degraded:"+reasons && strings.Contains(attribute(gs[0], "unique.degraded"), id)
	}
}

// A GPU that hangs before its events are registered neither blocks other GPUs' events nor
// keeps the stream open.
func TestEventsOfOthersWhileAGPUHangs(t *testing.T) {
	ours(t)
	state := nvmltest.H200(3)
	w := start(t, state, fast)
	s := w.fingerprint()
	s.until("three GPUs", listed(3))
	w.set("gpu1", "hang", "1") // the plugin registers events about a second after the first scan
	s.until("a GPU that does not answer", unhealthy(nvmltest.UUID(1)))
	w.state.Set("gpu2", "field.230", "1")
	w.set("sys", "event.1", "2 8 79 -1")
	s.until("the Xid of another", reason(nvmltest.UUID(2), "xid:79"))
	s.cancel()
	deadline := patience.Over(t)
	for {
		select {
		case _, open := <-s.c:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the cancelled stream does not end")
		}
	}
}
