// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestAnswers: what the commands tell a tenant of the shipped policy, with and
// without an agent to ask, and that no placer is at work.
func TestAnswers(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{ACL: true})
	if _, err := b.API().Namespaces().Register(&api.Namespace{Name: "research"}, nil); err != nil {
		t.Fatal(err)
	}
	user := b.envAs(b.token("user", policyFile(t, "user.policy.hcl")), "NOMAD_NAMESPACE=research")
	agentToken := b.token("agent", policyFile(t, "nomad-pal.policy.hcl"))
	job := func(g string) string {
		path := filepath.Join(t.TempDir(), "job.hcl")
		if err := os.WriteFile(path, []byte(g), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	says := func(env []string, want int, text string, args ...string) {
		t.Helper()
		b.until(strings.Join(args, " "), func() string {
			out, code := b.palAs(env, args...)
			if code != want || !strings.Contains(out, text) {
				return fmt.Sprintf("exit code %d, want %d and %q:\n%s", code, want, text, out)
			}
			return ""
		})
	}
	says(user, 3, "No placer is at work, and none has been yet", "status")
	if out, code := b.palAs(b.envAs(""), "profile", "show"); code == 0 || !strings.Contains(out, "token") {
		t.Errorf("profile show without a token: %d: %s", code, out)
	}
	agent := b.startPal(t, edgeConfig, b.envAs(agentToken))
	b.untilReady(agent)
	b.runs(gang("secret", 1, 2), 2)
	asking := append([]string{"NOMAD_PAL_ADDR=http://" + agent.Address()}, user...)
	says(user, 0, "GPUs of jobs that it cannot see look free", "status")
	free := func(env []string) string {
		out, _ := b.palAs(env, "status", "-t", "{{.free}} {{.placer.working}}")
		return strings.TrimSpace(strings.Split(out, "\n")[0])
	}
	all, _ := b.palAs(user, "status", "-t", "{{.gpus}}")
	b.until("the agent counts what others hold", func() string {
		if part, whole := free(user), free(asking); part == whole || !strings.HasSuffix(whole, " true") {
			return fmt.Sprintf("of %s: %s read from Nomad, %s asked of the agent", all, part, whole)
		}
		return ""
	})
	mine := gang("mine", 1, 1)
	mine.extra = `namespace = "research"`
	says(asking, 1, "would start now", "plan", job(mine.hcl()))
	says(asking, 0, "Chosen GPUs", "run", job(mine.hcl()))
	says(asking, 0, "Chosen GPUs", "explain", "mine")
	docker := strings.ReplaceAll(strings.ReplaceAll(mine.hcl(), `"mine"`, `"image"`), `"raw_exec"`, `"docker"`)
	says(asking, 2, "missing drivers: docker (2 of 2 nodes)", "plan", job(docker))

	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	says(user, 3, "No placer has been at work since ", "explain", "mine")
	says(user, 3, "nothing starts until one is", "queue")
}
