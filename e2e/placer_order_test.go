// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestPlacerOrder: what decides, besides its size, when a job starts: tenants, windows,
// other jobs.
func TestPlacerOrder(t *testing.T) {
	t.Parallel()
	equal := []float64{1, 1, 1, 1} // so that no job waits for better GPUs
	b := newBed(t, [][]float64{equal, equal}, cluster.Options{})
	for _, namespace := range []string{"research", "product"} {
		if _, err := b.API().Namespaces().Register(&api.Namespace{Name: namespace}, nil); err != nil {
			t.Fatal(err)
		}
	}
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	b.tell([]scene{
		{"usage outlives the placer", "queue {\n  fair_share = true\n}\n", testUsage},
		{"window", fmt.Sprintf("window \"kernel\" {\n  start = %q\n  duration = \"1h\"\n  nodes = [\"node-1\"]\n}\n", soon), testWindow},
		{"after other jobs", "", testAfter},
		{"array", b.nomadBlock(), testArray},
	})
	b.tellLong([]scene{
		{"quota comes back", "queue {\n  restart_cost = \"0s\"\n}\ntenant \"lab/research\" {\n  quota = 4\n}\ntenant \"lab/product\" {\n  quota = 4\n}\n", testReclaim},
	})
}

// of is a gang in a namespace.
func of(namespace string, j job) string {
	j.extra += fmt.Sprintf("\n  namespace = %q", namespace)
	return j.hcl()
}

// tenants are the GPUs that each tenant holds.
func (b *bed) tenants() map[string]int {
	b.t.Helper()
	out, _ := b.pal("status", "-json")
	var status struct {
		Tenants []struct {
			Tenant string
			GPUs   int
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	held := map[string]int{}
	for _, t := range status.Tenants {
		held[t.Tenant] = t.GPUs
	}
	return held
}

func (b *bed) untilTenants(what string, want map[string]int) {
	b.t.Helper()
	b.until(what, func() string {
		held := b.tenants()
		for tenant, gpus := range want {
			if held[tenant] != gpus {
				return fmt.Sprint(held)
			}
		}
		return ""
	})
}

// sweep purges the jobs of all namespaces.
func (b *bed) sweep() {
	b.t.Helper()
	for _, namespace := range []string{"default", "research", "product"} {
		w := &api.WriteOptions{Namespace: namespace}
		stubs, _, err := b.API().Jobs().List(&api.QueryOptions{Namespace: namespace})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, s := range stubs {
			if _, _, err := b.API().Jobs().Deregister(s.ID, true, w); err != nil && !strings.Contains(err.Error(), "job not found") {
				b.t.Fatal(err)
			}
		}
	}
	b.untilSays("status", " 8 free")
}

// A tenant gets back the GPUs that it lent when it needs them, from gangs that may be stopped.
func testReclaim(t *testing.T, b *bed) {
	for i := range 2 {
		j := gang(fmt.Sprint("borrows-", i), 1, 4)
		j.meta = `pal_preempt = "true"`
		b.run(of("product", j))
	}
	b.untilTenants("product borrows", map[string]int{"lab/product": 8, "lab": 8})
	b.says("status", "Borrowed") // the tenants
	b.run(of("research", gang("mine", 1, 4)))
	b.untilTenants("research has its quota", map[string]int{"lab/product": 4, "lab/research": 4})
	b.says("queue", "borrows-") // the stopped gang
	b.sweep()
}

// A namespace's past usage counts against it, under the next placer, too.
func testUsage(t *testing.T, b *bed) {
	b.run(of("product", gang("long", 2, 4)))
	b.untilTenants("product runs", map[string]int{"product": 8})
	<-time.After(5 * time.Second)
	b.stopAgent()
	b.purgeIn("product", "long")
	b.fillIdle()
	b.startAgent("nomad-pal")
	b.run(of("product", gang("again", 2, 4)))
	b.run(of("research", gang("first", 2, 4)))
	b.until("explain says who has used what", func() string {
		out, _ := b.pal("explain", "-verbose", "-namespace", "product", "again")
		// 8 GPUs for some seconds; the number of seconds depends on the machine.
		if !strings.Contains(out, "fair share: tenant product has used 0.") || strings.Contains(out, "has used 0.00") {
			return out
		}
		return ""
	})
	b.purge("idle")
	b.untilTenants("the tenant that has used less is first", map[string]int{"research": 8})
	b.sweep()
}

// purgeIn purges a job of a namespace.
func (b *bed) purgeIn(namespace, id string) {
	b.t.Helper()
	if _, _, err := b.API().Jobs().Deregister(id, true, &api.WriteOptions{Namespace: namespace}); err != nil {
		b.t.Fatal(err)
	}
}

// fillIdle lets plain Nomad give all GPUs to a job without a gate.
func (b *bed) fillIdle() {
	b.t.Helper()
	job := b.parse(gang("idle", 2, 4).hcl())
	job.Constraints = nil
	register(b.t, b.Cluster, job)
	b.until("all GPUs are in use", func() string {
		if g := b.gpusOf("idle"); len(g) != 8 {
			return fmt.Sprint(g)
		}
		return ""
	})
}

// No job starts on a node if it may run into the node's window.
func testWindow(t *testing.T, b *bed) {
	long := gang("long", 1, 4)
	long.meta = `pal_duration = "3h"`
	b.run(long.hcl())
	for _, id := range b.untilGPUs("long", 4) {
		if !strings.HasPrefix(id, "GPU-0-") {
			t.Errorf("the long job runs on %s, which is to be maintained", id)
		}
	}
	long.id = "later"
	b.run(long.hcl())
	b.untilWaits("later", `window "kernel" reserves 4 GPUs from`)
	b.says("explain -verbose later", "window kernel keeps 4 GPUs from")
	short := gang("short", 1, 4)
	short.meta = `pal_duration = "10m"`
	b.runs(short, 4)
	b.waitsOn("later")
	b.sweep()
}

// A job with pal_after starts only when those jobs have ended, even if GPUs are
// free.
func testAfter(t *testing.T, b *bed) {
	prepare := gang("prepare", 1, 0)
	prepare.seconds = 5
	job := b.parse(prepare.hcl())
	job.Constraints = nil
	job.TaskGroups[0].Tasks[0].Resources.Devices = nil
	register(b.t, b.Cluster, job)
	finish := filepath.Join(t.TempDir(), "finish")
	train := gang("train", 1, 4)
	train.script = fmt.Sprintf("until [ -e %s ]; do sleep 0.2; done", finish)
	b.run(train.hcl())
	report := gang("report", 1, 4)
	report.meta = `pal_after = "prepare,train"`
	b.run(report.hcl())
	b.untilWaits("report", "pal_after", "train")
	if err := os.WriteFile(finish, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.untilGPUs("report", 4)
	if info := b.info("train"); *info.Status != "dead" {
		t.Errorf("train is %s, and report runs", *info.Status)
	}
	b.sweep()
}

// Only a limited number of an array's elements runs at a time.
func testArray(t *testing.T, b *bed) {
	sweep := parameterized("sweep", "forbidden")
	sweep.meta = `pal_array_parallel = "2"`
	b.run(sweep.hcl())
	var ids []string
	for range 3 {
		ids = append(ids, b.dispatch("sweep", nil))
	}
	running := func() (running, waiting []string) {
		for _, id := range ids {
			if len(b.gpusOf(id)) > 0 {
				running = append(running, id)
			} else {
				waiting = append(waiting, id)
			}
		}
		return running, waiting
	}
	b.until("two elements run", func() string {
		if on, _ := running(); len(on) != 2 {
			return fmt.Sprint(on)
		}
		return ""
	})
	on, off := running()
	b.untilWaits(off[0], "array")
	b.waitsOn(off[0])
	b.purge(on[0])
	b.untilGPUs(off[0], 2)
	b.sweep()
}
