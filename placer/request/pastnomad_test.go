// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"
)

// A job that takes GPUs past Nomad is named, as its author wrote it and as Nomad returns it.
func TestPastNomad(t *testing.T) {
	const gpu = `resources {
  device "nvidia/gpu" {}
}
`
	for _, c := range []struct{ name, task, says string }{
		{"nothing", `config { image = "a" }`, ""},
		{"a device block", gpu, ""},
		{"all by the environment", `env { NVIDIA_VISIBLE_DEVICES = "all" }`, `task "t" has NVIDIA_VISIBLE_DEVICES = "all" without a device block`},
		{"one by the environment", `env { NVIDIA_VISIBLE_DEVICES = "0" }`, `NVIDIA_VISIBLE_DEVICES = "0"`},
		{"none by the environment", `env { NVIDIA_VISIBLE_DEVICES = "void" }`, ""},
		{"with a device block, Nomad sets it", `env { NVIDIA_VISIBLE_DEVICES = "all" }` + "\n" + gpu, ""},
		{"privileged", `config { privileged = true }`, "privileged = true"},
		{"privileged with a device block", `config { privileged = true }` + "\n" + gpu, "privileged = true"},
		{"not privileged", `config { privileged = false }`, ""},
		{"a storage plugin", `config { privileged = true }
csi_plugin {
  id   = "nfs"
  type = "node"
}`, ""},
		{"a device file", `config { devices = [{ host_path = "/dev/nvidia0" }, { host_path = "/dev/infiniband" }] }`, "the device file /dev/nvidia0"},
		{"another device file", `config { devices = [{ host_path = "/dev/infiniband" }] }`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			job, err := jobspec2.Parse("job.hcl", strings.NewReader("job \"j\" {\ngroup \"g\" {\ntask \"t\" {\ndriver = \"docker\"\n"+c.task+"\n}\n}\n}\n"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			var stored api.Job
			if err := json.Unmarshal(text, &stored); err != nil {
				t.Fatal(err)
			}
			for form, j := range map[string]*api.Job{"as written": job, "as stored": &stored} {
				if got := PastNomad(j); !strings.Contains(got, c.says) || (got == "") != (c.says == "") {
					t.Errorf("%s: %q", form, got)
				}
			}
		})
	}
}
