// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// bed is a real Nomad cluster with emulated GPUs, and the placer's binaries.
type bed struct {
	*cluster.Cluster
	t      *testing.T
	bin    string
	dir    string
	config string
	agent  *exec.Cmd
	log    string // path of the agent's log
}

// scores are the times of each node's GPUs, relative to the median GPU. GPU k
// of node n is "GPU-n-k".
var placerScores = [][]float64{
	{1.00, 1.00, 1.05, 1.50},
	{0.97, 1.00, 1.00, 1.00},
	{1.00, 1.02, 1.00, 1.00},
	{1.00, 1.00, 1.20, 1.00},
}

func gpu(node, k int) string { return fmt.Sprintf("GPU-%d-%d", node, k) }

// binaries is the folder with the binaries under test.
func binaries(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("E2E_BIN")
	if bin == "" {
		t.Skip("E2E_BIN names no folder with the binaries: run make e2e")
	}
	return bin
}

// newBed starts a cluster whose nodes have one GPU per score.
func newBed(t *testing.T, scores [][]float64, options cluster.Options) *bed {
	t.Helper()
	inventories := make([]string, len(scores))
	for n, times := range scores {
		inventories[n] = inventoryOf(n, times, nil)
	}
	return newBedOf(t, inventories, options)
}

// newBedOf starts a cluster with a node per inventory, edited.
func newBedOf(t *testing.T, inventories []string, options cluster.Options, edits ...func(*cluster.Client)) *bed {
	t.Helper()
	b := &bed{t: t, bin: binaries(t), dir: t.TempDir()}
	for n, text := range inventories {
		path := filepath.Join(b.dir, fmt.Sprintf("gpus-%d.hcl", n))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		client := cluster.Client{
			Name: fmt.Sprintf("node-%d", n),
			Meta: map[string]string{"rack": fmt.Sprintf("r%d", n/2)},
			Plugins: []cluster.Plugin{{
				Path: filepath.Join(b.bin, "nomad-device-pal"),
				Config: fmt.Sprintf("backend = \"emulated\"\ninventory = %q\nfingerprint_period = \"1s\"\nstate_dir = %q\n",
					path, filepath.Join(b.dir, fmt.Sprintf("state-%d", n))),
			}},
		}
		for _, edit := range edits {
			edit(&client)
		}
		options.Clients = append(options.Clients, client)
	}
	b.Cluster = clustertest.Start(t, options)
	b.until("GPUs are published", func() string {
		gpus := 0
		nodes, _, err := b.API().Nodes().List(&api.QueryOptions{Params: map[string]string{"resources": "true"}})
		if err != nil {
			return err.Error()
		}
		for _, n := range nodes {
			for _, d := range n.NodeResources.Devices {
				gpus += len(d.Instances)
			}
		}
		if want := strings.Count(strings.Join(inventories, ""), "gpu \""); gpus < want {
			return fmt.Sprintf("%d of %d", gpus, want)
		}
		return ""
	})
	return b
}

// inventoryOf is a node's inventory; the GPUs in the set are unhealthy.
func inventoryOf(node int, times []float64, unhealthy map[int]bool) string {
	var s strings.Builder
	for k, x := range times {
		fmt.Fprintf(&s, "gpu %q {\n  model = \"NVIDIA H200\"\n  healthy = %v\n  key = \"k\"\n  times = { A = %v, B = %v, C = %v, D = %v }\n}\n",
			gpu(node, k), !unhealthy[k], x, x, x, x)
	}
	return s.String()
}

// inventory rewrites the inventory of a running node.
func (b *bed) inventory(node int, times []float64, unhealthy map[int]bool) {
	b.t.Helper()
	path := filepath.Join(b.dir, fmt.Sprintf("gpus-%d.hcl", node))
	if err := os.WriteFile(path, []byte(inventoryOf(node, times, unhealthy)), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// startAgent starts the placer; binary is "nomad-pal" or the one with fault
// points.
func (b *bed) startAgent(binary string, env ...string) {
	b.t.Helper()
	dir := b.t.TempDir()
	b.log = filepath.Join(dir, "agent.log")
	path := filepath.Join(dir, "agent.hcl")
	config := "http {\n  bind_port = 0\n  register = true\n}\ngang_ready_timeout = \"2s\"\ndefault_class = \"A\"\n" + b.config
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		b.t.Fatal(err)
	}
	log, err := os.Create(b.log)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(b.bin, binary), "agent", "-config", path, "-log-level", "debug")
	cmd.Env = append(append(os.Environ(), b.Env()...), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	log.Close()
	b.agent = cmd
	logPath := b.log
	b.t.Cleanup(func() {
		if b.t.Failed() && b.agent == cmd {
			failures, _ := b.pal("failures")
			b.t.Logf("the agent's queue: %s\n%s", b.http("/v1/queue"), failures)
		}
		if b.agent == cmd {
			b.stopAgent()
		}
		if b.t.Failed() {
			text, _ := os.ReadFile(logPath)
			b.t.Logf("end of the log of the agent:\n%s", text[max(0, len(text)-4000):])
		}
	})
}

// agentURL is where the agent's own API is; "" where it is not up.
func (b *bed) agentURL() string {
	b.t.Helper()
	log, err := os.ReadFile(b.log)
	if err != nil {
		b.t.Fatal(err)
	}
	all := regexp.MustCompile(`HTTP API: address=(\S+)`).FindAllSubmatch(log, -1)
	if len(all) == 0 {
		return ""
	}
	return "http://" + string(all[len(all)-1][1])
}

// http asks the agent's own API.
func (b *bed) http(path string) string {
	b.t.Helper()
	at := b.agentURL()
	if at == "" {
		return ""
	}
	resp, err := http.Get(at + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// stopAgent ends the placer and waits for it.
func (b *bed) stopAgent() {
	if b.agent != nil {
		_ = b.agent.Process.Signal(syscall.SIGTERM)
		_ = b.agent.Wait()
		b.agent = nil
	}
}

// waitDead waits until the placer has killed itself.
func (b *bed) waitDead() {
	b.t.Helper()
	done := make(chan struct{})
	go func() { _ = b.agent.Wait(); close(done) }()
	select {
	case <-done:
		b.agent = nil
	case <-time.After(30 * time.Second):
		b.t.Fatal("the placer did not reach its fault point")
	}
}

// pal runs one of our commands and returns output and exit code.
func (b *bed) pal(args ...string) (string, int) {
	b.t.Helper()
	cmd := exec.Command(filepath.Join(b.bin, "nomad-pal"), args...)
	cmd.Env = append(os.Environ(), b.Env()...)
	out, err := output(cmd)
	if err != nil && cmd.ProcessState == nil {
		b.t.Fatal(err)
	}
	return out, cmd.ProcessState.ExitCode()
}

// output runs a command and returns what it prints: notes and errors, too, but
// where it prints JSON, which they are not part of.
func output(cmd *exec.Cmd) (string, error) {
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	if slices.Contains(cmd.Args, "-json") && out.Len() > 0 {
		return out.String(), err
	}
	return out.String() + notes.String(), err
}

// palJob runs a command on a jobspec.
func (b *bed) palJob(command, hcl string, args ...string) (string, int) {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "job.nomad.hcl")
	if err := os.WriteFile(path, []byte(hcl), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return b.pal(append(append([]string{command}, args...), path)...)
}

// run registers a job with `nomad-pal run -detach`.
func (b *bed) run(hcl string) {
	b.t.Helper()
	const noPlacer = 3 // registered, for a placer to come
	if out, code := b.palJob("run", hcl, "-detach"); code != 0 && code != noPlacer {
		b.t.Fatalf("nomad-pal run: exit code %d: %s", code, out)
	}
	id := strings.Split(hcl, `"`)[1]
	b.t.Cleanup(func() { // for the tests that follow a failed one
		if b.t.Failed() {
			b.logAllocs(id)
			_, _, _ = b.API().Jobs().Deregister(id, true, nil)
		}
	})
}

// logAllocs logs what became of a job's allocations.
func (b *bed) logAllocs(id string) {
	stubs, _, err := b.API().Jobs().Allocations(id, true, nil)
	if err != nil {
		return
	}
	evals, _, err := b.API().Jobs().Evaluations(id, nil)
	if err != nil {
		return
	}
	for _, e := range evals {
		b.t.Logf("%s: evaluation %s by %s: %s %v", id, e.Status, e.TriggeredBy, e.StatusDescription, e.FailedTGAllocs)
	}
	for _, s := range stubs {
		for task, state := range s.TaskStates {
			var events []string
			for _, e := range state.Events {
				events = append(events, e.Type+" "+e.DisplayMessage)
			}
			b.t.Logf("%s v%d %s/%s %s: %s", s.Name, s.JobVersion, s.DesiredStatus, s.ClientStatus, task, strings.Join(events, "; "))
		}
	}
}

// parse parses a jobspec as plain Nomad's users do, through its server.
func (b *bed) parse(hcl string) *api.Job {
	b.t.Helper()
	job, err := b.API().Jobs().ParseHCL(hcl, true)
	if err != nil {
		b.t.Fatal(err)
	}
	return job
}

type jobStub = api.JobListStub

// member is a running allocation.
type member struct {
	ID, Group string
	GPUs      []string
	Version   uint64
}

// members are the job's running allocations, by group.
func (b *bed) members(id string) []member {
	b.t.Helper()
	stubs, _, err := b.API().Jobs().Allocations(id, true, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	var ms []member
	for _, s := range stubs {
		if s.ClientStatus != "running" && !(s.ClientStatus == "pending" && s.DesiredStatus == "run") {
			continue
		}
		a, _, err := b.API().Allocations().Info(s.ID, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		m := member{ID: s.ID, Group: s.TaskGroup, Version: s.JobVersion}
		for _, t := range a.AllocatedResources.Tasks {
			for _, d := range t.Devices {
				m.GPUs = append(m.GPUs, d.DeviceIDs...)
			}
		}
		slices.Sort(m.GPUs)
		ms = append(ms, m)
	}
	slices.SortFunc(ms, func(a, b member) int {
		return strings.Compare(a.Group+strings.Join(a.GPUs, ","), b.Group+strings.Join(b.GPUs, ","))
	})
	return ms
}

// gpusOf are the GPUs of the job's running allocations, sorted.
func (b *bed) gpusOf(id string) []string {
	b.t.Helper()
	var ids []string
	for _, m := range b.members(id) {
		ids = append(ids, m.GPUs...)
	}
	slices.Sort(ids)
	return ids
}

// untilGPUs waits until the job runs on n GPUs, each of which one member has, and
// returns them. While Nomad replaces members, old ones may still end on GPUs of new ones.
func (b *bed) untilGPUs(id string, n int) []string {
	b.t.Helper()
	var ids []string
	b.until(fmt.Sprintf("job %q on %d GPUs", id, n), func() string {
		if ids = b.gpusOf(id); len(ids) != n || len(slices.Compact(slices.Clone(ids))) != n {
			return fmt.Sprintf("it runs on %v: %s", ids, b.explain(id).Reason)
		}
		return ""
	})
	return ids
}

// purge stops jobs, waits until nothing of them runs, and takes them away. A purge at
// once would leave GPUs that a placer keeps for as long as the tasks may take to end,
// and Nomad would not tell when they have.
func (b *bed) purge(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.deregister(id, false)
	}
	defer func() {
		for _, id := range ids {
			b.deregister(id, true)
		}
	}()
	b.until("the jobs are gone", func() string {
		allocs, _, err := b.API().Allocations().List(nil)
		if err != nil {
			return err.Error()
		}
		for _, a := range allocs {
			if slices.Contains(ids, a.JobID) && a.ClientStatus != "complete" && a.ClientStatus != "failed" && a.ClientStatus != "lost" {
				return a.Name + " is " + a.ClientStatus
			}
		}
		return ""
	})
}

// deregister stops a job. The placer may be undoing its own registering of one
// that is purged, and Nomad has an error for the second of two purges.
func (b *bed) deregister(id string, purge bool) {
	b.t.Helper()
	_, _, err := b.API().Jobs().Deregister(id, purge, nil)
	if err != nil && !strings.Contains(err.Error(), "job not found") {
		b.t.Fatal(err)
	}
}

// until polls until missing is "".
func (b *bed) until(what string, missing func() string) {
	b.t.Helper()
	clustertest.Until(b.t, 90*time.Second, what, func(context.Context) (string, error) { return missing(), nil })
}

// holds checks that something stays true for a while.
func (b *bed) holds(what string, wrong func() string) {
	b.t.Helper()
	end := time.Now().Add(4 * time.Second)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(end) {
		if w := wrong(); w != "" {
			b.t.Fatalf("%s: %s", what, w)
		}
		<-tick.C
	}
}
