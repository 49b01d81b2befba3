// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// realGPUs is the variable that makes the tests use this machine's GPUs: make hardware-nomad.
// Without it they run on one GPU that our stand-ins for the drivers emulate, which tests the
// tests.
const realGPUs = "E2E_GPUS"

// machine is a client with this machine's GPUs, or with emulated ones.
type machine struct {
	*bed
	node string
	gpus []string // UUIDs
	real bool
	cuda bool // PyTorch sees a GPU
	// shared is the directory of the client's volume "shared".
	shared string
}

// newMachine starts Nomad on this machine. more is added to the plugin's
// configuration.
func newMachine(t *testing.T, more string) *machine {
	t.Helper()
	m := &machine{real: os.Getenv(realGPUs) == "real", shared: t.TempDir()}
	var client cluster.Client
	if m.real {
		out, err := exec.Command("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").Output()
		if err != nil {
			t.Fatalf("%s=real, but nvidia-smi lists no GPU: %v", realGPUs, err)
		}
		m.gpus = strings.Fields(string(out))
		m.cuda = exec.Command("python3", "-c", "import torch; torch.zeros(1, device='cuda')").Run() == nil
		client.Plugins = []cluster.Plugin{{Path: devicePlugin(t), Config: fmt.Sprintf(`state_dir = %q
fingerprint_period = "2s"
measure {
  mode   = "manual"
  warmup = "15s"
  limit  = "40s"
}
reserve {
  device_nodes = true
}
nomad {
  address = %q
}
`, t.TempDir(), cluster.OwnAddress) + more}}
	} else {
		box := newMeasuringBox(t, 1, "manual")
		client, m.gpus = box.Client, []string{box.uuid(0)}
		client.Plugins[0].Config += more
	}
	client.HCL = "telemetry {\n  collection_interval = \"1s\"\n}\n" + chroot(t) + sharedVolume(m.shared)
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), Clients: []cluster.Client{client}})
	m.bed = &bed{t: t, Cluster: c, dir: t.TempDir()}
	m.node = c.Clients()[0].Name
	return m
}

// chroot is what exec tasks see of the machine: a shell, our plugin's binary, and the
// driver's libraries.
func chroot(t *testing.T) string {
	t.Helper()
	paths := map[string]string{devicePlugin(t): "/bin/nomad-device-pal", "/bin/sh": "/bin/sh"}
	for _, dir := range []string{"/usr/local/nvidia/lib64", "/usr/lib/" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu", "/lib64"} {
		for _, name := range []string{"ld-linux*", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-gpucomp.so.*"} {
			found, err := filepath.Glob(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range found {
				paths[path] = path
			}
		}
	}
	var s strings.Builder
	for from, to := range paths {
		fmt.Fprintf(&s, "    %q = %q\n", from, to)
	}
	return "client {\n  chroot_env {\n" + s.String() + "  }\n}\n"
}

// task is a job of one member that uses one device.
func (m *machine) task(id, device, driver, config, meta string) string {
	return fmt.Sprintf(`job %q {
  type = "batch"
  meta {
    pal_class = "A"
    %s
  }
  group "g" {
    restart { attempts = 0 }
    task "t" {
      driver       = %q
      kill_signal  = "SIGTERM"
      kill_timeout = "10s"
      config {
        %s
      }
      env {
        PYTHONUNBUFFERED = "1"
      }
      resources {
        cpu    = 100
        memory = 1000
        device %q {}
      }
    }
  }
}
`, id, meta, driver, config, device)
}

// python is the configuration of a task that runs a Python program with
// arguments.
func python(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	return fmt.Sprintf("command = %q\n        args = [\"%s\"]", path, strings.Join(args, `", "`))
}

// outputOf is what an allocation's task has printed.
func (m *machine) outputOf(alloc string) string {
	var text strings.Builder
	for _, name := range []string{"stdout", "stderr"} {
		body, err := m.Clients()[0].API().AllocFS().Cat(&api.Allocation{ID: alloc}, "alloc/logs/t."+name+".0", nil)
		if err != nil {
			continue // the file does not exist yet
		}
		_, _ = io.Copy(&text, body) // ends at the file's end
		body.Close()
	}
	return text.String()
}

// ended waits until a job's only task has ended, and returns what it printed.
func (m *machine) ended(job string) string {
	m.t.Helper()
	var text string
	m.until(job+" ends", func() string {
		allocs := m.allocsOf(job)
		if len(allocs) == 0 || allocs[0].ClientStatus == "pending" || allocs[0].ClientStatus == "running" {
			return fmt.Sprintf("%d allocations", len(allocs))
		}
		text = m.outputOf(allocs[0].ID)
		if allocs[0].ClientStatus != "complete" {
			m.t.Fatalf("%s %s: %s", job, allocs[0].ClientStatus, text)
		}
		return ""
	})
	return text
}

// busy is a program that keeps a GPU busy with work of an application class.
const busy = `
import sys, time, torch
kind, end, n = sys.argv[1], time.time() + float(sys.argv[2]), 0
if kind == "A":
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in "ab")
    f = lambda: a @ b
else:
    a, b = (torch.randn(1 << 28, device="cuda") for _ in "ab")
    f = lambda: torch.add(a, b, alpha=1.5, out=a)
while time.time() < end:
    for _ in range(20): f()
    torch.cuda.synchronize()
    n += 20
print("worked", n, "multiprocessors", torch.cuda.get_device_properties(0).multi_processor_count)
`

// busyFile writes the program.
func (m *machine) busyFile() string {
	m.t.Helper()
	switch {
	case !m.real:
		m.t.Skip("needs a real GPU: make hardware-nomad")
	case !m.cuda:
		m.t.Skip("needs a python3 with PyTorch that sees a GPU")
	}
	path := filepath.Join(m.dir, "busy.py")
	if err := os.WriteFile(path, []byte(busy), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// A user's tasks on real GPUs: Nomad lists the GPUs, they are measured, a job continues from
// its checkpoint, and its load gives its class.
func TestHardware(t *testing.T) {
	if os.Getenv(realGPUs) != "real" {
		onlyLong(t)
	}
	t.Parallel()
	m := newMachine(t, "")
	untilGPUs(t, m.Cluster, m.node, "the GPUs are there", count(len(m.gpus)))
	m.startAgent("nomad-pal")
	for _, story := range []struct {
		name string
		tell func(*machine)
	}{{"published", published}, {"measured", measured}, {"checkpoint", goesOn}, {"class", classified}, {"exec", inChroot}} {
		t.Run(story.name, func(t *testing.T) {
			sub, b := *m, *m.bed
			b.t, sub.bed = t, &b
			story.tell(&sub)
		})
	}
}

// published: each GPU is healthy and has attributes and statistics.
func published(m *machine) {
	got, attributes, err := gpusOf(m.t.Context(), m.Cluster, m.node)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, id := range m.gpus {
		if got[id] != "healthy" {
			m.t.Errorf("attribute %s is %q", id, got[id])
		}
	}
	for _, name := range []string{"memory", "power", "cores_clock", "memory_clock", "pci_bandwidth", "bar1"} {
		i := slices.IndexFunc(slices.Collect(maps.Keys(attributes)), func(k string) bool { return strings.HasSuffix(k, " "+name) })
		if i < 0 {
			m.t.Errorf("no attribute %s", name)
		}
	}
	id, err := m.NodeID(m.t.Context(), m.node)
	if err != nil {
		m.t.Fatal(err)
	}
	m.until("statistics of all GPUs", func() string {
		stats, err := m.API().Nodes().Stats(id, nil)
		if err != nil {
			return err.Error()
		}
		n := 0
		for _, g := range stats.DeviceStats {
			for gpu, s := range g.InstanceStats {
				for _, name := range []string{"Memory state", "Power usage", "Temperature", "GPU utilization"} {
					if v := s.Stats.Attributes[name]; v == nil || v.IntNumeratorVal == nil {
						return fmt.Sprintf("%s of %s is %+v", name, gpu, v)
					}
				}
				n++
			}
		}
		if n < len(m.gpus) {
			return fmt.Sprintf("of %d GPUs", n)
		}
		return ""
	})
}

// measured: a job measures all GPUs, and lists show the result.
func measured(m *machine) {
	register(m.t, m.Cluster, measureJob(m.t, len(m.gpus)))
	m.until("times of all classes are published", func() string {
		_, attributes, err := gpusOf(m.t.Context(), m.Cluster, m.node)
		if err != nil {
			return err.Error()
		}
		raw := ""
		for k, v := range attributes {
			if strings.HasSuffix(k, " unique.variability_raw") {
				raw += v.String()
			}
		}
		for _, id := range m.gpus {
			if !strings.Contains(raw, id) {
				return raw
			}
		}
		return ""
	})
	stop(m.t, m.Cluster, "measure")
	out, _ := m.pal("gpus")
	m.t.Logf("%s", out)
}

// goesOn: a training on all GPUs is stopped, and continues with the next step. On GPUs its ranks
// communicate with NCCL, and with gloo otherwise.
func goesOn(m *machine) {
	const endless = 1_000_000
	tr := newTrainer(m.bed, pythonWithTorch(m.t), m.shared, endless)
	tr.submit("ranks", fmt.Sprintf("ranks=%d", len(m.gpus)))
	tr.untilSteps("ranks", 1, 20)
	s := stopped{what: "requeue", at: time.Now(), wrote: true, newRun: 2}
	if out, code := m.pal("requeue", "ranks"); code != 0 {
		m.t.Fatalf("requeue: exit code %d\n%s", code, out)
	}
	tr.goesOn("ranks", s)
	m.t.Logf("%s", costTable(*tr.costs))
	m.purge("ranks")
}

// classified: a job's load on its GPU gives its class.
func classified(m *machine) {
	program := m.busyFile()
	for _, class := range []string{"A", "C"} {
		id := "busy-" + strings.ToLower(class)
		m.run(m.task(id, "nvidia/gpu", "raw_exec", python(m.t, program, class, "40"), ""))
		running(m.t, m.Cluster, id)
		out, code := m.pal("classify", "-for=25s", id)
		if code != 0 || !strings.Contains(out, "Application class  = "+class) {
			m.t.Errorf("%s: exit code %d\n%s", id, code, out)
		}
		m.purge(id)
	}
}

// inChroot: with device_nodes, an exec task computes on its GPU.
func inChroot(m *machine) {
	if !m.real || os.Geteuid() != 0 {
		m.t.Skip("needs root and a real GPU: make hardware-nomad")
	}
	m.run(m.task("chroot", "nvidia/gpu", "exec", `command = "/bin/nomad-device-pal"
        args = ["measure", "-force", "-warmup=2s", "-limit=10s"]`, ""))
	m.t.Logf("%s", m.ended("chroot"))
	m.purge("chroot")
}

// mpsDaemon starts NVIDIA's control daemon, and returns its pipe directory.
func mpsDaemon(t *testing.T) (pipe string) {
	t.Helper()
	const program = "nvidia-cuda-mps-control"
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("needs " + program)
	}
	pipe = t.TempDir()
	run := func(in string, args ...string) error {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+pipe, "CUDA_MPS_LOG_DIRECTORY="+pipe)
		cmd.Stdin = strings.NewReader(in)
		return cmd.Run()
	}
	if err := run("", "-d"); err != nil {
		t.Fatalf("starting %s: %v", program, err)
	}
	t.Cleanup(func() {
		if err := run("quit\n"); err != nil {
			t.Errorf("ending %s: %v", program, err)
		}
	})
	return pipe
}

// Two programs share a GPU, by time slicing and by MPS.
func TestHardwareShared(t *testing.T) {
	for _, mode := range []string{"time-slicing", "mps"} {
		t.Run(mode, func(t *testing.T) {
			if os.Getenv(realGPUs) != "real" {
				t.Skip("needs a real GPU: make hardware-nomad")
			}
			keys := fmt.Sprintf("mode = %q\n  replicas = 2", mode)
			if mode == "mps" {
				keys += fmt.Sprintf("\n  pipe_directory = %q", mpsDaemon(t))
			}
			m := newMachine(t, "sharing {\n  "+keys+"\n}\n")
			program := m.busyFile()
			untilGPUs(t, m.Cluster, m.node, "two parts each", count(2*len(m.gpus)))
			m.startAgent("nomad-pal")
			jobs := []string{"one", "two"}
			for _, id := range jobs {
				m.run(m.task(id, "nvidia/gpu.shared", "raw_exec", python(t, program, "A", "20"), ""))
			}
			for _, id := range jobs {
				running(t, m.Cluster, id)
			}
			clustertest.Until(t, m.Cluster, "the driver lists both", func(context.Context) (string, error) {
				out, err := exec.Command("nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader").CombinedOutput()
				if err != nil || strings.Count(string(out), "python") < 2 && !strings.Contains(string(out), "mps") {
					return string(out), err
				}
				return "", nil
			})
			for _, id := range jobs {
				t.Logf("%s: %s", id, m.ended(id))
			}
		})
	}
}
