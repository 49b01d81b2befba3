// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// PastNomad returns a warning if tasks of a job can use GPUs that Nomad has not given them; "" if
// there are none. Such tasks share GPUs with the jobs that hold them, and nobody sees it.
func PastNomad(job *api.Job) string {
	var found []string
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			for _, how := range pastNomad(t) {
				found = append(found, fmt.Sprintf("task %q has %s", t.Name, how))
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("The job can use GPUs that belong to other jobs, because Nomad does not know of it: %s. Request GPUs with a device block instead.", strings.Join(found, "; "))
}

// pastNomad returns the settings of a task through which it sees GPUs besides those of its device
// block. Plugins for storage are privileged, and use no GPUs.
func pastNomad(t *api.Task) (how []string) {
	all := t.Env["NVIDIA_VISIBLE_DEVICES"]
	switch all {
	case "", "none", "void":
	default:
		if len(rewrite.GPURequests(t)) == 0 && !strings.Contains(all, "${") {
			how = append(how, fmt.Sprintf("NVIDIA_VISIBLE_DEVICES = %q without a device block", all))
		}
	}
	yes, _ := t.Config["privileged"].(bool)
	if yes && t.CSIPluginConfig == nil {
		how = append(how, "privileged = true")
	}
	for _, d := range blocksOf(t.Config["devices"]) {
		path, _ := d["host_path"].(string)
		if strings.HasPrefix(path, "/dev/nvidia") || strings.HasPrefix(path, "/dev/dri") || path == "/dev" {
			how = append(how, "the device file "+path)
		}
	}
	return how
}

// blocksOf returns the blocks of a driver's configuration, in the forms of a jobspec and of Nomad's API.
func blocksOf(v any) (blocks []map[string]any) {
	switch v := v.(type) {
	case []map[string]any:
		return v
	case map[string]any:
		return []map[string]any{v}
	case []any:
		for _, one := range v {
			blocks = append(blocks, blocksOf(one)...)
		}
	}
	return blocks
}
