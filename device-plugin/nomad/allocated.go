// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// allocatedWithin is the maximum total time of the requests of [Options.Allocated].
const allocatedWithin = 20 * time.Second

// Allocated asks Nomad which of these GPUs of this machine are allocated, in whole or in part. The
// result maps the GPUs' ids to texts such as "job "j" in namespace "n"". At some moment after the
// call began, Nomad reported all other GPUs as free. An error means that Nomad's answer would prove
// nothing: the agent is not this machine's client, its node is not ready, or the token does not see
// all allocations.
func (o Options) Allocated(ctx context.Context, gpus []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, allocatedWithin)
	defer cancel()
	client, err := o.client("")
	if err != nil {
		return nil, err
	}
	defer client.Close()
	q := (&api.QueryOptions{}).WithContext(ctx)
	if err := o.authenticate(client); err != nil {
		return nil, err
	}
	held, err := allocated(client, q, gpus)
	if err != nil {
		return nil, fmt.Errorf("asking Nomad at %s which allocations have GPUs: %w", client.Address(), err)
	}
	return held, nil
}

func allocated(client *api.Client, q *api.QueryOptions, gpus []string) (map[string]string, error) {
	node, err := localNode(client, q)
	if err != nil {
		return nil, err
	}
	if err := knows(node, gpus); err != nil {
		return nil, err
	}
	if err := seesAll(client, q); err != nil {
		return nil, err
	}
	allocs, _, err := client.Nodes().Allocations(node.ID, q)
	if err != nil {
		return nil, fmt.Errorf("listing the allocations of node %q: %w", node.Name, err)
	}
	held := map[string]string{}
	for _, a := range allocs {
		for _, instance := range gpusOf(a) {
			id := attr.GPUOf(instance)
			if slices.Contains(gpus, id) {
				held[id] = fmt.Sprintf("job %q in namespace %q", a.JobID, a.Namespace)
			}
		}
	}
	return held, nil
}

// localNode returns the node of the agent that the client asks.
func localNode(client *api.Client, q *api.QueryOptions) (*api.Node, error) {
	var self api.AgentSelf
	if _, err := client.Raw().Query("/v1/agent/self", &self, q); err != nil {
		return nil, fmt.Errorf("asking the agent for its node: %w", err)
	}
	id := self.Stats["client"]["node_id"]
	if id == "" {
		return nil, errors.New("this agent is not a Nomad client, but the address must be that of the agent on this machine")
	}
	node, _, err := client.Nodes().Info(id, q)
	if err != nil {
		return nil, fmt.Errorf("reading node %q: %w", id, err)
	}
	if node.Status != api.NodeStatusReady {
		return nil, fmt.Errorf("node %q is %s, so the servers may not know what runs on the node", node.Name, node.Status)
	}
	return node, nil
}

// knows returns an error if the node does not have the GPUs. Without these GPUs, the node's
// allocations prove nothing.
func knows(node *api.Node, gpus []string) error {
	has := map[string]bool{}
	if node.NodeResources != nil {
		for _, d := range node.NodeResources.Devices {
			for _, i := range d.Instances {
				has[attr.GPUOf(i.ID)] = true
			}
		}
	}
	for _, id := range gpus {
		if !has[id] {
			return fmt.Errorf("node %q has no GPU %q", node.Name, id)
		}
	}
	return nil
}

// gpusOf returns the devices that an allocation still holds. Tasks of a failed allocation may still
// run. After a lost allocation's node is ready again, the tasks keep running until the client stops
// them.
func gpusOf(a *api.Allocation) (ids []string) {
	if a.AllocatedResources == nil {
		return nil
	}
	over := a.ClientStatus == api.AllocClientStatusComplete || a.ClientStatus == api.AllocClientStatusFailed ||
		a.ClientStatus == api.AllocClientStatusLost
	for name, task := range a.AllocatedResources.Tasks {
		state := a.TaskStates[name]
		if over && (state == nil || state.State == "dead") {
			continue
		}
		for _, d := range task.Devices {
			ids = append(ids, d.DeviceIDs...)
		}
	}
	return ids
}

// policyRules is the part of a policy, as parsed by Nomad, that says which jobs a token can read.
type policyRules struct {
	RulesJSON *struct {
		Namespaces []struct {
			Name         string
			Capabilities []string // includes the capabilities that the policy's short form stands for
		}
	}
}

// seesAll returns nil if the token can read the jobs of every namespace. Nomad silently leaves out
// allocations that a token cannot read.
func seesAll(client *api.Client, q *api.QueryOptions) error {
	self, _, err := client.ACLTokens().Self(q)
	if unexpected, ok := errors.AsType[api.UnexpectedResponseError](err); ok &&
		strings.Contains(unexpected.Body(), "ACL support disabled") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the token itself: %w", err)
	}
	if self.Type == "management" || self.AccessorID == "acls-disabled" {
		return nil
	}
	policies := slices.Clone(self.Policies)
	for _, link := range self.Roles {
		role, _, err := client.ACLRoles().Get(link.ID, q)
		if err != nil {
			return fmt.Errorf("reading the token's role %q: %w", link.Name, err)
		}
		for _, p := range role.Policies {
			policies = append(policies, p.Name)
		}
	}
	capabilities := map[string][]string{} // by namespace or namespace pattern
	for _, name := range policies {
		var p policyRules
		if _, err := client.Raw().Query("/v1/acl/policy/"+url.PathEscape(name), &p, q); err != nil {
			return fmt.Errorf("reading the token's policy %q: %w", name, err)
		}
		if p.RulesJSON == nil {
			continue
		}
		for _, n := range p.RulesJSON.Namespaces {
			capabilities[n.Name] = append(capabilities[n.Name], n.Capabilities...)
		}
	}
	return readsEverywhere(capabilities)
}

// readsEverywhere returns nil if these capabilities allow reading the jobs of all namespaces. The
// most specific name decides, so a name without the capability takes precedence over "*".
func readsEverywhere(capabilities map[string][]string) error {
	if capabilities["*"] == nil {
		capabilities["*"] = []string{}
	}
	for _, name := range slices.Sorted(maps.Keys(capabilities)) {
		has := capabilities[name]
		if !slices.Contains(has, "read-job") || slices.Contains(has, "deny") {
			return fmt.Errorf("the token cannot read the jobs of all namespaces: "+
				"its policy needs namespace %q { capabilities = [\"read-job\"] }", name)
		}
	}
	return nil
}
