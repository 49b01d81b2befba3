// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestPlacerShares: jobs on parts of GPUs. One node has three equal GPUs; the first two have
// three parts each.
func TestPlacerShares(t *testing.T) {
	t.Parallel()
	b := newBedOf(t, inventoriesOf(sharedScores), cluster.Options{}, func(c *cluster.Client) {
		c.PluginHCL += fmt.Sprintf("\nsharing {\n  replicas = 3\n  gpus = [%q, %q]\n}\n", gpu(0, 0), gpu(0, 1))
	})
	b.tell([]scene{
		{"neighbours", "", testNeighbours},
	})
	b.tellLong([]scene{
		{"a fault takes all parts", "", testFaultOfParts},
	})
}

var sharedScores = [][]float64{{1, 1, 1}}

// part is a job whose members request one part each.
func part(id, meta string, members int) job {
	j := gang(id, members, 1)
	j.groups[0].device, j.meta = "nvidia/gpu.shared", meta
	return j
}

// gpuOfID is the GPU of a part.
func gpuOfID(id string) string {
	gpu, _, _ := strings.Cut(id, "::")
	return gpu
}

// gpusOfIDs are the GPUs of sorted parts, each once.
func gpusOfIDs(parts []string) (gpus []string) {
	for _, id := range parts {
		gpus = append(gpus, gpuOfID(id))
	}
	return slices.Compact(gpus)
}

// gpuOfPart runs a job on one part, and returns the GPU.
func (b *bed) gpuOfPart(j job) string {
	b.t.Helper()
	got := b.runs(j, 1)[0]
	if gpuOfID(got) == got {
		b.t.Fatalf("job %s runs on %s, which is not a part", j.id, got)
	}
	return gpuOfID(got)
}

// A service whose members need each other takes an idle GPU first, then the best neighbour. explain shows both sides what the
// neighbour costs them. Each member of a gang takes a GPU of its own. A job that requests whole
// GPUs gets no parts.
func testNeighbours(t *testing.T, b *bed) {
	service := func(id, class string) job {
		j := part(id, fmt.Sprintf("pal_class = %q\npal_on_failure = \"gang\"", class), 1)
		j.kind = "service"
		return j
	}
	calm, busy := b.gpuOfPart(service("calm", "D")), b.gpuOfPart(service("busy", "A"))
	if calm == busy {
		t.Errorf("both services are on %s, though another GPU is idle", calm)
	}
	same(t, "the GPU of the better neighbour", calm, b.gpuOfPart(service("guest", "A")))
	// According to the table of neighbours, A runs at 0.76 of its speed beside D, and D at 0.63
	// beside A.
	b.untilNeighbour("guest", calm, "D", "32 %", "59 %")
	b.untilSays("gpus -live -job guest", " 0%") // gpus -live shows the GPU's statistics
	b.run(gang("whole", 1, 2).hcl())
	b.untilWaits("whole", "the cluster has 1 that match")
	same(t, "the GPU that is not shared", []string{gpu(0, 2)}, b.runs(gang("whole", 1, 1), 1))
	same(t, "the GPUs of a gang", []string{gpu(0, 0), gpu(0, 1)}, gpusOfIDs(b.runs(part("pair", "", 2), 2)))
	b.purge("calm", "busy", "guest", "whole", "pair")
}

// untilNeighbour waits until explain has a line for one neighbour: its GPU, its class, and what
// each side loses.
func (b *bed) untilNeighbour(id, gpu, class, costs, costsThem string) {
	b.t.Helper()
	part := "node-" + strings.Replace(strings.TrimPrefix(gpu, "GPU-"), "-", ":", 1) + `::\d` // GPU-0-1 is node-0:1
	line := regexp.MustCompile(strings.Join([]string{`(?m)^\s*workers`, part, "1", class, costs, "the table", costsThem + `\s*$`}, `\s+`))
	b.until("explain "+id+" has the line "+line.String(), func() string {
		if out, _ := b.pal("explain", "-verbose", id); !line.MatchString(out) {
			return out
		}
		return ""
	})
}

// A fault makes all parts of a GPU unhealthy: jobs there keep running, and none starts there. In
// quarantine, too, no part is used.
func testFaultOfParts(t *testing.T, b *bed) {
	const apart = "the job's members must not share a GPU"
	on := b.gpuOfPart(part("first", "", 1))
	b.untilRunning("first", 1) // the task must start before its GPU becomes unhealthy
	b.inventory(0, sharedScores[0], map[int]bool{slices.Index([]string{gpu(0, 0), gpu(0, 1)}, on): true})
	b.untilUnhealthy(3)
	b.run(part("pair", "", 2).hcl())
	b.untilWaits("pair", apart)
	if got := b.gpuOfPart(part("second", "", 1)); got == on {
		t.Errorf("a job started on %s, which is unhealthy", on)
	}
	if got := b.gpusOf("first"); len(got) != 1 || gpuOfID(got[0]) != on {
		t.Errorf("the job on the unhealthy GPU has moved to %v", got)
	}
	if out, code := b.pal("quarantine", "-reason", "its fan is replaced", on+"::1"); code != 0 {
		t.Errorf("quarantine: exit code %d: %s", code, out)
	}
	b.inventory(0, sharedScores[0], nil)
	b.untilUnhealthy(0)
	b.untilSays("status", "3 quarantined")
	b.untilWaits("pair", apart)
	if out, code := b.pal("quarantine", "-lift", on); code != 0 {
		t.Errorf("quarantine -lift: exit code %d: %s", code, out)
	}
	same(t, "the GPUs of a gang", []string{gpu(0, 0), gpu(0, 1)}, gpusOfIDs(b.untilGPUs("pair", 2)))
	b.purge("first", "second", "pair")
}
