// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/conformance"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// configOf reads the text of a config block as Nomad and SetConfig do.
func configOf(t *testing.T, text string) (Config, error) {
	t.Helper()
	data, err := conformance.EncodeConfig(ConfigSchema(), text)
	if err != nil {
		return Config{}, err
	}
	return DecodeConfig(data)
}

func TestSharingConfig(t *testing.T) {
	c, err := configOf(t, `
		sharing {
		  replicas = 4
		  gpus = [0, "GPU-b"]
		}
		sharing {
		  mode = "mps"
		  replicas = 3
		  gpus = ["Tesla T4"]
		}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []SharingConfig{
		{Mode: TimeSlicing, Replicas: 4, GPUs: []string{"0", "GPU-b"}, PipeDirectory: "/run/nvidia-mps"},
		{Mode: MPS, Replicas: 3, GPUs: []string{"Tesla T4"}, PipeDirectory: "/run/nvidia-mps"},
	}
	if diff := cmp.Diff(want, c.Sharing); diff != "" {
		t.Error(diff)
	}
	if c, err := configOf(t, "sharing {\n replicas = 2\n}"); err != nil || !slices.Equal(c.Sharing[0].GPUs, []string{"*"}) {
		t.Errorf("without gpus: %+v, %v; want all", c.Sharing, err)
	}
}

func TestSharingConfigErrors(t *testing.T) {
	block := func(keys ...string) string { return "sharing {\n " + strings.Join(keys, "\n ") + "\n}\n" }
	for name, tc := range map[string]struct{ config, want string }{
		"no replicas":       {block(`mode = "mps"`), `sharing block 1: config key "sharing.replicas": 0 is below 2`},
		"one part":          {block("replicas = 2", `gpus = ["a"]`) + block("replicas = 1"), `sharing block 2: config key "sharing.replicas": 1 is below 2`},
		"too many":          {block("replicas = 101"), `config key "sharing.replicas": 101 is above 100`},
		"too many for MPS":  {block(`mode = "mps"`, "replicas = 61"), `sharing block 1: config key "sharing.replicas": 61 is above 60, the number of clients that an MPS server accepts`},
		"half a part":       {block("replicas = 2.5"), `config key "sharing[0].replicas": 2.5 is not a whole number`},
		"mode":              {block("replicas = 2", `mode = "mig"`), `sharing block 1: config key "sharing.mode": "mig" is not one of time-slicing, mps`},
		"no GPUs":           {block("replicas = 2", "gpus = []"), `sharing block 1: config key "sharing.gpus": the list is empty`},
		"GPU in two blocks": {block("replicas = 2", `gpus = ["GPU-a"]`) + block("replicas = 3", `gpus = ["GPU-b", "GPU-a"]`), `sharing block 2: config key "sharing.gpus": "GPU-a" is already in sharing block 1`},
		"GPU twice":         {block("replicas = 2", `gpus = ["GPU-a", "GPU-a"]`), `"GPU-a" is already in sharing block 1`},
		"all and one":       {block("replicas = 2") + block("replicas = 3", "gpus = [1]"), `sharing block 2: config key "sharing.gpus": a block with "*" covers all GPUs`},
		"one and all":       {block("replicas = 2", "gpus = [1]") + block("replicas = 3"), `sharing block 2: config key "sharing.gpus": a block with "*" covers all GPUs`},
		"MPS on MIG":        {block("replicas = 2", `mode = "mps"`, `gpus = ["MIG-1"]`), `sharing block 1: config key "sharing.gpus": MPS cannot share MIG instance "MIG-1"`},
		"limits of MPS":     {block("replicas = 2", "threads = 10"), `sharing block 1: config key "sharing.threads": this key needs mode = "mps"`},
		"relative":          {block(`mode = "mps"`, "replicas = 2", `pipe_directory = "mps"`), `config key "sharing.pipe_directory": "mps" is not an absolute path`},
	} {
		if _, err := configOf(t, tc.config); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

func TestPlanSharing(t *testing.T) {
	ds := []gpu.Device{
		{ID: "GPU-a", Model: "A", Place: gpu.Place{Index: 0}}, {ID: "GPU-b", Model: "A", Place: gpu.Place{Index: 1}}, {ID: "GPU-c", Model: "C", Place: gpu.Place{Index: 2}},
		{ID: "MIG-d", Parent: "GPU-d", Model: "D MIG 1g", Place: gpu.Place{Index: 3}},
	}
	old := gpu.Device{ID: "GPU-old", Model: "P100", Place: gpu.Place{Index: 4}, Chip: gpu.Chip{ComputeMajor: 6}}
	for name, tc := range map[string]struct {
		blocks   []SharingConfig
		forms    string
		problems []string
	}{
		"all":           {[]SharingConfig{{Mode: TimeSlicing, Replicas: 2, GPUs: []string{"*"}}}, "GPU-a=2 GPU-b=2 GPU-c=2 MIG-d=2", nil},
		"all by MPS":    {[]SharingConfig{{Mode: MPS, Replicas: 2, GPUs: []string{"*"}}}, "GPU-a=2 GPU-b=2 GPU-c=2", nil},
		"by index":      {[]SharingConfig{{Mode: MPS, Replicas: 2, GPUs: []string{"1"}}}, "GPU-b=2", nil},
		"by model":      {[]SharingConfig{{Mode: MPS, Replicas: 2, GPUs: []string{"A"}}}, "GPU-a=2 GPU-b=2", nil},
		"a GPU's MIG":   {[]SharingConfig{{Mode: TimeSlicing, Replicas: 3, GPUs: []string{"GPU-d"}}}, "MIG-d=3", nil},
		"named thrice":  {[]SharingConfig{{Mode: MPS, Replicas: 2, GPUs: []string{"A", "0", "GPU-a"}}}, "GPU-a=2 GPU-b=2", nil},
		"MPS on MIG":    {[]SharingConfig{{Mode: MPS, Replicas: 2, GPUs: []string{"3"}}}, "", []string{`sharing block 1: config key "sharing.gpus": MPS cannot share MIG instance MIG-d (matched by "3"), so the instance stays whole; mode = "time-slicing" can share it`}},
		"unknown":       {[]SharingConfig{{Replicas: 2, GPUs: []string{"GPU-x"}}}, "", []string{`sharing block 1: config key "sharing.gpus": no GPU matches "GPU-x"; the GPUs of this node, by index: 0: GPU-a (A), 1: GPU-b (A), 2: GPU-c (C), 3: MIG-d (D MIG 1g)`}},
		"in two blocks": {[]SharingConfig{{Replicas: 2, GPUs: []string{"A"}}, {Replicas: 3, GPUs: []string{"1", "C"}}}, "GPU-a=2 GPU-c=3", []string{`sharing block 2: config key "sharing.gpus": GPU GPU-b (matched by "1") is in block 1 as well, so the GPU stays whole until only one block matches it`}},
		"two ways":      {[]SharingConfig{{Replicas: 2, GPUs: []string{"1"}}, {Replicas: 3, GPUs: []string{"0", "C"}}}, "GPU-a=3-2 GPU-b=2 GPU-c=3", nil},
	} {
		p := planSharing(tc.blocks, ds, true)
		var got []string
		for _, d := range ds {
			if f, ok := p.forms[d.ID]; ok {
				got = append(got, fmt.Sprint(d.ID, "=", f.Replicas, f.Suffix))
			}
		}
		if strings.Join(got, " ") != tc.forms || !slices.Equal(p.problems, tc.problems) {
			t.Errorf("%s: %v with problems %q, want %s with %q", name, got, p.problems, tc.forms, tc.problems)
		}
	}
	if p := planSharing([]SharingConfig{{Mode: MPS, Replicas: 2, GPUs: []string{"4"}}}, []gpu.Device{old}, true); len(p.forms) > 0 ||
		!strings.Contains(fmt.Sprint(p.problems), "MPS can limit tasks only from compute capability 7.0 on, but GPU-old has 6.0") {
		t.Errorf("before Volta: %v, %q", p.forms, p.problems)
	}
	if p := planSharing([]SharingConfig{{Replicas: 2, GPUs: []string{"GPU-x"}}}, ds, false); len(p.problems) > 0 {
		t.Errorf("it may be a GPU that does not answer now: %q", p.problems)
	}
}

// shared is a configuration that shares GPU-1 in four parts.
func shared(mode Sharing) Config {
	cfg := DefaultConfig()
	cfg.StateDir = ""
	cfg.Sharing = []SharingConfig{{Mode: mode, Replicas: 4, GPUs: []string{"GPU-1"}}}
	return cfg
}

// groupOf finds a device group by type and name.
func groupOf(t *testing.T, groups []*device.DeviceGroup, kind, name string) *device.DeviceGroup {
	t.Helper()
	for _, g := range groups {
		if g.Type == kind && g.Name == name {
			return g
		}
	}
	t.Fatalf("no group %s/%s among %s", kind, name, listed(groups))
	return nil
}

// listed formats groups as "type/name[id id!reason]".
func listed(groups []*device.DeviceGroup) string {
	var out []string
	for _, g := range groups {
		var ids []string
		for _, d := range g.Devices {
			id := d.ID
			if !d.Healthy {
				id += "!" + d.HealthDesc
			}
			ids = append(ids, id)
		}
		out = append(out, fmt.Sprint(g.Type, "/", g.Name, ids))
	}
	return strings.Join(out, " ")
}

func attributeText(g *device.DeviceGroup, name string) string {
	switch a := g.Attributes[name]; {
	case a == nil:
		return ""
	case a.Int != nil:
		return fmt.Sprint(*a.Int, a.Unit)
	default:
		return *a.String
	}
}

func TestSharedGPUIsPublishedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _, _ := onStage(2, shared(TimeSlicing))
		for i := range s.inv.Devices {
			d := &s.inv.Devices[i]
			d.MemoryMiB, d.Place.NUMANode, d.Measured.Key = new(int64(81559)), i, "k"
			d.Measured.Times = map[pal.AppClass]float64{pal.ClassA: 1 + float64(i)}
			d.Measured.Rates = map[pal.AppClass]float64{pal.ClassA: 600, pal.ClassC: 4000}
		}
		c, end := fingerprints(t, p)
		defer end()
		groups := next(t, c)
		if got, want := listed(groups), "gpu/M[GPU-0] gpu.shared/M-SHARED[GPU-1::0 GPU-1::1 GPU-1::2 GPU-1::3]"; got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		g := groupOf(t, groups, "gpu.shared", "M-SHARED")
		for name, want := range map[string]string{
			"sharing": "time-slicing", "replicas": "4", "memory": "20389MiB", "memory_total": "81559MiB", "count": "4", "healthy_count": "4",
			"unique.numa_1": "GPU-1::0,GPU-1::1,GPU-1::2,GPU-1::3", "unique.variability_a_le_5": "GPU-1::0,GPU-1::1,GPU-1::2,GPU-1::3",
			"variability_a_le_5_count": "4", "unique.variability_raw": "GPU-1 key=k A=2", "unique.measured_rates": "GPU-1 A=600 C=4000",
		} {
			if got := attributeText(g, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		whole := groupOf(t, groups, "gpu", "M")
		if a := attributeText(whole, "sharing"); a != "" || attributeText(whole, "memory") != "81559MiB" {
			t.Errorf("the whole GPU has sharing %q, memory %s", a, attributeText(whole, "memory"))
		}
	})
}

func TestReserveParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(TimeSlicing)
		cfg.Reserve.CUDAVisibleDevices = true
		p, _, _, _ := onStage(2, cfg)
		c, end := fingerprints(t, p)
		defer end()
		next(t, c)
		res, err := p.Reserve([]string{"GPU-1::3", "GPU-0", "GPU-1::0"})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := res.Envs["NVIDIA_VISIBLE_DEVICES"], "GPU-1,GPU-0"; got != want || res.Envs["CUDA_VISIBLE_DEVICES"] != want {
			t.Errorf("the task sees %v, want each GPU once: %s", res.Envs, want)
		}
		for _, id := range []string{"GPU-1", "GPU-1::4", "GPU-0::0"} {
			if _, err := p.Reserve([]string{id}); err == nil || !strings.Contains(err.Error(), "unknown device IDs: "+id) {
				t.Errorf("%s: error %v", id, err)
			}
		}
	})
}

// A fault of a GPU makes all its parts unhealthy; the parts of other GPUs stay healthy.
func TestFaultOfASharedGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(TimeSlicing)
		cfg.Sharing[0].GPUs = []string{"*"}
		p, s, _, _ := onStage(2, cfg)
		c, end := fingerprints(t, p)
		defer end()
		next(t, c)
		s.set(func(s *stage) { s.inv.Devices[1].Signals.RemapFailed = true })
		s.events <- gpu.Event{}
		const bad = "!row-remap-failure"
		if got, want := listed(next(t, c)), "gpu.shared/M-SHARED[GPU-0::0 GPU-0::1 GPU-0::2 GPU-0::3 GPU-1::0"+bad+" GPU-1::1"+bad+" GPU-1::2"+bad+" GPU-1::3"+bad+"]"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if _, err := p.Reserve([]string{"GPU-1::2"}); err == nil || !strings.Contains(err.Error(), "unhealthy device IDs: GPU-1::2 (row-remap-failure)") {
			t.Errorf("reserving a part of it: %v", err)
		}
	})
}

// Statistics of a GPU are published once, however many parts it has.
func TestStatisticsOfASharedGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _, _ := onStage(2, shared(TimeSlicing))
		c, end := fingerprints(t, p)
		defer end()
		next(t, c)
		told := map[string]string{}
		for _, g := range p.stats(time.Second) {
			for id, in := range g.InstanceStats {
				what := "other"
				switch a := in.Stats.Attributes; {
				case a["Temperature"] != nil:
					what = "full"
				case a["Statistics of"] != nil:
					what = *a["Statistics of"].StringVal
				}
				told[g.Type+" "+id] = what
				if in.Summary == nil || in.Stats.Attributes["Health"] == nil {
					t.Errorf("%s: summary %v, health %v", id, in.Summary, in.Stats.Attributes["Health"])
				}
			}
		}
		want := map[string]string{"gpu GPU-0": "full", "gpu.shared GPU-1::0": "full", "gpu.shared GPU-1::1": "GPU-1::0", "gpu.shared GPU-1::2": "GPU-1::0", "gpu.shared GPU-1::3": "GPU-1::0"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Error(diff)
		}
	})
}

// Under MPS a task gets its share of threads and memory for each part, and reaches the daemon
// through a directory that it cannot write.
func TestReserveByMPS(t *testing.T) {
	for name, tc := range map[string]struct {
		block SharingConfig
		ids   []string
		want  map[string]string
	}{
		"a part":    {SharingConfig{Replicas: 4}, []string{"GPU-1::2"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=250M"}},
		"two parts": {SharingConfig{Replicas: 4}, []string{"GPU-1::2", "GPU-1::0"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=500M"}},
		"own share": {SharingConfig{Replicas: 4, Threads: 60}, []string{"GPU-1::2", "GPU-1::0"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=500M"}},
		"two GPUs":  {SharingConfig{Replicas: 4}, []string{"GPU-1::2", "GPU-0::0"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=250M,1=250M"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			tc.block.Mode, tc.block.GPUs, tc.block.PipeDirectory = MPS, []string{"*"}, "/pipe"
			cfg.Sharing, cfg.StateDir = []SharingConfig{tc.block}, ""
			p := sharing(t, cfg)
			res, err := p.Reserve(tc.ids)
			if err != nil {
				t.Fatal(err)
			}
			tc.want["CUDA_MPS_PIPE_DIRECTORY"] = "/pipe"
			delete(res.Envs, "NVIDIA_VISIBLE_DEVICES")
			delete(res.Envs, attr.EnvReservation)
			if diff := cmp.Diff(tc.want, res.Envs); diff != "" {
				t.Error(diff)
			}
			if len(res.Mounts) != 1 || *res.Mounts[0] != (device.Mount{TaskPath: "/pipe", HostPath: "/pipe", ReadOnly: true}) {
				t.Errorf("mounts %+v", res.Mounts)
			}
		})
	}
}

// A process can use only one daemon, so a task gets no parts of GPUs with different daemons.
func TestReserveOfTwoDaemons(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = ""
	for _, id := range []string{"GPU-0", "GPU-1"} {
		cfg.Sharing = append(cfg.Sharing, SharingConfig{Mode: MPS, Replicas: 2, GPUs: []string{id}, PipeDirectory: "/run/" + id})
	}
	if _, err := sharing(t, cfg).Reserve([]string{"GPU-1::0", "GPU-0::0"}); err == nil || !strings.Contains(err.Error(), "GPUs GPU-1, GPU-0 have different MPS control daemons") {
		t.Errorf("error %v", err)
	}
}

// sharing returns a plugin that has scanned two GPUs of 1,000 MiB, and whose MPS control daemons
// answer.
func sharing(t *testing.T, cfg Config) *Plugin {
	t.Helper()
	p, s, _, _ := onStage(2, cfg)
	for i := range s.inv.Devices {
		s.inv.Devices[i].MemoryMiB = new(int64(1000))
	}
	p.Configure(cfg)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready()
	p.observe(time.Now(), scanResult{inv: s.inv})
	p.tellKnown()
	return p
}
