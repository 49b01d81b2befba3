// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"testing"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// A GPU that was lost before the start stays listed, scan after scan. On another host, no
// GPU of the old host stays listed.
func TestRosterScanAfterScan(t *testing.T) {
	t.Parallel()
	device := func(id, slot string) gpu.Device { return gpu.Device{ID: id, Place: gpu.Place{BusID: slot}} }
	here, lost := device("GPU-0", "0000:1a:00.0"), device("GPU-1", "0000:1b:00.0")
	for _, c := range []struct {
		name     string
		listed   []gpu.Device
		want     int
		replaced string
	}{
		{"one is lost", []gpu.Device{here}, 2, "[]"},
		{"both are there", []gpu.Device{here, lost}, 2, "[]"},
		{"divided", []gpu.Device{here, {ID: "MIG-1", Parent: "GPU-1"}}, 2, "[]"},
		{"another card in the slot", []gpu.Device{here, device("GPU-7", "0000:1b:00.0")}, 2, "[GPU-1]"},
		{"another host", []gpu.Device{device("GPU-7", "0000:4a:00.0")}, 1, "[GPU-0 GPU-1]"},
	} {
		r := roster{stored: []gpu.Device{here, lost}, forgotten: map[string]bool{}}
		all := ""
		for scan := range 3 {
			inv, replaced := r.complete(gpu.Inventory{Devices: c.listed})
			if len(replaced) > 0 {
				all += fmt.Sprint(replaced)
			}
			if len(inv.Devices) != c.want {
				t.Errorf("%s, scan %d: %d GPUs, want %d", c.name, scan+1, len(inv.Devices), c.want)
			}
		}
		if all == "" {
			all = "[]"
		}
		if all != c.replaced {
			t.Errorf("%s: %s count as replaced, want %s", c.name, all, c.replaced)
		}
	}
}

// Links that all GPUs lose together, as when the fabric manager ends, count as down, even if the
// plugin starts after that. So do links of a GPU without another GPU to compare it with.
func TestLinksThatGPUsLose(t *testing.T) {
	t.Parallel()
	for _, gpus := range []int{1, 4} {
		r := &roster{forgotten: map[string]bool{}}
		for _, step := range []struct {
			links int
			down  bool
			then  string
		}{{12, false, ""}, {18, false, "restart"}, {0, true, "restart"}, {17, true, ""}, {-1, false, ""}, {18, false, ""}, {6, true, "clear"}, {6, false, ""}, {5, true, ""}} {
			var scan gpu.Inventory
			for i := range gpus {
				scan.Devices = append(scan.Devices, gpu.Device{ID: fmt.Sprintf("GPU-%d", i), Place: gpu.Place{BusID: fmt.Sprint(i)}, NVLink: gpu.NVLink{Active: step.links}})
			}
			inv, _ := r.complete(scan)
			for _, d := range inv.Devices {
				if d.Signals.NVLinkDown != step.down {
					t.Errorf("%d GPUs, %d links: %s down %v, want %v", gpus, step.links, d.ID, d.Signals.NVLinkDown, step.down)
				}
				if step.then == "clear" {
					r.forget(d.ID)
				}
			}
			if step.then == "restart" {
				r = &roster{stored: inv.Devices, forgotten: map[string]bool{}}
			}
		}
	}
}
