// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestWorkloadIdentity: the agent runs as a Nomad job on a cluster with access
// control; its only credential is the identity that Nomad gives it.
func TestWorkloadIdentity(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{ACL: true})
	path := filepath.Join("..", "jobspecs", "nomad-pal.nomad.hcl")
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{
		Path: path, Body: body, Strict: true, ArgVars: []string{
			"driver=raw_exec", "command=" + b.Program("nomad-pal"), `config=default_class = "A"`,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	register(b.t, b.Cluster, job)
	b.run(gang("train", 1, 2).hcl())
	b.holds("without the policy, nothing is placed", func() string { return strings.Join(b.gpusOf("train"), " ") })

	policy := &api.ACLPolicy{
		Name: "nomad-pal", Rules: policyFile(t, "nomad-pal.policy.hcl"), JobACL: &api.JobACL{Namespace: "default", JobID: "nomad-pal"},
	}
	if _, err := b.API().ACLPolicies().Upsert(policy, nil); err != nil {
		t.Fatal(err)
	}
	same(t, "the best pair", []string{gpu(1, 0), gpu(1, 1)}, b.untilGPUs("train", 2))

	// Nomad makes no dry runs for workload identities, but the placer would try one for this gang.
	apart := gang("apart", 1, 1)
	apart.groups[0].extra = "constraint {\n  distinct_hosts = true\n}\n"
	b.run(apart.hcl())
	b.untilGPUs("apart", 1)
	b.purge("apart", "train", "nomad-pal")
}
