// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/classify"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// answering is a Nomad that serves these paths; a PUT replaces the answer of its path.
func answering(t *testing.T, answers map[string]string) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			answers[r.URL.Path] = string(body)
		}
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.Error(w, "not found: "+r.URL.Path, http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&api.Config{Address: server.URL}, "default")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGPUReadings(t *testing.T) {
	stats := `{"DeviceStats": [{"Vendor": "nvidia", "Type": "gpu", "Name": "H200", "InstanceStats": {
		"GPU-1": {"Timestamp": "2026-01-20T12:00:00Z", "Stats": {"Attributes": {
			"GPU utilization": {"IntNumeratorVal": 97}, "Power usage": {"IntNumeratorVal": 630, "IntDenominatorVal": 700},
			"Power cap time": {"FloatNumeratorVal": 42.0}, "Tensor active": {"FloatNumeratorVal": 80}, "DRAM active": {"StringVal": "N/A"}}}},
		"GPU-2": {"Stats": {"Attributes": {"GPU utilization": {"StringVal": "N/A"}, "Power usage": {"StringVal": "N/A"}}}}}}]}`
	node := "f7476465-4d6e-c0de-26d0-e383c49be941"
	c := answering(t, map[string]string{
		"/v1/node/" + node: `{"ID": "` + node + `", "HTTPAddr": "127.0.0.1:1"}`,
		"/v1/client/stats": stats,
	})
	got, err := c.GPUReadings(context.Background(), node, []string{"GPU-2", "GPU-1", "GPU-none"})
	if err != nil {
		t.Fatal(err)
	}
	v := func(x float64) *float64 { return &x }
	want := []GPUReading{{GPU: "GPU-2"}, {"GPU-1", time.Date(2026, 1, 20, 12, 0, 0, 0, time.UTC),
		classify.Reading{Utilization: v(0.97), Power: v(0.9), PowerCap: v(0.42), Compute: v(0.8)}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestJobGPUs(t *testing.T) {
	c := answering(t, map[string]string{
		"/v1/job/train/allocations": `[{"ID": "a1", "ClientStatus": "running"}, {"ID": "a2", "ClientStatus": "complete"}]`,
		"/v1/allocation/a1": `{"ID": "a1", "NodeID": "n1", "AllocatedResources": {"Tasks": {"t": {"Devices": [
			{"Vendor": "nvidia", "Type": "gpu", "Name": "H200", "DeviceIDs": ["GPU-2", "GPU-1"]}, {"Type": "fpga", "DeviceIDs": ["x"]}]}}}}`,
	})
	got, err := c.JobGPUs(context.Background(), cluster.JobKey{Namespace: "default", ID: "train"})
	if diff := cmp.Diff(map[string][]string{"n1": {"GPU-1", "GPU-2"}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// Odd statistics of a node never stop the placer.
func TestOddReadings(t *testing.T) {
	node := "f7476465-4d6e-c0de-26d0-e383c49be941"
	c := answering(t, map[string]string{
		"/v1/node/" + node: `{"ID": "` + node + `", "HTTPAddr": "127.0.0.1:1"}`,
		"/v1/client/stats": `{"DeviceStats": [null, {"InstanceStats": {"GPU-0": null, "GPU-1": {"Stats": {"Attributes": {
			"GPU utilization": {"FloatNumeratorVal": 1e308}, "Power usage": {"IntNumeratorVal": -5, "IntDenominatorVal": 700},
			"Power cap time": null, "Tensor active": {}, "DRAM active": {"IntNumeratorVal": 200}}}}}}]}`,
	})
	got, err := c.GPUReadings(context.Background(), node, []string{"GPU-0", "GPU-1"})
	if err != nil {
		t.Fatal(err)
	}
	two := 2.0
	if diff := cmp.Diff([]GPUReading{{GPU: "GPU-1", Reading: classify.Reading{Memory: &two}}}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
