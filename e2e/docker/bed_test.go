// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// bed is a cluster whose clients share one docker engine, and a placer.
type bed struct {
	*cluster.Cluster
	engine *engine
	// memlock is why containers cannot get unlimited locked memory here; "" if they can.
	memlock string
	ranks   *ranks
	placer  *cluster.Placer
}

const (
	pytorch = "nvcr.io/nvidia/pytorch:25.10-py3"
	vllm    = "vllm/vllm-openai:v0.11.0"
)

// profile gives GPUs of average speed variability class 1 or 2, which native-class
// requires.
const profile = `{"format": "nomad-pal/profile/1", "version": 3,
  "options": {"method": "edges", "edges": [0.99, 1.01, 1.03, 1.06],
    "hysteresis": 0, "outlier": 1.5, "min_gpus": 8},
  "groups": [{"model": "NVIDIA H200", "app": "A", "key": "k", "reference": 1, "measured": 64,
    "spread": 0.1, "values": [0.97, 1, 1.02, 1.045, 1.2]}],
  "gpus": []}`

// start starts engine, images, cluster and placer. The pools "single" and "bare"
// have one client with one GPU each; that of "bare" has no nvidia runtime.
func start(t *testing.T) *bed {
	t.Helper()
	need(t)
	b := &bed{}
	var err error
	if b.engine, err = startEngine(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the engine's log:\n%s", b.engine.logTail())
		}
	})
	image, err := buildImage()
	if err != nil {
		t.Fatal(err)
	}
	err = cmp.Or(b.engine.load(t.Context(), image, pytorch, "WORKDIR /workspace"),
		b.engine.load(t.Context(), image, vllm, `ENTRYPOINT ["vllm-openai"]`))
	if err != nil {
		t.Fatal(err)
	}
	if b.memlock, err = b.engine.refusesMemlock(t.Context(), pytorch); err != nil {
		t.Fatal(err)
	}
	if b.ranks, err = listenToRanks(); err != nil {
		t.Fatal(err)
	}
	clients := []cluster.Client{
		client(0, 24, "mig", "device_nodes = true", "", "nvidia"),
		client(1, 24, "", "cuda_visible_devices = true", "", "nvidia"),
		client(2, 1, "", "", "single", "nvidia"),
		client(3, 1, "", "", "bare", "not-installed"),
	}
	shared := t.TempDir() // a volume that every client has
	for i := range clients {
		clients[i].HCL += fmt.Sprintf("client {\n  host_volume \"shared\" {\n    path = %q\n  }\n}\n", shared)
	}
	options := cluster.Options{Bin: os.Getenv("E2E_BIN"), Clients: clients}
	b.Cluster = clustertest.Start(t, options)
	b.placer = clustertest.Placer(t, b.Cluster, cluster.PlacerOptions{Config: fmt.Sprintf(`
http {
  bind_port = 0
}
nomad {
  rpc_address = %q
}
gang_ready_timeout = "2s"
`, b.Servers()[0].RPCAddr())})
	return b
}

// client is a client with n GPUs, and a MIG instance unless mig is empty. reserve is the content of
// the plugin's reserve block, runtime the engine's runtime for GPUs.
func client(n, gpus int, mig, reserve, pool, runtime string) cluster.Client {
	var inventory strings.Builder
	for k := range gpus {
		fmt.Fprintf(&inventory, "gpu \"GPU-%d-%d\" {\n  key = \"k\"\n", n, k)
		inventory.WriteString("  times = { A = 1, B = 1, C = 1, D = 1 }\n}\n")
	}
	if mig != "" {
		inventory.WriteString("gpu \"MIG-0\" {\n  model = \"NVIDIA A100-SXM4-40GB\"\n")
		inventory.WriteString("  mig_parent = \"GPU-A100\"\n  mig_profile = \"1g.5gb\"\n}\n")
	}
	return cluster.Client{
		Name: fmt.Sprintf("node-%d", n), Meta: map[string]string{"rack": "r0"}, NodePool: pool,
		Inventory: inventory.String(), Profile: profile,
		PluginHCL: fmt.Sprintf("fingerprint_period = \"1s\"\nreserve {\n  %s\n}", reserve),
		CPUMHz:    1_000_000, MemoryMB: 4_000_000,
		// The clients share an engine, so none may remove another's containers and
		// images. They also share an address, so each has its own range of ports.
		HCL: fmt.Sprintf(`
client {
  network_interface = "lo"
  min_dynamic_port  = %d
  max_dynamic_port  = %d
  options = {
    "driver.allowlist" = "docker,raw_exec"
  }
}
plugin "docker" {
  config {
    endpoint       = "unix://%s"
    nvidia_runtime = %q
    allow_runtimes = ["runc", "nvidia"]
    gc {
      image = false
      dangling_containers {
        enabled = false
      }
    }
  }
}
`, 20000+1000*n, 20999+1000*n, engineSocket, runtime),
	}
}

// ranks has, for each gang, the first allocation that was rank 1: it waits until it is
// killed. Later ones go on at once.
type ranks struct {
	mu    sync.Mutex
	first map[string]string // job id to allocation id
}

func listenToRanks() (*ranks, error) {
	listener, err := net.Listen("unix", testSocket)
	if err != nil {
		return nil, err
	}
	r := &ranks{first: map[string]string{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.answer(conn)
		}
	}()
	return r, nil
}

func (r *ranks) answer(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	var job, alloc string
	if _, err := fmt.Fscanln(in, &job, &alloc); err != nil {
		return
	}
	r.mu.Lock()
	_, second := r.first[job]
	if !second {
		r.first[job] = alloc
	}
	r.mu.Unlock()
	if second {
		fmt.Fprintln(conn, "go on")
		return
	}
	_, _ = in.ReadByte() // until rank 1 has ended
}

// untilWaits waits until rank 1 of a gang waits to be killed, and returns its
// allocation.
func (r *ranks) untilWaits(t *testing.T, job string) string {
	t.Helper()
	var alloc string
	what := "rank 1 of " + job + " has met the others"
	clustertest.Until(t, nil, what, func(context.Context) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if alloc = r.first[job]; alloc == "" {
			return "it has not", nil
		}
		return "", nil
	})
	return alloc
}

// jobOf parses a file of jobspecs/ as Nomad's CLI does, with values for its
// variables.
func jobOf(t *testing.T, file string, vars ...string) *api.Job {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config := jobspec2.ParseConfig{Path: file, Body: body, Strict: true, ArgVars: vars}
	job, err := jobspec2.ParseWithConfig(&config)
	if err != nil {
		t.Fatal(err)
	}
	job.Canonicalize()
	return job
}

func (b *bed) register(t *testing.T, job *api.Job) {
	t.Helper()
	if _, _, err := b.API().Jobs().Register(job, nil); err != nil {
		t.Fatalf("register %s: %v", *job.ID, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.tell(t, *job.ID)
		}
		_ = b.Deregister(context.Background(), *job.ID, false) // the cluster ends anyway
	})
}

// tell logs the state of a job and its allocations.
func (b *bed) tell(t *testing.T, id string) {
	out, err := b.Command(context.Background(), "nomad-pal", "explain", "-verbose", id).CombinedOutput()
	t.Logf("explain %s: %v\n%s", id, err, out)
	for _, a := range b.allocations(t, id) {
		for task, state := range a.TaskStates {
			var events []string
			for _, e := range state.Events {
				events = append(events, e.Type+" "+e.DisplayMessage)
			}
			t.Logf("%s v%d %s/%s %s: %s", a.Name, a.JobVersion, a.DesiredStatus, a.ClientStatus,
				task, strings.Join(events, "; "))
		}
	}
}

// allocations are all allocations that a job has ever had.
func (b *bed) allocations(t *testing.T, id string) []*api.AllocationListStub {
	t.Helper()
	all, _, err := b.API().Jobs().Allocations(id, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// until waits until n allocations that should run have a client status, and returns them.
func (b *bed) until(t *testing.T, id, status string, n int) []*api.Allocation {
	t.Helper()
	var found []*api.AllocationListStub
	what := fmt.Sprintf("%d allocations of %s are %s", n, id, status)
	clustertest.Until(t, b.Cluster, what, func(context.Context) (string, error) {
		found = nil
		var others []string
		for _, a := range b.allocations(t, id) {
			if a.ClientStatus == status && a.DesiredStatus == api.AllocDesiredStatusRun {
				found = append(found, a)
			} else {
				others = append(others, a.Name+" "+a.DesiredStatus+"/"+a.ClientStatus)
			}
		}
		if len(found) != n {
			return fmt.Sprintf("%d of them; others: %v", len(found), others), nil
		}
		return "", nil
	})
	var out []*api.Allocation
	for _, a := range found {
		full, _, err := b.API().Allocations().Info(a.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, full)
	}
	return out
}

// inside is what an allocation's task found in its container.
func (b *bed) inside(t *testing.T, a *api.Allocation) inside {
	t.Helper()
	for _, c := range b.Clients() {
		if c.Name != a.NodeName {
			continue
		}
		path := filepath.Join(c.Dir, "data", "alloc", a.ID, "alloc", insideFile)
		var in inside
		what := a.Name + " looks around"
		clustertest.Until(t, b.Cluster, what, func(context.Context) (string, error) {
			text, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			return "", json.Unmarshal(text, &in)
		})
		return in
	}
	t.Fatalf("%s is on an unknown node %q", a.Name, a.NodeName)
	return inside{}
}
