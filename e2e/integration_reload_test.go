// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestReload: SIGHUP applies a new configuration. If the new one is wrong, the old one stays in
// force. Gangs keep running.
func TestReload(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{})
	// This placement ignores variability: it takes the first GPUs, outlier or
	// not.
	agent := b.startPal(t, edgeConfig+"placement = \"packed\"\nqueue {\n  outlier_threshold = 0\n}\n", b.Env())
	b.untilReady(agent)
	reload := func(config, said string) {
		t.Helper()
		agent.reconfigure(config)
		b.until("the agent says "+said, func() string {
			if text := agent.Log(); !strings.Contains(text, said) {
				return "the log: " + text
			}
			return ""
		})
	}
	b.run(gang("first", 1, 4).hcl())
	same(t, "packed", []string{gpu(0, 0), gpu(0, 1), gpu(0, 2), gpu(0, 3)}, b.untilGPUs("first", 4))

	reload("placement = \"best\"\n", `placement policy \"best\" is unknown`)
	if status, body := agent.ask("/v1/health", ""); status != http.StatusOK {
		t.Fatalf("after a wrong configuration: status %d: %s", status, body)
	}
	reload(edgeConfig, "placing: placement=pal")
	b.untilReady(agent)
	b.holds("the gang runs on", func() string {
		if got := strings.Join(b.gpusOf("first"), " "); got != strings.Join([]string{gpu(0, 0), gpu(0, 1), gpu(0, 2), gpu(0, 3)}, " ") {
			return got
		}
		return ""
	})
	b.purge("first")
	b.run(gang("second", 1, 4).hcl())
	same(t, "by the new rules", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("second", 4))
	b.purge("second")
}
