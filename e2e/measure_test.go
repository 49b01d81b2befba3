// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// measuringBox is a client with n GPUs, emulated by our stand-ins for the NVML
// and CUDA drivers.
type measuringBox struct {
	*gpuBox
	settings, stateDir, tokenFile string
}

func newMeasuringBox(t *testing.T, n int, mode string, settings ...string) *measuringBox {
	t.Helper()
	lib, err := fakecuda.Build(t.TempDir())
	if errors.Is(err, fakecuda.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &measuringBox{settings: lib + ".settings", stateDir: t.TempDir(), tokenFile: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(b.tokenFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state := nvmltest.H200(n)
	for i := range n {
		state.Set(fmt.Sprintf("gpu%d", i), "sm_mhz", "1900") // the clock of a busy GPU, because the plugin judges rates by the clock
	}
	b.gpuBox = newGPUBox(t, state, fmt.Sprintf(`state_dir = %q
measure {
  mode         = %q
  jitter       = "0s"
  cuda_library = %q
  idle_for     = "2s"
  warmup       = "5s"
}
nomad {
  address    = %q
  token_file = %q
}
`, b.stateDir, mode, lib, cluster.OwnAddress, b.tokenFile))
	for i := range n {
		settings = append(settings, fmt.Sprintf("uuid.%d=%s", i, b.uuid(i)))
	}
	b.tell(t, append(settings, fmt.Sprintf("gpus=%d", n))...)
	return b
}

// tell changes the behaviour of the CUDA stand-in.
func (b *measuringBox) tell(t *testing.T, settings ...string) {
	t.Helper()
	if err := os.WriteFile(b.settings, []byte(strings.Join(settings, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// measuring lists the GPUs that measuring processes on this machine have open.
func measuring(t *testing.T, gpus []string) map[string]bool {
	t.Helper()
	matches, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, path := range matches {
		data, _ := os.ReadFile(path) // the process has ended
		args := strings.Split(string(data), "\x00")
		for _, id := range gpus {
			if len(args) > 1 && args[1] == "measure-child" && strings.Contains(string(data), "\x00"+id+"\x00") {
				out[id] = true
			}
		}
	}
	return out
}

// h200 is an attribute of the group of H200s, "" if there is none.
func h200(attributes map[string]*api.Attribute, name string) string {
	if a := attributes["NVIDIA H200 "+name]; a != nil {
		return a.String()
	}
	return ""
}

// A real client's plugin measures its idle GPUs by itself, publishes the
// results, flags the bad GPU, and releases all of them when a job comes.
func TestPluginMeasuresIdleGPUs(t *testing.T) {
	t.Parallel()
	box := newMeasuringBox(t, 3, "idle", "slow.2=2.5")
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0].Name
	untilGPUs(t, c, node, "three GPUs", count(3))
	ids := []string{box.uuid(0), box.uuid(1), box.uuid(2)}

	untilMeasured(t, c, node, 3)
	_, attributes, err := gpusOf(t.Context(), c, node)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"unique.degraded": ids[2], "degraded_count": "1", "variability_a_le_4_count": "2", "variability_a_le_5_count": "3"} {
		if got := h200(attributes, name); got != want {
			t.Errorf("attribute %s is %q, want %q", name, got, want)
		}
	}

	// Sessions now take as long as real ones, so that the job arrives during
	// them.
	box.tell(t, "gpus=3", "scale=1", "uuid.0="+ids[0], "uuid.1="+ids[1], "uuid.2="+ids[2])
	for i := range ids { // times at another power limit are no longer valid
		box.set(fmt.Sprintf("gpu%d", i), "limit_mw", "600000")
	}
	clustertest.Until(t, c, "all are measured again", func(context.Context) (string, error) {
		if got := measuring(t, ids); len(got) < 3 {
			return fmt.Sprint(got), nil
		}
		return "", nil
	})
	begin := time.Now()
	register(t, c, gpuJob("train", 2))
	mine := deviceIDs(running(t, c, "train"))
	t.Logf("time from registration to a running task on two GPUs that were being measured: %s", time.Since(begin).Round(10*time.Millisecond))
	if got := measuring(t, mine); len(mine) != 2 || len(got) > 0 {
		t.Errorf("the task has %v; still being measured: %v", mine, got)
	}
	if got := measuring(t, ids); len(got) != 1 {
		t.Errorf("being measured: %v, want the GPU that the task does not have", got)
	}
	stop(t, c, "train")
}

// account is the progress of measuring a GPU, as the plugin publishes it.
type account struct {
	Last, Waits string
	Provisional bool
}

// accountsOf are those of H200s, by GPU id; none if the plugin has published
// none yet.
func accountsOf(attributes map[string]*api.Attribute) map[string]account {
	var out map[string]account
	_ = json.Unmarshal([]byte(h200(attributes, "unique.measuring")), &out)
	return out
}

// voidJob is like gpuJob, but with an environment as nvidia-container-toolkit 1.18 leaves it
// (jit-cdi): no variable names the GPU.
func voidJob(name string) *api.Job {
	job := gpuJob(name, 1)
	job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "exec env NVIDIA_VISIBLE_DEVICES=void sleep 600"}
	return job
}

// A task holds this GPU, but neither uses it nor names it. The plugin does not measure it when the
// node's GPUs are due, because Nomad says that an allocation has it. The measuring job waits for it,
// and then measures all GPUs of the node together.
func TestGPUsThatTasksHoldAreNotMeasured(t *testing.T) {
	t.Parallel()
	box := newMeasuringBox(t, 3, "idle")
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{box.Client}})
	node := c.Clients()[0].Name
	untilGPUs(t, c, node, "three GPUs", count(3))
	ids := []string{box.uuid(0), box.uuid(1), box.uuid(2)}
	untilMeasured(t, c, node, 3)
	register(t, c, voidJob("void-train"))
	held := deviceIDs(running(t, c, "void-train"))
	free := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == held[0] })
	accounts := func() map[string]account {
		_, attributes, err := gpusOf(t.Context(), c, node)
		if err != nil {
			t.Fatal(err)
		}
		return accountsOf(attributes)
	}
	first := accounts()
	for i := range ids { // times at another power limit are no longer valid
		box.set(fmt.Sprintf("gpu%d", i), "limit_mw", "600000")
	}
	clustertest.Until(t, c, "the free GPUs are measured again", func(context.Context) (string, error) {
		got := accounts()
		if got[free[0]].Last == first[free[0]].Last || got[free[1]].Last == first[free[1]].Last {
			return fmt.Sprint(got), nil
		}
		return "", nil
	})
	before := accounts()
	if before[held[0]].Last != first[held[0]].Last || !before[free[0]].Provisional {
		t.Errorf("measured beside %s, which a task has: %+v, at first %+v", held[0], before, first)
	}

	register(t, c, measureJob(t, 3))
	untilWaits(t, c, "measure")
	stop(t, c, "void-train")
	clustertest.Until(t, c, "the job gets all GPUs, and they are measured together", func(context.Context) (string, error) {
		got := accounts()
		for _, id := range ids {
			// The held GPU is due, so its session can begin a little earlier.
			if got[id].Last == before[id].Last || got[id].Provisional && id != held[0] {
				return fmt.Sprintf("%+v", got), nil
			}
		}
		return "", nil
	})
	stop(t, c, "measure")
}

// measureJob is the job of jobspecs/ that measures all GPUs of a node.
func measureJob(t *testing.T, gpus int) *api.Job {
	t.Helper()
	path := "../jobspecs/measure.nomad.hcl"
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{Path: path, Body: body, Strict: true, ArgVars: []string{fmt.Sprintf("gpus=%d", gpus)}})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// With access control, our policy for the plugin lets it ask Nomad which GPUs are free.
// Without a token it measures nothing, and says why.
func TestPluginAsksNomadWithAToken(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Bin: binaries(t), ACL: true})
	policy, err := os.ReadFile("../placer/deploy/acl/node.policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.API().ACLPolicies().Upsert(&api.ACLPolicy{Name: "nomad-pal-node", Rules: string(policy)}, nil); err != nil {
		t.Fatal(err)
	}
	token, _, err := c.API().ACLTokens().Create(&api.ACLToken{Name: "plugin", Type: "client", Policies: []string{"nomad-pal-node"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	box := newMeasuringBox(t, 1, "idle")
	if err := c.AddClients(t.Context(), box.Client); err != nil {
		t.Fatal(err)
	}
	untilAccount := func(node, what string, ok func(account) bool) {
		t.Helper()
		clustertest.Until(t, c, what, func(ctx context.Context) (string, error) {
			_, attributes, err := gpusOf(ctx, c, node)
			if err != nil {
				return "", err
			}
			got := accountsOf(attributes)
			if a, known := got[box.uuid(0)]; !known || !ok(a) {
				return fmt.Sprint(got), nil
			}
			return "", nil
		})
	}
	node := c.Clients()[0].Name
	untilAccount(node, "it says that it may not ask", func(a account) bool {
		return strings.Contains(a.Waits, "Permission denied") && strings.Contains(a.Waits, "jobspecs/measure.nomad.hcl") && a.Last == ""
	})
	if err := os.WriteFile(box.tokenFile, []byte(token.SecretID), 0o600); err != nil {
		t.Fatal(err)
	}
	untilAccount(node, "measured", func(a account) bool { return a.Last != "" && a.Waits == "" && !a.Provisional })
}

// untilMeasured waits until Nomad's server has the measured times of n GPUs.
func untilMeasured(t *testing.T, c *cluster.Cluster, node string, n int) {
	t.Helper()
	clustertest.Until(t, c, "the measurements reach the server", func(ctx context.Context) (string, error) {
		_, attributes, err := gpusOf(ctx, c, node)
		return missing(strings.Count(h200(attributes, "unique.variability_raw"), "key="), n), err
	})
}
