// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/conformance"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/mps/mpstest"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
	"github.com/nomad-pal/nomad-pal/pal"
)

// configOf reads the text of a config block as Nomad and SetConfig do.
func configOf(t *testing.T, text string) (Config, error) {
	t.Helper()
	data, err := conformance.EncodeConfig(configSchema(), text)
	if err != nil {
		return Config{}, err
	}
	return decodeConfig(data)
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
		{Mode: TimeSlicing, Replicas: 4, GPUs: []string{"0", "GPU-b"}, Directory: "/run/nomad-device-pal/mps", Control: "nvidia-cuda-mps-control"},
		{Mode: MPS, Replicas: 3, GPUs: []string{"Tesla T4"}, Directory: "/run/nomad-device-pal/mps", Control: "nvidia-cuda-mps-control"},
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
		"half a part":       {block("replicas = 2.5"), `config key "sharing.replicas": 2.5 is not a whole number`},
		"mode":              {block("replicas = 2", `mode = "mig"`), `sharing block 1: config key "sharing.mode": "mig" is not one of time-slicing, mps`},
		"no GPUs":           {block("replicas = 2", "gpus = []"), `sharing block 1: config key "sharing.gpus": the list is empty`},
		"GPU in two blocks": {block("replicas = 2", `gpus = ["GPU-a"]`) + block("replicas = 3", `gpus = ["GPU-b", "GPU-a"]`), `sharing block 2: config key "sharing.gpus": "GPU-a" is already in sharing block 1`},
		"GPU twice":         {block("replicas = 2", `gpus = ["GPU-a", "GPU-a"]`), `"GPU-a" is already in sharing block 1`},
		"all and one":       {block("replicas = 2") + block("replicas = 3", "gpus = [1]"), `sharing block 2: config key "sharing.gpus": a block with "*" covers all GPUs`},
		"one and all":       {block("replicas = 2", "gpus = [1]") + block("replicas = 3"), `sharing block 2: config key "sharing.gpus": a block with "*" covers all GPUs`},
		"MPS on MIG":        {block("replicas = 2", `mode = "mps"`, `gpus = ["MIG-1"]`), `sharing block 1: config key "sharing.gpus": MPS cannot share MIG instance "MIG-1"`},
		"limits of MPS":     {block("replicas = 2", "threads = 10"), `sharing block 1: config key "sharing.threads": this key needs mode = "mps"`},
		"range":             {block(`mode = "mps"`, "replicas = 2", "max_threads = 40"), `sharing block 1: config key "sharing.max_threads": 40 % is less than one part's share, 50 %`},
		"memory range":      {block(`mode = "mps"`, "replicas = 2", "max_memory = 40"), `config key "sharing.max_memory": 40 % is less than one part's share, 50 %`},
		"relative":          {block(`mode = "mps"`, "replicas = 2", `pipe_directory = "mps"`), `config key "sharing.pipe_directory": "mps" is not an absolute path`},
	} {
		if _, err := configOf(t, tc.config); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

func TestPlanSharing(t *testing.T) {
	ds := []gpu.Device{
		{ID: "GPU-a", Model: "A", Index: 0}, {ID: "GPU-b", Model: "A", Index: 1}, {ID: "GPU-c", Model: "C", Index: 2},
		{ID: "MIG-d", Parent: "GPU-d", Model: "D MIG 1g", Index: 3},
	}
	old := gpu.Device{ID: "GPU-old", Model: "P100", Index: 4, ComputeMajor: 6}
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
			d.MemoryMiB, d.NUMANode, d.Key = new(int64(81559)), i, "k"
			d.Times = map[pal.AppClass]float64{pal.ClassA: 1 + float64(i)}
			d.Rates = map[pal.AppClass]float64{pal.ClassA: 600, pal.ClassC: 4000}
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
		cfg.CDI, cfg.Reserve.CUDAVisibleDevices = true, true
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
		if len(res.Devices) != 2 || res.Devices[0].HostPath != "nvidia.com/gpu=GPU-1" {
			t.Errorf("CDI devices %+v, want one a GPU", res.Devices)
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
		for _, g := range p.stats() {
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

// A GPU whose form changes while a task holds it, in either direction, keeps its old form:
// no new task gets it, and the task that holds it can restart. The new form takes effect
// when Nomad says that the GPU is free.
func TestFormChangesOnceTasksHaveEnded(t *testing.T) {
	whole, four, two := shared(TimeSlicing), shared(TimeSlicing), shared(TimeSlicing)
	whole.Sharing = nil
	two.Sharing[0].Replicas = 2
	for name, tc := range map[string]struct {
		from, to           Config
		id, waits, becomes string
	}{
		"shared":      {whole, four, "GPU-1", "gpu/M[GPU-0 GPU-1!sharing-change]", "gpu/M[GPU-0] gpu.shared/M-SHARED[GPU-1::0 GPU-1::1 GPU-1::2 GPU-1::3]"},
		"whole again": {two, whole, "GPU-1::1", "gpu/M[GPU-0] gpu.shared/M-SHARED[GPU-1::0!sharing-change GPU-1::1!sharing-change]", "gpu/M[GPU-0 GPU-1]"},
		"other parts": {two, four, "GPU-1::0", "gpu/M[GPU-0] gpu.shared/M-SHARED[GPU-1::0!sharing-change GPU-1::1!sharing-change]", "gpu/M[GPU-0] gpu.shared/M-SHARED[GPU-1::0 GPU-1::1 GPU-1::2 GPU-1::3]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "state")
				tc.from.StateDir, tc.to.StateDir = dir, dir
				p, _, _, _ := onStage(2, tc.from)
				c, end := fingerprints(t, p)
				next(t, c)
				end()
				p, _, log, _ := onStage(2, tc.to)
				answers := []func() (map[string]string, error){
					func() (map[string]string, error) { return nil, errors.New("no leader") },
					func() (map[string]string, error) { return map[string]string{"GPU-1": `job "train"`}, nil },
					func() (map[string]string, error) { return map[string]string{}, nil },
				}
				p.allocated = func(_ context.Context, ids []string) (map[string]string, error) {
					if !slices.Equal(ids, []string{"GPU-1"}) {
						t.Errorf("asked about %v", ids)
					}
					answer := answers[0]
					answers = answers[1:]
					return answer()
				}
				c, end = fingerprints(t, p)
				defer end()
				if got := listed(next(t, c)); got != tc.waits {
					t.Fatalf("at first %s, want %s", got, tc.waits)
				}
				if _, err := p.Reserve([]string{tc.id}); err != nil {
					t.Errorf("the task that holds it cannot restart: %v", err)
				}
				begin := time.Now()
				if got := listed(next(t, c)); got != tc.becomes {
					t.Fatalf("then %s, want %s", got, tc.becomes)
				}
				if took := time.Since(begin); took < 2*formsEvery || took > 3*formsEvery || len(answers) > 0 {
					t.Errorf("after %s, with %d answers left", took, len(answers))
				}
				for _, want := range []string{"no leader", `held_by="job \"train\""`, "is now published as the sharing configuration says"} {
					if !strings.Contains(log.String(), want) {
						t.Errorf("the log lacks %q:\n%s", want, log)
					}
				}
			})
		})
	}
}

// If Nomad cannot be asked, the operator can end the wait. A GPU that was never published
// does not wait, and neither does one that keeps its form.
func TestFormsThatWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		cfg := shared(TimeSlicing)
		cfg.StateDir = dir
		const parts = "gpu/M[GPU-0] gpu.shared/M-SHARED[GPU-1::0 GPU-1::1 GPU-1::2 GPU-1::3]"
		for range 2 { // the first time, and again unchanged
			p, _, _, _ := onStage(2, cfg)
			c, end := fingerprints(t, p)
			if got := listed(next(t, c)); got != parts {
				t.Errorf("got %s", got)
			}
			end()
		}
		cfg.Sharing = nil
		p, _, _, _ := onStage(2, cfg)
		p.allocated = func(context.Context, []string) (map[string]string, error) { return nil, errors.New("no") }
		c, end := fingerprints(t, p)
		defer end()
		next(t, c)
		if err := statedir.Clear.Give(statedir.Dir(dir), "GPU-1"); err != nil {
			t.Fatal(err)
		}
		if got := listed(next(t, c)); got != "gpu/M[GPU-0 GPU-1]" {
			t.Errorf("after clear: %s", got)
		}
		if data, err := os.ReadFile(filepath.Join(dir, sharingFile)); err != nil || strings.Contains(string(data), "GPU-1") {
			t.Errorf("stored: %s, %v", data, err)
		}
	})
}

// Under MPS a task gets its share of threads and memory for each part, and the pipe
// directory of its GPU's daemon. It gets no parts of GPUs with different daemons.
func TestReserveByMPS(t *testing.T) {
	control, err := mpstest.Install(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		block SharingConfig
		ids   []string
		want  map[string]string
		err   string
	}{
		"a part":              {SharingConfig{Replicas: 4}, []string{"GPU-1::2"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=250M"}, ""},
		"two parts":           {SharingConfig{Replicas: 4, MaxThreads: 60, MaxMemory: 50}, []string{"GPU-1::2", "GPU-1::0"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=500M"}, ""},
		"over the range":      {SharingConfig{Replicas: 4, MaxThreads: 60, MaxMemory: 60}, []string{"GPU-1::2", "GPU-1::0", "GPU-1::1"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "60", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=600M"}, ""},
		"own share":           {SharingConfig{Replicas: 4, Threads: 40}, []string{"GPU-1::2"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=250M"}, ""},
		"two GPUs":            {SharingConfig{Replicas: 4}, []string{"GPU-1::2", "GPU-0::0"}, nil, "GPUs GPU-1, GPU-0 have one MPS control daemon each"},
		"one daemon for both": {SharingConfig{Replicas: 4, PipeDirectory: "/pipe"}, []string{"GPU-1::2", "GPU-0::0"}, map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=250M,1=250M", "CUDA_MPS_PIPE_DIRECTORY": "/pipe"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Backend = "emulated"
			tc.block.Mode, tc.block.GPUs, tc.block.Control, tc.block.Directory = MPS, []string{"*"}, control, t.TempDir()
			cfg.Sharing = []SharingConfig{tc.block}
			p, s, _, _ := onStage(2, cfg)
			for i := range s.inv.Devices {
				s.inv.Devices[i].MemoryMiB = new(int64(1000))
			}
			cfg.StateDir, cfg.Reserve.Unhealthy = "", "allow" // this test does not check whether the daemon runs
			p.Configure(cfg)
			p.mu.Lock()
			p.ready()
			p.observe(time.Now(), scanResult{inv: s.inv})
			p.tellKnown()
			for _, id := range []string{"GPU-0", "GPU-1"} { // as if the daemons had been started
				if err := os.MkdirAll(filepath.Join(tc.block.Directory, id), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			p.mu.Unlock()
			res, err := p.Reserve(tc.ids)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.want["CUDA_MPS_PIPE_DIRECTORY"] == "" {
				tc.want["CUDA_MPS_PIPE_DIRECTORY"] = filepath.Join(tc.block.Directory, "GPU-1", "pipe")
			}
			delete(res.Envs, "NVIDIA_VISIBLE_DEVICES")
			if diff := cmp.Diff(tc.want, res.Envs); diff != "" {
				t.Error(diff)
			}
			pipe := tc.want["CUDA_MPS_PIPE_DIRECTORY"]
			if len(res.Mounts) != 1 || *res.Mounts[0] != (device.Mount{TaskPath: pipe, HostPath: pipe}) {
				t.Errorf("mounts %+v, want %s", res.Mounts, pipe)
			}
		})
	}
}

// A new driver can give a GPU another name. Nomad would forget the task that holds the GPU under its
// old name, and give the GPU to another job. So the GPU keeps its name until it is free, even if the
// plugin restarts meanwhile.
func TestNameChangesOnceTasksHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.StateDir = filepath.Join(t.TempDir(), "state")
		p, _, _, _ := onStage(2, cfg)
		c, end := fingerprints(t, p)
		next(t, c)
		end()
		var holder atomic.Value
		holder.Store(`job "train"`)
		for _, process := range []string{"first", "second"} {
			p, s, log, _ := onStage(2, cfg)
			s.inv.Devices[1].Model = "NVIDIA M"
			p.allocated = func(_ context.Context, ids []string) (map[string]string, error) {
				if !slices.Equal(ids, []string{"GPU-1"}) {
					t.Errorf("asked about %v", ids)
				}
				return map[string]string{"GPU-1": holder.Load().(string)}, nil
			}
			c, end = fingerprints(t, p)
			if got, want := listed(next(t, c)), "gpu/M[GPU-0 GPU-1!name-change]"; got != want {
				t.Fatalf("%s process: %s, want %s", process, got, want)
			}
			if _, err := p.Reserve([]string{"GPU-1"}); err != nil {
				t.Errorf("the task that holds it cannot restart: %v", err)
			}
			time.Sleep(3 * time.Minute) // several scans
			if process == "second" {
				holder.Store("")
				if got, want := listed(next(t, c)), "gpu/M[GPU-0] gpu/NVIDIA M[GPU-1]"; got != want {
					t.Errorf("then %s, want %s", got, want)
				}
				time.Sleep(3 * time.Minute)
				var kept gpu.Inventory
				if _, err := openStore(cfg.StateDir).Read(inventoryFile, &kept); err != nil || kept.Devices[1].Model != "NVIDIA M" {
					t.Errorf("stored %+v, %v", kept.Devices, err)
				}
			}
			end()
			if !strings.Contains(log.String(), `held_by="job \"train\""`) {
				t.Errorf("the log does not name the holder:\n%s", log)
			}
		}
	})
}
