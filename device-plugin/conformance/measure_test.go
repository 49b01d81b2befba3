// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// idleNode is a node whose two GPUs are simulated by the fake NVML and CUDA libraries; the
// second GPU is slow. scale is the length of a simulated second.
func idleNode(t *testing.T, scale string) (state nvmltest.State, ids []string, config, dir string) {
	t.Helper()
	dir = t.TempDir()
	state = nvmltest.H200(2)
	ids = state.Own()
	lib, err := fakecuda.Build(dir)
	if errors.Is(err, fakecuda.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lib+".settings", fmt.Appendf(nil, "gpus=2\nuuid.0=%s\nuuid.1=%s\nslow.1=1.04\nscale=%s\n", ids[0], ids[1], scale), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		state.Set(fmt.Sprintf("gpu%d", i), "sm_mhz", "1900") // the clock of a busy GPU, because the plugin judges rates by the clock
	}
	return state, ids, fast + fmt.Sprintf("\nstate_dir = %q\nmeasure {\n mode = \"idle\"\n jitter = \"0s\"\n cuda_library = %q\n idle_for = \"1s\"\n warmup = \"0s\"\n limit = \"10s\"\n}\nnomad {\n address = %q\n}", dir, lib, freeNode(t, ids)), dir
}

// freeNode is a Nomad that says that no allocation holds one of the node's GPUs.
func freeNode(t *testing.T, gpus []string) (address string) {
	t.Helper()
	node := api.Node{ID: "n1", Name: "n1", Status: "ready", NodeResources: &api.NodeResources{Devices: []*api.NodeDeviceResource{{}}}}
	for _, id := range gpus {
		node.NodeResources.Devices[0].Instances = append(node.NodeResources.Devices[0].Instances, &api.NodeDevice{ID: id})
	}
	answers := map[string]any{
		"/v1/agent/self":          api.AgentSelf{Stats: map[string]map[string]string{"client": {"node_id": "n1"}}},
		"/v1/acl/token/self":      api.ACLToken{Type: "management"},
		"/v1/node/n1":             node,
		"/v1/node/n1/allocations": []*api.Allocation{},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewEncoder(w).Encode(answers[r.URL.Path]); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A package upgrade may replace the binary days before the client restarts. The running
// plugin still measures, with its own binary.
func TestMeasuringWithABinaryThatWasReplaced(t *testing.T) {
	ours(t)
	state, ids, config, dir := idleNode(t, "0.001")
	w := driverless(t, state)
	old := filepath.Join(dir, filepath.Base(binary))
	run(t, "cp", binary, old)
	p, err := startPlugin(old, w.env, w.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	w.process = p
	run(t, "ln", "-sf", "/bin/false", old)
	if err := w.Configure(config); err != nil {
		t.Fatal(err)
	}
	w.fingerprint().until("times of a GPU", func(gs []*device.DeviceGroup) bool {
		return len(gs) > 0 && strings.Contains(attribute(gs[0], "unique.variability_raw"), ids[0])
	})
}

// Reserve ends a running measurement at once, and none of its processes is left.
func TestReserveEndsAMeasurement(t *testing.T) {
	ours(t)
	state, ids, config, dir := idleNode(t, "1") // sessions take as long as on a real GPU
	w := start(t, state, config)
	w.fingerprint().until("two GPUs", listed(2))
	eventually(t, "measuring begins", func() bool { return len(children(t, w.PID())) == 2 })
	took := patience.Stopwatch()
	if _, err := w.Device.Reserve([]string{ids[0]}); err != nil {
		t.Fatal(err)
	}
	if took := took(); took > 2*time.Second {
		t.Errorf("Reserve took %s", took)
	}
	if got := children(t, w.PID()); len(got) != 1 {
		t.Errorf("measuring processes %v after Reserve, want that of the other GPU", got)
	}
	measuring := children(t, w.PID())
	for _, pid := range measuring { // whoever sees a busy GPU wants to know which process uses it
		eventually(t, "the measuring process says what it is", func() bool { // once it runs
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return err == nil && string(comm) == "nomad-device-pa\n" && strings.HasPrefix(string(cmdline), "nomad-device-pal\x00measure-child")
		})
	}
	w.Stop()
	eventually(t, "the processes to end with the plugin", func() bool {
		for _, pid := range measuring {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				return false
			}
		}
		return true
	})
	// Nomad ended the session, so it is not a failure: restarting a client again and again
	// must not keep its GPUs from being measured.
	kept, err := os.ReadFile(filepath.Join(dir, "measurements.json"))
	if err != nil || strings.Contains(string(kept), "begun") {
		t.Errorf("error %v, stored\n%s", err, kept)
	}
}

// children returns the processes that a process started.
func children(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, task := range tasks { // each thread has its own list
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for f := range strings.FieldsSeq(string(data)) {
			var child int
			if _, err := fmt.Sscan(f, &child); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// eventually polls a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	patience.Eventually(t, what, ok)
}
