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

// TestAnswers: what the commands show a tenant with our policy for users, with an agent (which they
// find through Nomad) and without one.
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
	says(user, 3, "no agent has published its address in Nomad", "status")
	says(user, 0, "a GPU looks free if your token cannot see the job on it", "gpus")
	if out, code := b.palAs(b.envAs(""), "profile", "show"); code == 0 || !strings.Contains(out, "token") {
		t.Errorf("profile show without a token: %d: %s", code, out)
	}
	agent := b.startPal(t, edgeConfig, b.envAs(agentToken))
	b.untilReady(agent)
	b.runs(gang("secret", 1, 2), 2)
	says(user, 0, `"free": 6`, "status", "-json") // includes GPUs that others hold
	elsewhere := append([]string{"NOMAD_PAL_ADDR=http://" + strings.Replace(agent.Address(), "127.0.0.1", "0.0.0.0", 1)}, user...)
	says(elsewhere, 3, "your token would cross the network in plain text", "status")
	mine := gang("mine", 1, 1)
	mine.extra = `namespace = "research"`
	says(user, 1, "would start now", "plan", job(mine.hcl()))
	says(user, 0, "Chosen GPUs", "run", "-verbose", job(mine.hcl()))
	says(user, 0, "Chosen GPUs", "explain", "-verbose", "mine")
	docker := strings.ReplaceAll(strings.ReplaceAll(mine.hcl(), `"mine"`, `"image"`), `"raw_exec"`, `"docker"`)
	says(user, 2, "missing drivers: docker (2 of 2 nodes)", "plan", job(docker))

	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	says(user, 3, "no agent answers: NOMAD_PAL_ADDR is not set, and agent ", "explain", "mine")
	says(user, 3, "start one (nomad-pal agent), or set NOMAD_PAL_ADDR", "queue")
}
