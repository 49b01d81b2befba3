// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A member whose retries Nomad has used up comes back if its owner follows explain's advice.
func testTriedOnceMore(t *testing.T, b *bed) {
	flag := filepath.Join(b.dir, "fails-once-more")
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j := gang("retried", 2, 1)
	j.meta = `pal_on_failure = "member"`
	j.script = "[ $NOMAD_ALLOC_INDEX = 0 ] && [ -e " + flag + " ] && exit 1; exec sleep 3600"
	j.groups[0].extra = "restart {\n attempts = 0\n mode = \"fail\"\n}\nreschedule {\n attempts = 1\n interval = \"1h\"\n delay = \"5s\"\n delay_function = \"constant\"\n unlimited = false\n}\n"
	b.run(j.hcl())
	// Only now has Nomad no retry left. Right after the first failure, it has not yet announced its
	// retry.
	b.until("both tries have failed", func() string {
		stubs, _, err := b.API().Jobs().Allocations("retried", true, nil)
		failed := 0
		for _, s := range stubs {
			if s.ClientStatus == "failed" {
				failed++
			}
		}
		if err == nil && failed == 2 {
			return ""
		}
		return fmt.Sprint(failed, " failed ", err)
	})
	const advice = "nomad job eval -force-reschedule"
	b.untilSays("explain retried", advice)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.types("retried", advice)
	b.untilRunning("retried", 2)
	b.purge("retried")
}

// types waits until explain names a Nomad command with this prefix, and runs it.
func (b *bed) types(id, advice string) {
	b.t.Helper()
	b.untilSays("explain "+id, advice)
	out, _ := b.pal("explain", id)
	_, rest, _ := strings.Cut(out, advice)
	line, _, _ := strings.Cut(rest, "\n")
	line, _, _ = strings.Cut(line, ". ")
	typed := strings.Fields(advice + line)
	if said, code := b.output(b.Command(b.t.Context(), "nomad", typed[1:]...)); code != 0 {
		b.t.Fatalf("%q: exit code %d: %s", typed, code, said)
	}
}

// An elastic gang starts with as many members as fit, grows when GPUs become free,
// and gives up the last members for a waiting gang; the other members keep running.
func testElastic(t *testing.T, b *bed) {
	b.fill("most", 3)
	j := gang("stretch", 2, 2)
	j.meta = "pal_elastic = \"true\"\npal_duration = \"10h\""
	j.groups[0].extra = "scaling {\n min = 1\n max = 6\n}\n"
	b.runs(j, 4)
	b.untilRunning("stretch", 2)
	first := b.members("stretch")

	b.purge("most")
	b.untilGPUs("stretch", 12)
	b.untilRunning("stretch", 6)
	grown := b.members("stretch")
	same(t, "members that run on as it grows", 2, kept(first, grown))
	b.says("explain -verbose stretch", "with all its members (1 to 6 allowed)")

	b.runs(gang("short", 3, 4), 12)
	b.untilGPUs("stretch", 4)
	b.untilRunning("stretch", 2)
	shrunk := b.members("stretch")
	same(t, "members that run on as it shrinks", 2, kept(grown, shrunk))
	same(t, "the first of them", 2, kept(first, shrunk))
	b.says("explain -verbose stretch", "with 2 members (1 to 6 allowed)")

	b.run(j.hcl()) // its author runs the same file again, which also requests two members
	b.until("it has its pins again", func() string {
		job, _, err := b.API().Jobs().Info("stretch", nil)
		if err != nil {
			return err.Error()
		}
		if rewrite.Gated(job) {
			return "gated"
		}
		return ""
	})
	same(t, "members that run on as it is run again", 2, kept(shrunk, b.members("stretch")))
	b.purge("short", "stretch")
}
