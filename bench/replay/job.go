// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"math"
	"strings"
	"text/template"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Job is one job of a run.
type Job struct {
	ID          string
	Model       string // the trace's application
	Class       pal.AppClass
	Allocations int
	GPUsEach    int
	Submit      time.Duration // time after the start of the run
	Iterations  int
	Iteration   time.Duration // duration on median GPUs of one node
	Preempt     bool          // may be stopped and restarted
	// App is the application, if its speeds differ by GPU model (see [GPUs.Apps]), otherwise "".
	App string `json:",omitempty"`
	// Speed is the author's hint about these speeds (pal_speed). Only is the GPU model to which the
	// job is restricted. Both may be "".
	Speed string `json:",omitempty"`
	Only  string `json:",omitempty"`
}

// GPUs returns the size of the gang.
func (j Job) GPUs() int { return j.Allocations * j.GPUsEach }

// Work returns the run time on median GPUs of one node.
func (j Job) Work() time.Duration { return time.Duration(j.Iterations) * j.Iteration }

// Compression maps a trace to a run that takes minutes.
type Compression struct {
	Arrivals float64 // submission times are divided by this
	Work     float64 // the work is divided by this
	// Shortest and Longest limit the compressed work. A run must state these limits, because the
	// work in the traces spans four orders of magnitude.
	Shortest, Longest time.Duration
	Iteration         time.Duration
	MaxGPUs           int // wider jobs are reduced to this
	GPUsPerNode       int
	// OneGPUUpTo is the size up to which gangs have allocations with one GPU each. Wider gangs have
	// the largest allocations of equal size that fit on a node.
	OneGPUUpTo int
}

// FromTrace converts a trace's jobs into jobs of a run.
func FromTrace(t trace.Trace, c Compression) []Job {
	var jobs []Job
	for _, j := range t.Jobs {
		work := time.Duration(j.WorkS() / c.Work * float64(time.Second))
		work = min(max(work, c.Shortest), c.Longest)
		n := min(j.GPUs, c.MaxGPUs)
		each := c.each(n)
		jobs = append(jobs, Job{
			ID: fmt.Sprintf("%s-%s", strings.ReplaceAll(strings.ToLower(j.Name), "×", "-"), j.ID), Model: j.Name, Class: j.Class,
			Allocations: n / each, GPUsEach: each,
			Submit:     time.Duration(j.SubmitS / c.Arrivals * float64(time.Second)),
			Iterations: int(math.Ceil(float64(work) / float64(c.Iteration))), Iteration: c.Iteration,
		})
	}
	return jobs
}

// each returns the number of GPUs of each allocation, for a gang of n GPUs.
func (c Compression) each(n int) int {
	if n <= c.OneGPUUpTo {
		return 1
	}
	for k := c.GPUsPerNode; k > 1; k-- {
		if n%k == 0 {
			return k
		}
	}
	return 1
}

// jobspec is the template of a jobspec, as a user would write it.
var jobspec = template.Must(template.New("job").Parse(`job "{{.Job.ID}}" {
  type = "batch"
  meta {
    pal_class = "{{.Job.Class}}"
{{- if .Job.Preempt}}
    pal_preempt = "true"
{{- end}}
{{- if .Job.Speed}}
    pal_speed = "{{.Job.Speed}}"
{{- end}}
  }
  group "ranks" {
    count = {{.Job.Allocations}}
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      delay          = "5s"
      delay_function = "constant"
      unlimited      = true
      attempts       = 0
      interval       = "0s"
    }
    disconnect {
      lost_after = "1h"
    }
    ephemeral_disk {
      size = 10
    }
    task "rank" {
      driver       = "{{.Driver}}"
      kill_timeout = "2s"
      config {
        command = "{{.Rank}}"
        args    = ["-rendezvous", "{{.Rendezvous}}", "-speeds", "{{.Speeds}}"]
      }
      env {
        PAL_NODE = "${node.unique.name}"
      }
      logs {
        disabled      = true
        max_files     = 1
        max_file_size = 1
      }
      resources {
        cpu    = 50
        memory = 32
        device "nvidia/gpu" {
          count = {{.Job.GPUsEach}}
{{- if .Job.Only}}
          constraint {
            attribute = "${device.model}"
            value     = "{{.Job.Only}}"
          }
{{- end}}
        }
      }
    }
  }
}
`))
