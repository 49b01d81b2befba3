// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Two elastic jobs that differ only in their least number of members do not share an entry of the
// cache if a distinct_property limits the members.
func TestEligibilityKeyOfElasticJobs(t *testing.T) {
	key := func(least string) string {
		job, err := jobspec2.Parse("j.hcl", strings.NewReader(strings.NewReplacer("LEAST", least).Replace(`job "j" {
  type = "batch"
  meta { pal_elastic = "true" }
  group "g" {
    count = 4
    scaling {
      min = LEAST
      max = 4
    }
    constraint {
      operator  = "distinct_property"
      attribute = "${meta.rack}"
    }
    task "t" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {}
      }
    }
  }
}`)))
		if err != nil {
			t.Fatal(err)
		}
		job.Canonicalize()
		if e, ok := rewrite.ElasticOf(job); !ok || e.Least == 0 {
			t.Fatal("the job is not elastic")
		}
		a, err := gpuRequestOf(job.TaskGroups[0])
		if err != nil {
			t.Fatal(err)
		}
		return eligibilityKey(job, a)
	}
	if key("1") == key("3") {
		t.Error("min = 1 and min = 3 share a key")
	}
}
