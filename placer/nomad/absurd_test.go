// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// late is a time that Nomad 1.11.3 writes if a client's clock is wrong. Go's JSON decoder refuses
// it.
const late = `"10000-01-01T00:00:00Z"`

// absurdNode is a node whose client wrote an absurd time in every time field.
func absurdNode(t *testing.T, id, gpu string) string {
	t.Helper()
	text, err := json.Marshal(clustertest.Node(id, "ready", 7, gpu))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	fields["Drivers"] = json.RawMessage(`{"docker": {"Detected": true, "Healthy": true, "UpdateTime": ` + late + `}, "none": null}`)
	fields["Events"] = json.RawMessage(`[{"Timestamp": ` + late + `}, null]`)
	fields["DrainStrategy"] = json.RawMessage(`{"StartedAt": ` + late + `, "ForceDeadline": ` + late + `}`)
	fields["LastDrain"] = json.RawMessage(`{"StartedAt": ` + late + `}`)
	fields["CSINodePlugins"] = json.RawMessage(`{"p": {"UpdateTime": ` + late + `}}`)
	fields["CSIControllerPlugins"] = json.RawMessage(`{"p": {"UpdateTime": ` + late + `}}`)
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// absurdAlloc is an allocation whose client wrote an absurd time in every time field.
func absurdAlloc(id, gpu string) string {
	return fmt.Sprintf(`{"ID": %q, "Namespace": "default", "JobID": "job-0", "TaskGroup": "g", "NodeID": "n0", "ClientStatus": "running", "DesiredStatus": "run",
		"CreateIndex": 9, "ModifyIndex": 9, "JobVersion": 1, "Job": {"Version": 1}, "DeploymentStatus": {"Timestamp": %s},
		"TaskStates": {"t": {"State": "running", "StartedAt": %s, "FinishedAt": %s, "LastRestart": %s, "Events": [null, {"Type": "Started"}]}, "u": null},
		"AllocatedResources": {"Tasks": {"t": {"Devices": [null, {"Vendor": "nvidia", "Type": "gpu", "DeviceIDs": [%q]}]}, "u": null}}}`, id, late, late, late, late, gpu)
}

// absurd is a Nomad with odd answers: times that cannot be parsed, and entries that are null.
func absurd(t *testing.T) *Client {
	answers := map[string]string{
		"/v1/nodes":         "[null," + absurdNode(t, "n0", "A") + "," + absurdNode(t, "n1", "B") + "]",
		"/v1/node/n0":       absurdNode(t, "n0", "A"),
		"/v1/node/n1":       absurdNode(t, "n1", "B"),
		"/v1/jobs":          `[null, {"ID": "job-0", "Namespace": "default", "ModifyIndex": 7}]`,
		"/v1/allocations":   "[null," + absurdAlloc("a0", "A") + "]",
		"/v1/allocation/a0": absurdAlloc("a0", "A"), "/v1/job/job-0/allocations": "[null," + absurdAlloc("a0", "A") + "]",
		"/v1/job/job-0/evaluations": `[null, {"ID": "e", "FailedTGAllocs": {"g": null}}]`,
		"/v1/vars":                  `[null]`,
	}
	job, err := json.Marshal(clustertest.SmallJob("job-0", 7, true))
	if err != nil {
		t.Fatal(err)
	}
	answers["/v1/job/job-0"] = string(job)
	answers["/v1/job/job-0/versions"] = `{"Versions": [null, {"ID": "job-0"}, ` + string(job) + `]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := answers[r.URL.Path]; ok {
			fmt.Fprint(w, text)
			return
		}
		fmt.Fprint(w, "[]")
	}))
	t.Cleanup(server.Close)
	client, err := NewClient(&api.Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Times that cannot be parsed and null entries, in any of Nomad's answers, do no harm.
func TestAbsurdAnswers(t *testing.T) {
	client, k := absurd(t), cluster.JobKey{Namespace: "default", ID: "job-0"}
	s, err := client.Resync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if gpus := slices.Sorted(maps.Keys(s.GPUModels())); !slices.Equal(gpus, []string{"A", "B"}) {
		t.Errorf("GPUs %v; warnings %q", gpus, s.NodeWarnings())
	}
	if d := s.Nodes["n0"].Drivers["docker"]; d == nil || !d.Healthy || len(s.Nodes["n0"].Drivers) != 1 {
		t.Errorf("drivers %v", s.Nodes["n0"].Drivers)
	}
	check := func(what string, as []*cluster.Alloc) {
		t.Helper()
		if len(as) != 1 || !slices.Equal(as[0].GPUs, []string{"A"}) || len(as[0].Tasks["t"].Events) != 1 || *as[0].Version != 1 {
			t.Errorf("%s: %+v", what, as)
		}
	}
	check("allocations", s.AllocsOf(k))
	as, err := client.JobAllocs(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	check("allocations of the job", as)
	if gpus, err := client.JobGPUs(t.Context(), k); err != nil || !slices.Equal(gpus["n0"], []string{"A"}) {
		t.Errorf("the job's GPUs: %v, %v", gpus, err)
	}
	if vs, err := client.Versions(t.Context(), k); err != nil || len(vs) != 1 {
		t.Errorf("versions %v, %v", vs, err)
	}
	if es, err := client.Evaluations(t.Context(), k); err != nil || len(es) != 1 || request.Refusal(es[0].FailedTGAllocs["g"]) == "" {
		t.Errorf("evaluations %v, %v", es, err)
	}
	if vars, err := client.ListVariables(t.Context(), "x"); err != nil || len(vars) != 0 {
		t.Errorf("variables %v, %v", vars, err)
	}
}

// An event with an absurd time is read.
func TestAbsurdEvent(t *testing.T) {
	node := strings.ReplaceAll(absurdNode(t, "n0", "A"), "\n", " ")
	alloc := strings.Join(strings.Fields(absurdAlloc("a0", "A")), " ")
	es, err := eventsIn([]byte(`{"Index": 9, "Events": [{"Topic": "Node", "Type": "NodeRegistration", "Index": 9, "Payload": {"Node": ` + node + `}},
		{"Topic": "Allocation", "Type": "AllocationUpdated", "Index": 9, "Payload": {"Allocation": ` + alloc + `}}]}`))
	if err != nil || len(es) != 2 {
		t.Fatal(es, err)
	}
	s := cluster.NewState()
	for _, e := range es {
		if e.Unread != nil {
			t.Error(e.Unread)
		}
		s.Apply(e)
	}
	if s.GPUModels()["A"] == "" || len(s.Allocs["a0"].GPUs) != 1 {
		t.Errorf("nodes %v, allocations %v", s.Nodes, s.Allocs)
	}
}

// Malformed jobs and nodes are their own fault, not Nomad's, however many there are. The others are
// read.
func TestManyMalformed(t *testing.T) {
	const many = 20
	good := clustertest.Node("good", "ready", 7, "G")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/nodes":
			stubs := []api.NodeListStub{{ID: "good", ModifyIndex: 9, NodeResources: good.NodeResources}}
			for i := range many {
				stubs = append(stubs, api.NodeListStub{ID: fmt.Sprint("bad", i), ModifyIndex: 9, NodeResources: good.NodeResources})
			}
			_ = json.NewEncoder(w).Encode(stubs)
		case "/v1/node/good":
			_ = json.NewEncoder(w).Encode(good)
		case "/v1/jobs":
			stubs := []api.JobListStub{{ID: "good", Namespace: "default", ModifyIndex: 7}}
			for i := range many {
				stubs = append(stubs, api.JobListStub{ID: fmt.Sprint("bad", i), Namespace: "default", ModifyIndex: 7})
			}
			_ = json.NewEncoder(w).Encode(stubs)
		case "/v1/job/good":
			_ = json.NewEncoder(w).Encode(clustertest.SmallJob("good", 7, true))
		case "/v1/job/bad0":
			fmt.Fprint(w, `{"ID": "bad0", "Priority": "high"}`)
		case "/v1/allocations":
			fmt.Fprint(w, "[]")
		default:
			if strings.HasPrefix(r.URL.Path, "/v1/job/") {
				fmt.Fprint(w, `{"ID": "bad", "Constraints": [null]}`)
				return
			}
			fmt.Fprint(w, `{"ID": "bad", "Datacenter": 7}`)
		}
	}))
	defer server.Close()
	client, err := NewClient(&api.Config{Address: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := client.Resync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Jobs) != 1 || len(s.Unread) != many || s.GPUModels()["G"] == "" {
		t.Errorf("jobs %v, %d unread, GPUs %v", s.Jobs, len(s.Unread), s.GPUModels())
	}
}
