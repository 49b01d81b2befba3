// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rpc

import (
	"fmt"

	"github.com/hashicorp/nomad/api"
)

// transfer puts the constraints and affinities of from into the generic job,
// and leaves everything else as it is. Groups, tasks and devices must be the
// same in both, in the same order.
func transfer(to map[string]any, from *api.Job) error {
	to["Constraints"] = constraints(from.Constraints)
	groups, err := list(to, "TaskGroups", len(from.TaskGroups))
	if err != nil {
		return err
	}
	for i, g := range from.TaskGroups {
		if err := transferGroup(groups[i], g); err != nil {
			return err
		}
	}
	return nil
}

func transferGroup(to map[string]any, from *api.TaskGroup) error {
	if to["Name"] != *from.Name {
		return fmt.Errorf("group %q is %v on the server", *from.Name, to["Name"])
	}
	to["Constraints"], to["Affinities"] = constraints(from.Constraints), affinities(from.Affinities)
	tasks, err := list(to, "Tasks", len(from.Tasks))
	if err != nil {
		return err
	}
	for i, t := range from.Tasks {
		if tasks[i]["Name"] != t.Name {
			return fmt.Errorf("task %q is %v on the server", t.Name, tasks[i]["Name"])
		}
		if t.Resources == nil || len(t.Resources.Devices) == 0 {
			continue
		}
		if err := transferDevices(tasks[i], t); err != nil {
			return fmt.Errorf("task %q: %w", t.Name, err)
		}
	}
	return nil
}

func transferDevices(to map[string]any, from *api.Task) error {
	resources, ok := to["Resources"].(map[string]any)
	if !ok {
		return fmt.Errorf("the server's job has no resources")
	}
	devices, err := list(resources, "Devices", len(from.Resources.Devices))
	if err != nil {
		return err
	}
	for i, d := range from.Resources.Devices {
		if devices[i]["Name"] != d.Name {
			return fmt.Errorf("device %q is %v on the server", d.Name, devices[i]["Name"])
		}
		devices[i]["Constraints"], devices[i]["Affinities"] = constraints(d.Constraints), affinities(d.Affinities)
	}
	return nil
}

// list is the list of maps under a key.
func list(m map[string]any, key string, want int) ([]map[string]any, error) {
	values, _ := m[key].([]any)
	if len(values) != want {
		return nil, fmt.Errorf("the server's job has %d %s, want %d", len(values), key, want)
	}
	out := make([]map[string]any, want)
	for i, v := range values {
		e, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s of the server's job holds a %T", key, v)
		}
		out[i] = e
	}
	return out, nil
}

func constraints(cs []*api.Constraint) []map[string]any {
	var out []map[string]any
	for _, c := range cs {
		out = append(out, map[string]any{"LTarget": c.LTarget, "RTarget": c.RTarget, "Operand": c.Operand})
	}
	return out
}

func affinities(as []*api.Affinity) []map[string]any {
	var out []map[string]any
	for _, a := range as {
		weight := int8(50) // Nomad's default
		if a.Weight != nil {
			weight = *a.Weight
		}
		out = append(out, map[string]any{"LTarget": a.LTarget, "RTarget": a.RTarget, "Operand": a.Operand, "Weight": weight})
	}
	return out
}
