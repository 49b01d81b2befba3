// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// TestHealth plays the stories of testdata/health: scans and Xids in, verdicts out. A scan
// lists every device with its signals.
func TestHealth(t *testing.T) {
	stories := 0
	datadriven.Walk(t, "testdata/health", func(t *testing.T, path string) {
		stories++
		s := story{cfg: DefaultConfig().Health, health: newHealth(), now: time.Unix(0, 0)}
		datadriven.RunTest(t, path, s.run)
	})
	if stories == 0 {
		t.Fatal("no stories in testdata/health")
	}
}

type story struct {
	cfg    HealthConfig
	health *health
	now    time.Time
	inv    gpu.Inventory
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "config":
		d.MaybeScanArgs(t, "ignore", &s.cfg.Ignore)
		d.MaybeScanArgs(t, "unhealthy", &s.cfg.Unhealthy)
		return ""
	case "scan":
		times, after := 1, 60
		d.MaybeScanArgs(t, "times", &times)
		d.MaybeScanArgs(t, "after_s", &after)
		d.MaybeScanArgs(t, "boot", &s.inv.Boot)
		d.MaybeScanArgs(t, "driver_load", &s.inv.DriverLoad)
		s.inv.Devices = parseScan(t, d.Input)
		for range times {
			s.now = s.now.Add(time.Duration(after) * time.Second)
			s.health.observe(s.now, s.inv, time.Minute)
			s.health.verdicts(s.inv, s.cfg)
		}
	case "no-driver":
		s.health.observe(s.now, gpu.Inventory{}, time.Minute)
	case "xid":
		var id string
		var n, after int
		d.ScanArgs(t, "gpu", &id)
		d.ScanArgs(t, "n", &n)
		d.MaybeScanArgs(t, "after_s", &after)
		s.now = s.now.Add(time.Duration(after) * time.Second)
		s.health.event(s.now, id, n, s.cfg)
	case "restart": // the plugin restarts, and has stored what must survive
		h := newHealth()
		h.restore(s.health.kept())
		s.health = h
		return ""
	case "clear":
		var id string
		d.ScanArgs(t, "gpu", &id)
		s.health.clear(id)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	return s.verdicts()
}

func (s *story) verdicts() string {
	var b strings.Builder
	verdicts := s.health.verdicts(s.inv, s.cfg)
	for _, d := range s.inv.Devices {
		v := verdicts[d.ID]
		state := "healthy"
		if !v.healthy {
			state = "unhealthy " + v.reason
		}
		if v.unsettled {
			state += " (unsettled)"
		}
		if len(v.degraded) > 0 {
			state += " degraded " + strings.Join(v.degraded, ",")
		}
		fmt.Fprintf(&b, "%s %s\n", d.ID, state)
	}
	return b.String()
}

// parseScan reads lines "ID SIGNAL…". A signal may be parent=ID, for a MIG instance, or clique=ID.
func parseScan(t *testing.T, text string) []gpu.Device {
	t.Helper()
	var out []gpu.Device
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		fields := strings.Fields(line)
		d := gpu.Device{ID: fields[0]}
		for _, f := range fields[1:] {
			switch name, value, _ := strings.Cut(f, "="); name {
			case "parent":
				d.Parent = value
			case "clique":
				d.NVLink.Clique = value
			default:
				signal(t, &d.Signals, f)
			}
		}
		out = append(out, d)
	}
	return out
}

func signal(t *testing.T, s *gpu.Signals, name string) {
	t.Helper()
	flags := map[string]*bool{
		"lost": &s.Lost, "reset": &s.ResetRequired, "unanswered": &s.Unanswered, "remap-failed": &s.RemapFailed,
		"sram": &s.SRAMFault, "link-down": &s.NVLinkDown, "link-errors": &s.NVLinkErrors,
		"cuda-refused": &s.CUDARefused, "retirement": &s.RetirementPending, "pcie": &s.PCIeDegraded, "hot": &s.ThermalSlowdown, "brake": &s.PowerBrake, "wrong": &s.Wrong,
	}
	if f := flags[name]; f != nil {
		*f = true
		return
	}
	if question, ok := strings.CutPrefix(name, "nvml="); ok {
		function, code, _ := strings.Cut(question, "=")
		n, err := strconv.Atoi(code)
		if err != nil {
			t.Fatal(err)
		}
		s.Failed = append(s.Failed, gpu.Failure{Function: "nvmlDeviceGet" + function, Code: n})
		gpu.SortFailures(s.Failed)
		return
	}
	if limit, ok := strings.CutPrefix(name, "fabric-limit="); ok {
		s.FabricLimits = append(s.FabricLimits, limit)
		return
	}
	var n int
	if _, err := fmt.Sscanf(name, "recovery=%d", &n); err == nil {
		s.Recovery = &n
		return
	}
	if _, err := fmt.Sscanf(name, "pages=%d", &n); err == nil {
		s.RetiredPages = new(int64(n))
		return
	}
	t.Fatalf("unknown signal %q", name)
}

// Xids that only an application causes never make a GPU unhealthy, in any order. The
// numbers are those for which NVIDIA's catalog names no immediate action on the GPU.
func TestApplicationXidsNeverMakeAGPUUnhealthy(t *testing.T) {
	h, cfg := newHealth(), DefaultConfig().Health
	inv := gpu.Inventory{Devices: []gpu.Device{{ID: "g"}}}
	for _, xid := range []int{8, 11, 13, 25, 31, 32, 37, 38, 39, 40, 41, 43, 44, 45, 60, 63, 66, 67, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86,
		88, 89, 92, 93, 94, 96, 100, 107, 121, 126, 135, 137, 139, 141, 142, 152, 153, 154, 160, 161, 78, 157, 159, 162, 170, 999} {
		h.event(time.Unix(int64(xid), 0), "g", xid, cfg)
		h.observe(time.Unix(int64(xid), 0), inv, time.Minute)
		if v := h.verdicts(inv, cfg)["g"]; !v.healthy {
			t.Errorf("Xid %d makes the GPU unhealthy: %s", xid, v.reason)
		}
	}
}

func TestFatalXidsMakeAGPUUnhealthy(t *testing.T) {
	for _, xid := range []int{46, 48, 54, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 156, 158, 167, 168, 169} {
		h, cfg := newHealth(), DefaultConfig().Health
		inv := gpu.Inventory{Devices: []gpu.Device{{ID: "g"}}}
		h.event(time.Unix(0, 0), "g", xid, cfg)
		if got, want := h.verdicts(inv, cfg)["g"].reason, fmt.Sprintf("xid:%d", xid); got != want {
			t.Errorf("Xid %d: reason %q, want %q", xid, got, want)
		}
	}
}

// An NVLink Xid counts as a fault of the GPU only while a link is down.
func TestNVLinkXidsCountWhileALinkIsDown(t *testing.T) {
	for _, xid := range []int{74, 144, 145, 146, 147, 148, 149, 150, 155} {
		for _, down := range []bool{false, true} {
			h, cfg := newHealth(), DefaultConfig().Health
			inv := gpu.Inventory{Devices: []gpu.Device{{ID: "g", Signals: gpu.Signals{NVLinkDown: down}}}}
			h.event(time.Unix(0, 0), "g", xid, cfg)
			if v := h.verdicts(inv, cfg)["g"]; v.healthy == down {
				t.Errorf("Xid %d, a link is down: %v, healthy: %v", xid, down, v.healthy)
			}
		}
	}
}

// A fatal Xid that keeps coming is stored only once, so the stored state does not grow.
func TestAFatalXidIsRememberedOnce(t *testing.T) {
	h, cfg := newHealth(), DefaultConfig().Health
	for i, xid := range []int{119, 79, 119, 119, 79} {
		h.event(time.Unix(int64(i), 0), "g", xid, cfg)
	}
	if got := h.records["g"].latches; len(got) != 2 || got[0].Xid != 79 || got[1].Xid != 119 {
		t.Errorf("remembered: %+v", got)
	}
}
