// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestPlacerOthers: mistakes or malice of one node or one author do not stop the
// others.
func TestPlacerOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t, [][]float64{placerScores[0], placerScores[1]}, cluster.Options{})
	b.startAgent("nomad-pal")
	b.scene("ForgedPins", testForgedPins)
	b.scene("Reinstalled", testReinstalled)
}

// A job with forged pins names all GPUs, requests one and cannot start. It is
// registered every two seconds, and still blocks no other job.
func testForgedPins(t *testing.T, b *bed) {
	var nodes, gpus []string
	for n := range 2 {
		id, err := b.NodeID(context.Background(), fmt.Sprintf("node-%d", n))
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, id)
		for k := range 4 {
			gpus = append(gpus, gpu(n, k))
		}
	}
	forge := func(round int) *api.Job {
		j := gang("a-forger", 1, 1)
		j.meta = fmt.Sprintf("round = %d", round)
		list := func(attribute string, ids []string) string {
			return fmt.Sprintf("constraint {\n attribute = %q\n operator = \"set_contains_any\"\n value = %q\n }\n", attribute, "nomad-pal,"+strings.Join(ids, ","))
		}
		j.groups[0].extra = list("$${node.unique.id}", nodes) + "constraint {\n attribute = \"$${meta.rack}\"\n value = \"none\"\n }\n"
		j.groups[0].wants = list("$${device.ids}", gpus)
		return b.parse(strings.ReplaceAll(j.hcl(), "$$", "$"))
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for round := 0; ; round++ {
			if _, _, err := b.API().Jobs().Register(forge(round), nil); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Second):
			}
		}
	}()
	b.untilSays("status", "a-forger")
	b.runs(gang("honest", 2, 4), 8)
	b.holds("it runs on", func() string {
		if g := b.gpusOf("honest"); len(g) != 8 {
			return fmt.Sprint(g)
		}
		return ""
	})
	close(stop)
	<-done
	b.purge("a-forger", "honest")
}

// A client comes back with a new node id while Nomad keeps the old node: its GPUs
// count as the new node's, a warning says so, and gangs are placed as before.
func testReinstalled(t *testing.T, b *bed) {
	client, ctx := b.Clients()[1], context.Background()
	old, err := b.NodeID(ctx, client.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// Remove its id, its secret and its state; tasks' secrets are mounted below
	// data/alloc.
	if err := os.RemoveAll(filepath.Join(client.Dir, "data", "client")); err != nil {
		t.Fatal(err)
	}
	if err := client.Start(ctx); err != nil {
		t.Fatal(err)
	}
	b.until("the new node is ready and has its GPUs", func() string {
		id, err := b.NodeID(ctx, client.Name)
		if err != nil || id == old {
			return fmt.Sprint(id, err)
		}
		n, _, err := b.API().Nodes().Info(id, nil)
		if err != nil || n.Status != api.NodeStatusReady || len(n.NodeResources.Devices) == 0 {
			return fmt.Sprint(err)
		}
		return ""
	})
	// Until the old node misses its heartbeat, Nomad counts it as ready, and it had
	// the GPUs first. No command fails meanwhile.
	if out, code := b.pal("gpus"); code != 0 {
		t.Errorf("gpus: exit code %d: %s", code, out)
	}
	b.until("Nomad knows that the old node is gone", func() string {
		if n, _, err := b.API().Nodes().Info(old, nil); err != nil || n.Status == api.NodeStatusReady {
			return fmt.Sprint("it is ready ", err)
		}
		if h := b.http("/v1/health"); !strings.Contains(h, "nomad-pal uses the second node, which is ready") {
			return h
		}
		return ""
	})
	b.runs(gang("both", 2, 4), 8)
	b.says("status", "Warning", `GPU "GPU-1-0" and 3 more: listed by node "node-1"`, "nomad-pal uses the second node, which is ready")
	mentions(t, b.http("/v1/health"), "and 3 more: listed by node", "which is ready")
	if n := strings.Count(b.http("/v1/gpus"), `"GPU-1-0"`); n != 1 {
		t.Errorf("GPU-1-0 is listed %d times", n)
	}
	log := b.placer.Log()
	if n := strings.Count(log, "a node has a problem"); n < 1 || n > 3 {
		t.Errorf("the log has the warning %d times", n)
	}
	for _, never := range []string{"occurs twice", "reading everything again"} {
		if strings.Contains(log, never) {
			t.Errorf("the log says %q", never)
		}
	}
	b.purge("both")
}
