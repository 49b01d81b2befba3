// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// bed is a real Nomad cluster with emulated GPUs, and the placer's binaries.
type bed struct {
	*cluster.Cluster
	t      *testing.T
	dir    string
	config string
	host   string          // the placer's host in a cluster that is Apart
	placer *cluster.Placer // the last one that was started
}

// placerScores are the times of each node's GPUs, relative to the median GPU.
// GPU k of node n is "GPU-n-k".
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
	return newBedOf(t, inventoriesOf(scores), options)
}

func inventoriesOf(scores [][]float64) []string {
	inventories := make([]string, len(scores))
	for n, times := range scores {
		inventories[n] = inventoryOf(n, times, nil)
	}
	return inventories
}

// newBedOf starts a cluster with one node per inventory; edit changes the
// clients.
func newBedOf(t *testing.T, inventories []string, options cluster.Options, edits ...func(*cluster.Client)) *bed {
	t.Helper()
	options.Bin = binaries(t)
	options.Clients = append(options.Clients, clientsOf(inventories, edits...)...)
	return &bed{t: t, dir: t.TempDir(), Cluster: clustertest.Start(t, options)}
}

// clientsOf are the clients, one per inventory, changed by edit.
func clientsOf(inventories []string, edits ...func(*cluster.Client)) (clients []cluster.Client) {
	for n, text := range inventories {
		client := cluster.Client{
			Name: fmt.Sprintf("node-%d", n), Meta: map[string]string{"rack": fmt.Sprintf("r%d", n/2)},
			Inventory: text, PluginHCL: "fingerprint_period = \"1s\"",
		}
		for _, edit := range edits {
			edit(&client)
		}
		clients = append(clients, client)
	}
	return clients
}

// inventoryOf is a node's inventory, with these GPUs unhealthy.
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
	if err := b.Clients()[node].SetInventory(inventoryOf(node, times, unhealthy)); err != nil {
		b.t.Fatal(err)
	}
}

// startAgent starts the placer. binary is "nomad-pal", or the build with fault
// points.
func (b *bed) startAgent(binary string, env ...string) {
	b.t.Helper()
	at, err := b.HostIP(b.host) // reachable from other hosts of a cluster that is Apart
	if err != nil {
		b.t.Fatal(err)
	}
	p := clustertest.Placer(b.t, b.Cluster, cluster.PlacerOptions{
		Binary: binary, Host: b.host, Flags: debug, Env: append(append(os.Environ(), b.Env()...), env...),
		Config: fmt.Sprintf("http {\n  bind_address = %q\n  bind_port = 0\n}\n", at) + "gang_ready_timeout = \"2s\"\ndefault_class = \"A\"\n" + b.config,
	})
	b.placer = p
	ctx, cancel := clustertest.Context(b.t, b.Cluster)
	defer cancel()
	if err := p.Serves(ctx); err != nil && binary == "nomad-pal" { // the build with fault points may have killed itself
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if b.t.Failed() && p.PID() != 0 {
			b.t.Logf("the agent's queue: %s", b.http("/v1/queue"))
		}
	})
}

// http sends a GET to the agent's own API.
func (b *bed) http(path string) string {
	b.t.Helper()
	if b.placer.URL() == "" {
		return ""
	}
	_, text, err := b.placer.Request(context.Background(), http.MethodGet, path, "", "")
	if err != nil {
		return err.Error()
	}
	return text
}

// stopAgent stops the placer and waits for its end.
func (b *bed) stopAgent() {
	b.t.Helper()
	if err := b.placer.Stop(); err != nil {
		b.t.Fatal(err)
	}
}

// killAgent kills the placer without warning.
func (b *bed) killAgent() {
	b.t.Helper()
	if err := b.placer.Kill(); err != nil {
		b.t.Fatal(err)
	}
}

// waitDead waits until the placer has killed itself at its fault point.
func (b *bed) waitDead() {
	b.t.Helper()
	ctx, cancel := clustertest.Context(b.t, b.Cluster)
	defer cancel()
	if err := b.placer.Wait(ctx); err != nil {
		b.t.Fatalf("the placer did not reach its fault point: %v\n%s", err, clustertest.Describe(b.Cluster))
	}
}

// pal runs one of our commands and returns output and exit code. It gives the command the running
// agent's address, because Nomad may still have the previous agent's. It does not for run, which
// would then register the job with the agent.
func (b *bed) pal(args ...string) (string, int) {
	b.t.Helper()
	cmd := b.Command(context.Background(), "nomad-pal", args...)
	if p := b.placer; p != nil && p.PID() != 0 && p.URL() != "" && args[0] != "run" {
		cmd.Env = append(cmd.Env, "NOMAD_PAL_ADDR="+p.URL())
	}
	return b.output(cmd)
}

// says checks that one of our commands prints these words.
func (b *bed) says(command string, words ...string) {
	b.t.Helper()
	out, _ := b.pal(strings.Fields(command)...)
	mentions(b.t, out, words...)
}

// untilSays waits until one of our commands prints these words.
func (b *bed) untilSays(command, words string) {
	b.t.Helper()
	b.until(command+" says "+words, func() string {
		if out, _ := b.pal(strings.Fields(command)...); !strings.Contains(out, words) {
			return out
		}
		return ""
	})
}

// output runs a command and returns its output and exit code. The output includes stderr, unless
// the command prints JSON. A command that does not end fails the test.
func (b *bed) output(cmd *exec.Cmd) (string, int) {
	b.t.Helper()
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &notes, 5*time.Second
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	ctx, ended := patience.Context(context.Background(), patience.Long) // not the test's context, because cleanups use it, too
	defer ended()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	_ = cmd.Wait() // the exit code is returned
	if err := context.Cause(ctx); err != nil {
		b.t.Fatalf("waiting until %q ends: %v\n%s%s", cmd.Args, err, &out, &notes)
	}
	if !slices.Contains(cmd.Args, "-json") || out.Len() == 0 {
		out.Write(notes.Bytes())
	}
	return out.String(), cmd.ProcessState.ExitCode()
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
	const noPlacer = 3 // run's exit code if it has registered the job but no placer is active
	if out, code := b.palJob("run", hcl, "-detach"); code != 0 && code != noPlacer {
		b.t.Fatalf("nomad-pal run: exit code %d: %s", code, out)
	}
	id := strings.Split(hcl, `"`)[1]
	b.t.Cleanup(func() { // frees GPUs for the tests after a failed one
		if b.t.Failed() {
			b.t.Logf("%s: %+v", id, b.explain(id))
			b.logAllocs(id)
			_, _, _ = b.API().Jobs().Deregister(id, true, nil)
		}
	})
}

// logAllocs logs the state of a job's evaluations and allocations.
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
		ms = append(ms, member{ID: s.ID, Group: s.TaskGroup, GPUs: cluster.DeviceIDs(a.AllocatedResources), Version: s.JobVersion})
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

// untilGPUs waits until the job's members hold n different GPUs, and returns them. While
// Nomad replaces members, old ones may still be ending on GPUs of new ones.
func (b *bed) untilGPUs(id string, n int) []string {
	b.t.Helper()
	var ids []string
	b.until(fmt.Sprintf("job %q on %d GPUs", id, n), func() string {
		if ids = b.gpusOf(id); len(ids) != n || len(slices.Compact(slices.Clone(ids))) != n {
			return fmt.Sprintf("it runs on %v", ids)
		}
		return ""
	})
	return ids
}

// purge stops jobs, waits until none of their tasks runs, and purges them.
func (b *bed) purge(ids ...string) {
	b.t.Helper()
	ctx, cancel := clustertest.Context(b.t, b.Cluster)
	defer cancel()
	if err := b.Purge(ctx, ids...); err != nil {
		b.t.Fatalf("%v\n%s", err, clustertest.Describe(b.Cluster))
	}
}

// purgeAll purges all jobs.
func (b *bed) purgeAll() {
	b.t.Helper()
	all, _, err := b.API().Jobs().List(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	var ids []string
	for _, j := range all {
		ids = append(ids, j.ID)
	}
	b.purge(ids...)
}

// deregister stops a job, or purges it.
func (b *bed) deregister(id string, purge bool) {
	b.t.Helper()
	if err := b.Deregister(b.t.Context(), id, purge); err != nil {
		b.t.Fatal(err)
	}
}

// until polls until missing is "".
func (b *bed) until(what string, missing func() string) {
	b.t.Helper()
	clustertest.Until(b.t, b.Cluster, what, func(context.Context) (string, error) { return missing(), nil })
}

// holds checks that a condition stays true for a while.
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
