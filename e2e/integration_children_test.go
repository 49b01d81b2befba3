// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestChildren: dispatched and periodic jobs, placed through the servers' RPC
// port. With TLS, the port requires a certificate.
func TestChildren(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", tls), func(t *testing.T) {
			if tls { // only the transport differs
				onlyLong(t)
			}
			t.Parallel()
			b := newBed(t, placerScores[:2], cluster.Options{TLS: tls})
			b.tell([]scene{{"dispatched", b.nomadBlock(), testDispatched}})
			if !tls {
				b.tell([]scene{{"periodic", b.nomadBlock(), testPeriodic}})
			}
		})
	}
}

// nomadBlock configures the servers' RPC port in the agent. Servers that verify
// names accept the certificates of clients there, not those of the CLI.
func (b *bed) nomadBlock() string {
	lines := fmt.Sprintf("  rpc_address = %q\n", b.Servers()[0].RPCAddr())
	if tls := b.ClientTLS(); tls.CA != "" {
		lines += fmt.Sprintf("  ca_cert     = %q\n  client_cert = %q\n  client_key  = %q\n", tls.CA, tls.Cert, tls.Key)
	}
	return "nomad {\n" + lines + "}\n"
}

func parameterized(id, payload string) job {
	j := gang(id, 1, 2)
	j.extra = fmt.Sprintf("parameterized {\n    payload       = %q\n    meta_optional = [\"seed\"]\n  }", payload)
	return j
}

// dispatch dispatches a child and returns its id.
func (b *bed) dispatch(parent string, payload []byte) string {
	b.t.Helper()
	r, _, err := b.API().Jobs().Dispatch(parent, map[string]string{"seed": "1"}, payload, "", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.DispatchedJobID
}

func (b *bed) info(id string) *api.Job {
	b.t.Helper()
	job, _, err := b.API().Jobs().Info(id, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return job
}

func testDispatched(t *testing.T, b *bed) {
	b.run(parameterized("disp", "optional").hcl())
	first, second := b.dispatch("disp", nil), b.dispatch("disp", nil)
	one, two := b.untilGPUs(first, 2), b.untilGPUs(second, 2)
	for _, id := range one {
		if slices.Contains(two, id) {
			t.Errorf("GPU %s was given to both children", id)
		}
	}
	if slices.Contains(append(one, two...), gpu(0, 3)) {
		t.Errorf("an outlier was chosen: %v %v", one, two)
	}
	child := b.info(first)
	if !child.Dispatched || *child.ParentID != "disp" || child.Meta["seed"] != "1" {
		t.Errorf("the child lost its origin: dispatched %v, parent %q, meta %v", child.Dispatched, *child.ParentID, child.Meta)
	}
	b.untilExplained(first, one)
	// The parent stays gated, so that later children are gated, too.
	if e := b.explain("disp"); !strings.Contains(e.Reason, "nomad-pal status -all lists its runs") {
		t.Errorf("explain of the parent: %q", e.Reason)
	}
	b.purge(first, second, "disp")
}

func testPeriodic(t *testing.T, b *bed) {
	j := gang("nightly", 1, 1)
	j.extra = "periodic {\n    crons = [\"0 0 1 1 *\"]\n  }"
	b.run(j.hcl())
	if _, _, err := b.API().Jobs().PeriodicForce("nightly", nil); err != nil {
		t.Fatal(err)
	}
	var child string
	b.until("the periodic job has a child", func() string {
		jobs, _, err := b.API().Jobs().List(&api.QueryOptions{Prefix: "nightly/"})
		if err != nil || len(jobs) == 0 {
			return fmt.Sprintf("%d children, %v", len(jobs), err)
		}
		child = jobs[0].ID
		return ""
	})
	same(t, "the fastest GPU", []string{gpu(1, 0)}, b.untilGPUs(child, 1))
	if job := b.info(child); job.ParentID == nil || *job.ParentID != "nightly" {
		t.Errorf("the child lost its parent: %v", job.ParentID)
	}
	b.purge(child, "nightly")
}
