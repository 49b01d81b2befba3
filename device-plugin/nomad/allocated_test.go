// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// books are the answers of a Nomad, by path; any other path is refused.
type books map[string]any

func (b books) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, ok := b[r.URL.Path]
	switch text, refused := answer.(string); {
	case !ok:
		http.Error(w, "Permission denied", http.StatusForbidden)
	case refused:
		http.Error(w, text, http.StatusBadRequest)
	default:
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			panic(err)
		}
	}
}

// alloc returns an allocation with a GPU in its only task.
func alloc(gpu, client, task string) *api.Allocation {
	a := &api.Allocation{JobID: "train", Namespace: "ml", ClientStatus: client,
		AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{
			"t": {Devices: []*api.AllocatedDeviceResource{{Vendor: "nvidia", DeviceIDs: []string{gpu}}}}, "none": {}}}}
	if task != "" {
		a.TaskStates = map[string]*api.TaskState{"t": {State: task}}
	}
	return a
}

// namespaces returns a policy as Nomad answers it: capabilities by namespace.
func namespaces(of map[string][]string) any {
	var p struct {
		RulesJSON struct {
			Namespaces []map[string]any
		}
	}
	for name, has := range of {
		p.RulesJSON.Namespaces = append(p.RulesJSON.Namespaces, map[string]any{"Name": name, "Capabilities": has})
	}
	return p
}

// ready is a Nomad without access control, whose node has two GPUs.
func ready() books {
	return books{
		"/v1/agent/self": api.AgentSelf{Stats: map[string]map[string]string{"client": {"node_id": "n1"}}},
		"/v1/node/n1": api.Node{ID: "n1", Name: "gpu-7", Status: "ready", NodeResources: &api.NodeResources{
			Devices: []*api.NodeDeviceResource{{Instances: []*api.NodeDevice{{ID: "GPU-a"}, {ID: "GPU-b"}}}}}},
		"/v1/node/n1/allocations": []*api.Allocation{},
		"/v1/acl/token/self":      "ACL support disabled",
	}
}

// Nomad's answer is a proof only if the node is this machine's and ready, and the token
// sees every allocation: Nomad leaves out those in namespaces that the token may not read.
func TestAllocated(t *testing.T) {
	const held = `job "train" in namespace "ml"`
	token := func(policies ...string) api.ACLToken { return api.ACLToken{Type: "client", Policies: policies} }
	for _, tc := range []struct {
		name  string
		books func(books)
		want  map[string]string
		err   string
	}{
		{"nothing runs", func(books) {}, map[string]string{}, ""},
		{"another GPU is used", func(b books) { b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-c", "running", "running")} }, map[string]string{}, ""},
		{"running", func(b books) { b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-a", "running", "running")} }, map[string]string{"GPU-a": held}, ""},
		{"a part of it", func(b books) {
			b["/v1/node/n1"] = api.Node{ID: "n1", Name: "gpu-7", Status: "ready", NodeResources: &api.NodeResources{
				Devices: []*api.NodeDeviceResource{{Instances: []*api.NodeDevice{{ID: "GPU-a::0"}, {ID: "GPU-a::1"}, {ID: "GPU-b"}}}}}}
			b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-a::1", "running", "running")}
		}, map[string]string{"GPU-a": held}, ""},
		{"placed, not started", func(b books) { b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-b", "pending", "")} }, map[string]string{"GPU-b": held}, ""},
		{"its node was away", func(b books) { b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-b", "unknown", "running")} }, map[string]string{"GPU-b": held}, ""},
		{"failed, its task ends", func(b books) { b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-a", "failed", "running")} }, map[string]string{"GPU-a": held}, ""},
		{"lost, its node is back before its task has ended", func(b books) { b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-a", "lost", "running")} }, map[string]string{"GPU-a": held}, ""},
		{"over", func(b books) {
			b["/v1/node/n1/allocations"] = []*api.Allocation{alloc("GPU-a", "failed", "dead"), alloc("GPU-a", "complete", "dead"), alloc("GPU-b", "lost", ""), alloc("GPU-b", "failed", "")}
		}, map[string]string{}, ""},
		{"a server", func(b books) { b["/v1/agent/self"] = api.AgentSelf{} }, nil, "this agent is not a Nomad client"},
		{"the node is down", func(b books) { b["/v1/node/n1"] = api.Node{Name: "gpu-7", Status: "down"} }, nil, `node "gpu-7" is down`},
		{"another machine's agent", func(b books) { b["/v1/node/n1"] = api.Node{Name: "gpu-8", Status: "ready"} }, nil, `node "gpu-8" has no GPU "GPU-a"`},
		{"no right to the agent", func(b books) { delete(b, "/v1/agent/self") }, nil, "Permission denied"},
		{"no right to the node's allocations", func(b books) { delete(b, "/v1/node/n1/allocations") }, nil, "listing the allocations"},
		{"a management token", func(b books) { b["/v1/acl/token/self"] = api.ACLToken{Type: "management"} }, map[string]string{}, ""},
		{"a token of another cluster", func(b books) { delete(b, "/v1/acl/token/self") }, nil, "Permission denied"},
		{"reads all", func(b books) {
			b["/v1/acl/token/self"] = token("a", "b")
			b["/v1/acl/policy/a"] = namespaces(map[string][]string{"*": {"read-job"}, "default": {"list-jobs"}})
			b["/v1/acl/policy/b"] = namespaces(map[string][]string{"default": {"read-job"}})
		}, map[string]string{}, ""},
		{"reads one", func(b books) {
			b["/v1/acl/token/self"] = token("a")
			b["/v1/acl/policy/a"] = namespaces(map[string][]string{"default": {"read-job"}})
		}, nil, `its policy needs namespace "*" { capabilities = ["read-job"] }`},
		{"reads all but one", func(b books) {
			b["/v1/acl/token/self"] = token("a")
			b["/v1/acl/policy/a"] = namespaces(map[string][]string{"*": {"read-job"}, "secret-*": {"deny"}})
		}, nil, `its policy needs namespace "secret-*"`},
		{"variables only, in one", func(b books) {
			b["/v1/acl/token/self"] = token("a")
			b["/v1/acl/policy/a"] = namespaces(map[string][]string{"*": {"read-job"}, "default": nil})
		}, nil, `its policy needs namespace "default"`},
		{"by a role", func(b books) {
			b["/v1/acl/token/self"] = api.ACLToken{Type: "client", Roles: []*api.ACLTokenRoleLink{{ID: "r1", Name: "plugins"}}}
			b["/v1/acl/role/r1"] = api.ACLRole{Policies: []*api.ACLRolePolicyLink{{Name: "a"}}}
			b["/v1/acl/policy/a"] = namespaces(map[string][]string{"*": {"read-job"}})
		}, map[string]string{}, ""},
		{"a policy that cannot be read", func(b books) { b["/v1/acl/token/self"] = token("a") }, nil, `reading the token's policy "a"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := ready()
			tc.books(b)
			server := httptest.NewServer(b)
			defer server.Close()
			got, err := Options{Address: server.URL}.Allocated(t.Context(), []string{"GPU-a", "GPU-b"})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), server.URL) {
					t.Errorf("error %v, want %q of %s", err, tc.err, server.URL)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// The token is read from the file for each call, and sent with every request.
func TestAllocatedUsesTheTokenOfTheFile(t *testing.T) {
	b, seen := ready(), map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen[r.Header.Get("X-Nomad-Token")] = true
		b.ServeHTTP(w, r)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "token")
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		clear(seen)
		if _, err := (Options{Address: server.URL, TokenFile: path}).Allocated(t.Context(), []string{"GPU-a"}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]bool{token: true}, seen); diff != "" {
			t.Errorf("tokens of the requests (-want +got)\n%s", diff)
		}
	}
	if _, err := (Options{TokenFile: path + "x"}).Allocated(t.Context(), nil); err == nil || !strings.Contains(fmt.Sprint(err), "reading the Nomad token") {
		t.Errorf("without the file: %v", err)
	}
}
