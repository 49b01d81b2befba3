// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// checkToken checks whether the token has the rights that the agent needs, except
// "alloc-lifecycle". The check changes nothing in Nomad.
func checkToken(b *base, client *nomad.Client) palapi.Check {
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	switch {
	case aclDisabled(self, err):
		return palapi.Check{Name: "token", Verdict: palapi.Warn, Found: "Nomad has no ACLs: anybody can do anything", Next: "unless this cluster is only a trial, set up ACLs: nomad acl bootstrap"}
	case err == nil && self.Type == "management":
		return palapi.Check{Name: "token", Verdict: palapi.OK, Found: "a management token"}
	}
	const next = "use a token with the agent's policy; with this token, the checks below may not see everything"
	known, err := client.Namespaces(b.ctx)
	if unknown(err) {
		return palapi.Check{Name: "token", Verdict: palapi.Fail, Found: "Nomad does not know the token: " + whyUnknown, Next: "nomad acl token create, with the agent's policy"}
	}
	lacks, readErr := lacks(b, known, client)
	refused, elsewhere, submitErr := submits(b, known, client)
	if err = cmp.Or(err, readErr, submitErr); err != nil {
		return palapi.Check{Name: "token", Verdict: palapi.Fail, Found: fmt.Sprintf("not known, because Nomad fails: %v", err), Next: query.NextServers}
	}
	if !elsewhere {
		lacks, refused = append(lacks, `"submit-job"`), nil
	}
	switch {
	case len(lacks) > 0:
		return palapi.Check{Name: "token", Verdict: palapi.Fail, Found: "the token lacks " + strings.Join(lacks, ", "), Next: next}
	case len(refused) > 0:
		return palapi.Check{Name: "token", Verdict: palapi.Warn, Found: fmt.Sprintf(`the token lacks "submit-job" in some namespaces (%s), so gated jobs in these namespaces wait`, strings.Join(refused, ", ")), Next: "if the agent should serve these namespaces, add \"submit-job\" and \"alloc-lifecycle\" in these namespaces to the agent's policy"}
	}
	return palapi.Check{Name: "token", Verdict: palapi.OK, Found: "the token reads nodes and jobs, may submit jobs, and writes nomad-pal's variables"}
}

// unknown reports whether err, from listing the namespaces, means that Nomad does not know the
// token. Nomad answers this request for every valid token, with the namespaces that the token may
// see.
func unknown(err error) bool { return nomad.Refused(err) }

// whyUnknown lists the possible reasons why Nomad does not know a token.
const whyUnknown = "the token is mistyped, deleted, expired, or of another cluster"

// tokenUnknown returns an error text that names the token's origin if Nomad does not know the
// token. tokenUnknown returns "" if Nomad knows the token, if no token was given, or if the request
// fails for another reason.
func (b *base) tokenUnknown() string {
	client, err := b.client()
	if err != nil || b.config().SecretID == "" {
		return ""
	}
	if _, err := client.Namespaces(b.ctx); !unknown(err) {
		return ""
	}
	return "Nomad does not know the token (" + map[bool]string{true: "-token", false: "NOMAD_TOKEN"}[b.given("token")] + "): " + whyUnknown
}

// doctorsJob is the id of a job that does not exist. To check the token's rights, doctor asks Nomad
// about this job.
const doctorsJob = "nomad-pal-doctor"

// lacks returns the rights that the token lacks. It checks neither the right to submit jobs (see
// [submits]), nor rights that doctor could test only by changing something in Nomad. known are the
// cluster's namespaces.
func lacks(b *base, known map[string]bool, client *nomad.Client) (lacks []string, failed error) {
	try := func(right string, err error) {
		switch {
		case err == nil || errors.Is(err, nomad.ErrChanged):
		case nomad.Refused(err):
			lacks = append(lacks, right)
		default:
			failed = err
		}
	}
	one := (&api.QueryOptions{PerPage: 1}).WithContext(b.ctx)
	_, _, err := client.API().Nodes().List(one)
	try(`node { policy = "read" }`, err)
	everywhere := *one
	everywhere.Namespace = "*"
	_, _, err = client.API().Jobs().List(&everywhere)
	try(`"list-jobs"`, err)
	var unread []string
	var refusal error
	for _, namespace := range slices.Sorted(maps.Keys(known)) {
		if _, err = client.Job(b.ctx, cluster.JobKey{Namespace: namespace, ID: doctorsJob}); nomad.Refused(err) {
			unread, refusal = append(unread, namespace), err
		} else {
			failed = cmp.Or(failed, err)
		}
	}
	try(fmt.Sprintf(`"read-job" in namespaces (%s)`, strings.Join(unread, ", ")), refusal)
	_, err = client.ListVariables(b.ctx, "nomad-pal/")
	try(`listing the variables "nomad-pal/*"`, err)
	_, err = store.In(client).Failures().Read(b.ctx)
	if !store.Unreadable(err) {
		try(`reading the variables "nomad-pal/*"`, err)
	}
	// No variable ever has this index, so Nomad rejects the write, and nothing changes.
	_, err = client.WriteChecked(b.ctx, store.In(client).Heartbeat().Path, map[string]string{"doctor": "may I write this?"}, math.MaxInt64)
	try(`writing the variables "nomad-pal/*"`, err)
	return lacks, failed
}

// submits finds the namespaces in which the token may submit jobs, by a dry run of a job without
// members in each namespace. refused lists the namespaces where Nomad refuses the dry run.
// elsewhere reports whether Nomad accepts the dry run in at least one namespace.
func submits(b *base, known map[string]bool, client *nomad.Client) (refused []string, elsewhere bool, err error) {
	for _, namespace := range slices.Sorted(maps.Keys(known)) {
		task := api.NewTask("none", "raw_exec").SetConfig("command", "true")
		job := &api.Job{
			ID: new(doctorsJob), Name: new(doctorsJob), Namespace: &namespace, Type: new(api.JobTypeBatch), Datacenters: []string{"*"},
			TaskGroups: []*api.TaskGroup{api.NewTaskGroup("none", 0).AddTask(task)},
		}
		_, _, err := client.API().Jobs().PlanOpts(job, nil, (&api.WriteOptions{Namespace: namespace}).WithContext(b.ctx))
		switch {
		case err == nil, errors.Is(nomad.NoDryRun(err), nomad.ErrNoDryRun):
			elsewhere = true
		case nomad.Refused(err):
			refused = append(refused, namespace)
		default:
			return refused, elsewhere, fmt.Errorf("trying a dry run in namespace %q: %w", namespace, err)
		}
	}
	return refused, elsewhere, nil
}
