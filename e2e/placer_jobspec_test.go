// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"cmp"
	"fmt"
	"strings"
)

// job is a jobspec with groups of count × gpus that sleep.
type job struct {
	id, kind, meta, extra string
	groups                []group
	seconds               int
	script                string // run instead of sleep
}

type group struct {
	name        string
	count, gpus int
	extra       string
	device      string // empty: "nvidia/gpu"
	wants       string // more lines of the device block
	kill        string // kill_timeout of the members
}

func (j job) hcl() string {
	if j.kind == "" {
		j.kind = "batch"
	}
	if j.kind == "service" {
		j.extra += "\n  update {\n    min_healthy_time = \"100ms\"\n  }" // by default, Nomad waits for 10 s
	}
	if j.seconds == 0 {
		j.seconds = 3600
	}
	var s strings.Builder
	fmt.Fprintf(&s, "job %q {\n  type = %q\n  %s\n  meta {\n    %s\n  }\n", j.id, j.kind, j.extra, j.meta)
	logs := ""
	if !strings.Contains(j.script, "echo ") { // without logs, because Nomad starts a process per task for them
		logs = "logs {\n        disabled = true\n      }"
	}
	for _, g := range j.groups {
		fmt.Fprintf(&s, `
  group %q {
    count = %d
    %s
    ephemeral_disk {
      size = 110
    }
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", %q]
      }
      kill_timeout = %q
      %s
      resources {
        cpu    = 10
        memory = 10
        device %q {
          count = %d
          %s
        }
      }
    }
  }
`, g.name, g.count, g.extra, cmp.Or(j.script, fmt.Sprintf("exec sleep %d", j.seconds)), cmp.Or(g.kill, "1s"), logs, cmp.Or(g.device, "nvidia/gpu"), g.gpus, g.wants)
	}
	s.WriteString("}\n")
	return s.String()
}

func gang(id string, count, gpus int) job {
	return job{id: id, groups: []group{{name: "workers", count: count, gpus: gpus}}}
}
