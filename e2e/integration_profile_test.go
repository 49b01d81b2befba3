// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestProfiles: imported measurements change the choice of GPUs, and the import
// can be undone; profiles can be exported to files.
func TestProfiles(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{})
	agent := b.startPal(t, edgeConfig, b.Env())
	b.untilReady(agent)
	b.untilProfile("GPU-0-3", "1.500")
	write := func(name, text string) string {
		path := filepath.Join(b.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	do := func(want string, args ...string) string {
		t.Helper()
		out, code := b.pal(args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%v: exit code %d, want %q: %s", args, code, want, out)
		}
		return out
	}

	// According to the import, the fastest GPU of node 1 is slow for
	// application class A.
	times := write("times.csv", "gpu,app,time,key\nGPU-1-0,A,2.0,lab\nGPU-1-1,A,1.0,lab\nGPU-1-2,A,1.0,lab\nGPU-1-3,A,1.0,lab\n")
	do("outlier, PM score 2.000", "profile", "import", "-dry-run", times)
	do("version 1", "profile", "show")
	do(`Imported 4 measurements of 4 GPUs as "times"`, "profile", "import", times)
	agent.reload()
	b.untilProfile("GPU-1-0", "2.000")
	b.run(gang("three", 1, 3).hcl())
	same(t, "without the slow one", []string{gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("three", 3))
	b.purge("three")

	// Export to a file and a table.
	file, table := filepath.Join(b.dir, "p.json"), filepath.Join(b.dir, "p.csv")
	do("8 GPUs", "profile", "export", "-o", file)
	do("8 GPUs", "profile", "export", "-csv", "-o", table)
	do("GPU-1-0", "profile", "show")
	do("Would import", "profile", "import", "-dry-run", table)
	do("Would import", "profile", "import", "-dry-run", file)

	// An impossible profile is refused, and nothing is written.
	for _, c := range []struct{ text, want string }{
		{"gpu,app,time\nGPU-9-9,A,1\n", `bad.csv:2: GPU "GPU-9-9"`},
		{"gpu,app,time\nGPU-1-0,A,-1\n", "bad.csv:2: time -1"},
		{"gpu,app,time,model\nGPU-1-0,A,1,NVIDIA B200\n", `bad.csv:2: GPU "GPU-1-0" is a "NVIDIA H200" in the cluster, not a "NVIDIA B200"`},
	} {
		out, code := b.pal("profile", "import", write("bad.csv", c.text))
		if code == 0 || !strings.Contains(out, c.want) {
			t.Errorf("exit code %d, want %q: %s", code, c.want, out)
		}
	}

	// After the import is deleted, the nodes' own measurements count again.
	do("Nothing is imported", "profile", "import", "-delete", "-name", "times")
	agent.reload()
	b.run(gang("one", 1, 1).hcl())
	b.untilSays("profile show -verbose", "GPU-1-0  0.970")
	b.purge("one")
}

// untilProfile waits until the effective profile has a GPU's score.
func (b *bed) untilProfile(gpu, score string) {
	b.t.Helper()
	b.untilSays("profile show", gpu+"  "+score)
}
