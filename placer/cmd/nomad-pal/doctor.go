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
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/version"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

var helpDoctor = help("doctor [options]", `
Checks everything that nomad-pal needs: Nomad's address and version, the token's
rights, the device plugin on every client, the profile and GPUs missing from the
profile, nodes whose meta opens the gate by accident, clocks, and the active agent
with its warnings. It says how to fix what fails, and changes nothing. Use a token with the agent's policy: other
tokens may not see everything.

Exit codes: 0 no check fails (there may be warnings); 1 an error; 2 a check fails.

Doctor Options:

  -config=<path>           Check this configuration of the agent, too. May be
                           given several times.
`, examples(
	"Is everything in place?", "nomad-pal doctor",
	"Before the agent is restarted with a new configuration:", "nomad-pal doctor -config /etc/nomad-pal.d",
), outputOptions, generalOptions)

// exitUnwell is the exit code of doctor if a check fails.
const exitUnwell = 2

func runDoctor(b *base, args []string) int {
	fs := b.flags("doctor")
	var config paths
	fs.Var(&config, "config", "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	checks := checks(b)
	if len(config) > 0 {
		checks = append(checks, checkConfig(b, config))
	}
	failed := slices.ContainsFunc(checks, func(k palapi.Check) bool { return k.Verdict == palapi.Fail })
	return cmp.Or(b.show(checks, func() { printChecks(b, checks) }), map[bool]int{true: exitUnwell}[failed])
}

func printChecks(b *base, checks []palapi.Check) {
	styles := map[palapi.Verdict]style{palapi.OK: green, palapi.Warn: yellow, palapi.Fail: red}
	for _, k := range checks {
		mark := paint(styles[k.Verdict], string(k.Verdict)) + strings.Repeat(" ", 6-len(k.Verdict))
		b.io.sayAfter(mark, plain, k.Name+": "+oneLine(k.Found))
		if k.Next != "" && k.Verdict != palapi.OK {
			b.io.sayAfter("      → ", plain, oneLine(k.Next))
		}
	}
}

func check(name string, verdict palapi.Verdict, found, next string) palapi.Check {
	return palapi.Check{Name: name, Verdict: verdict, Found: found, Next: next}
}

// checks runs the checks; only the first one if Nomad does not answer.
func checks(b *base) []palapi.Check {
	client, err := b.client()
	if err != nil {
		return []palapi.Check{query.ChecksFailed(err)}
	}
	checks := []palapi.Check{checkReach(client)}
	if checks[0].Verdict == palapi.Fail {
		return checks
	}
	s, failed := plainly(b, client)
	var told []string // warnings that s.Checks includes
	if failed == nil {
		told = s.Warnings()
	}
	checks = append(append(checks, checkToken(b, client)), checkAgent(b, told)...)
	paused := checkPaused(b, client)
	if paused != "" {
		checks = append(checks, check("scheduler", palapi.Fail, "an operator has paused Nomad's placement or registrations", paused))
	}
	servers := time.Now()
	beat, err := store.In(client).Heartbeat().Read(nomad.WithDate(b.ctx, &servers))
	if err == nil {
		checks = append(checks, query.CheckClocks(beat.Of, beat.Written, servers, time.Now()))
	}
	if failed != nil {
		return append(checks, query.ChecksFailed(failed))
	}
	return append(checks, s.Checks()...)
}

func checkReach(client *nomad.Client) palapi.Check {
	address := client.API().Address()
	leader, err := client.API().Status().Leader()
	switch {
	case nomad.StatusOf(err) != 0:
		return check("nomad", palapi.Fail, fmt.Sprintf("%s answers: %v", address, err), cmp.Or(remedyTLS(err), "nomad server members, and the logs of the servers: more than half of them must be up and reach each other"))
	case err != nil:
		return check("nomad", palapi.Fail, fmt.Sprintf("no answer from %s: %v", address, err), cmp.Or(remedyTLS(err), "is NOMAD_ADDR (or -address) right, and is Nomad running there?"))
	case leader == "":
		return check("nomad", palapi.Fail, address+" answers, but the servers have no leader", "nomad server members")
	}
	return check("nomad", palapi.OK, fmt.Sprintf("%s answers, the leader is %s", address, leader), "")
}

// checkPaused returns the command that undoes what an operator has paused in Nomad, or "" if nothing
// is paused, or if the token may not read the scheduler configuration.
func checkPaused(b *base, client *nomad.Client) string {
	answer, _, err := client.API().Operator().SchedulerGetConfiguration((&api.QueryOptions{}).WithContext(b.ctx))
	switch {
	case err != nil || answer == nil || answer.SchedulerConfig == nil:
		return ""
	case answer.SchedulerConfig.PauseEvalBroker:
		return "nomad operator scheduler set-config -pause-eval-broker=false"
	case answer.SchedulerConfig.RejectJobRegistration:
		return "nomad operator scheduler set-config -reject-job-registration=false"
	}
	return ""
}

// checkAgent checks the agent whose address all commands use. checkAgent leaves out the warnings in
// told, because other checks include these warnings.
func checkAgent(b *base, told []string) []palapi.Check {
	const name, log = "agent", "look at the log of this agent"
	a, err := b.ask()
	if none, ok := errors.AsType[noAgent](err); ok {
		return []palapi.Check{check(name, palapi.Fail, "no agent answers: "+none.looked, none.next)}
	}
	if err != nil {
		return []palapi.Check{check(name, palapi.Fail, err.Error(), "is NOMAD_PAL_ADDR (or -pal-address) right?")}
	}
	h, err := a.health(nil)
	if err != nil {
		return []palapi.Check{check(name, palapi.Fail, fmt.Sprintf("%s answers, but its health is unknown: %v", a.address, err), log)}
	}
	var checks []palapi.Check
	for _, w := range h.Configuration {
		checks = append(checks, check("configuration", palapi.Warn, w, "correct or remove this setting in the agent's configuration"))
	}
	warnings := slices.DeleteFunc(h.Warnings, func(w string) bool { return slices.Contains(told, w) })
	works := a.address + " answers, " + workSentence(a.activity, time.Now())
	switch {
	case h.Trouble != "":
		return append(checks, check(name, palapi.Fail, fmt.Sprintf("%s answers, but this agent is in trouble: %s", a.address, strings.Trim(h.Trouble+": "+h.LastError, ": ")), log))
	case a.activity.Idle():
		return append(checks, check(name, palapi.Fail, works, "a standby agent takes over within a minute; if no agent runs, start one: nomad-pal agent"))
	case len(warnings) > 0:
		return append(checks, check(name, palapi.Warn, fmt.Sprintf("%s; %s: %s", works, counted(len(warnings), "warning"), strings.Join(warnings, "; ")), query.NextStatus))
	case a.activity.Version != version.Human():
		return append(checks, check(name, palapi.Warn, works+"; this command is "+version.Human(), "use the same version for both"))
	}
	return append(checks, check(name, palapi.OK, works, ""))
}

// checkConfig checks configuration files, also beside the active agent.
func checkConfig(b *base, config paths) palapi.Check {
	file, cfg, err := configOf(config)
	client, unreached := b.client()
	if err == nil && unreached == nil {
		active, unread := heartbeat.ReadActivity(b.ctx, client, time.Now())
		if unread == nil {
			err = file.Beside(active)
		}
	}
	if err != nil {
		return check("configuration", palapi.Fail, err.Error(), "fix the configuration before the agent reads it")
	}
	can := strings.Join(config, ", ") + " can be used"
	warnings := cfg.Warnings(time.Now())
	if len(warnings) > 0 {
		return check("configuration", palapi.Warn, can+", but "+strings.Join(warnings, "; "), "correct or remove this setting")
	}
	return check("configuration", palapi.OK, can, "")
}

// whyUnknown lists the possible reasons why Nomad does not know a token.
const whyUnknown = "the token is mistyped, deleted, expired, or of another cluster"

// tokenUnknown returns an error text that names the token's origin if Nomad does not know the
// token. Nomad lists the namespaces for every token that it knows. tokenUnknown returns "" if Nomad
// knows the token, if no token was given, or if the request fails for another reason.
func (b *base) tokenUnknown() string {
	client, err := b.client()
	if err != nil || b.config().SecretID == "" {
		return ""
	}
	if _, err := client.Namespaces(b.ctx); !nomad.Refused(err) {
		return ""
	}
	return "Nomad does not know the token (" + map[bool]string{true: "-token", false: "NOMAD_TOKEN"}[b.given("token")] + "): " + whyUnknown
}

// doctorsJob is the id of a job that does not exist. To check the token's rights, doctor asks Nomad
// about this job.
const doctorsJob = "nomad-pal-doctor"

// checkToken checks whether the token has the rights that the agent needs, except
// "alloc-lifecycle". The check changes nothing in Nomad.
func checkToken(b *base, client *nomad.Client) palapi.Check {
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	switch {
	case aclDisabled(self, err):
		return check("token", palapi.Warn, "Nomad has no ACLs: anybody can do anything", "unless this cluster is only a trial, set up ACLs: nomad acl bootstrap")
	case err == nil && self.Type == "management":
		return check("token", palapi.OK, "a management token", "")
	}
	namespaces, err := client.Namespaces(b.ctx)
	if nomad.Refused(err) {
		return check("token", palapi.Fail, "Nomad does not know the token: "+whyUnknown, "nomad acl token create, with the agent's policy")
	}
	lacks := []string{}
	try := func(right string, refused error) {
		switch {
		case nomad.Refused(refused):
			lacks = append(lacks, right)
		case refused != nil && !errors.Is(refused, nomad.ErrChanged) && !store.Unreadable(refused) && !errors.Is(nomad.NoDryRun(refused), nomad.ErrNoDryRun):
			err = refused
		}
	}
	_, _, refused := client.API().Nodes().List((&api.QueryOptions{PerPage: 1}).WithContext(b.ctx))
	try(`node { policy = "read" }`, refused)
	_, _, refused = client.API().Jobs().List((&api.QueryOptions{PerPage: 1, Namespace: api.AllNamespacesNamespace}).WithContext(b.ctx))
	try(`"list-jobs"`, refused)
	_, refused = store.In(client).Failures().Read(b.ctx)
	try(`reading the variables "nomad-pal/*"`, refused)
	// No variable ever has this index, so Nomad rejects the write, and nothing changes.
	_, refused = client.WriteChecked(b.ctx, store.In(client).Heartbeat().Path, map[string]string{"doctor": "may I write this?"}, math.MaxInt64)
	try(`writing the variables "nomad-pal/*"`, refused)
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		_, refused = client.Job(b.ctx, cluster.JobKey{Namespace: namespace, ID: doctorsJob})
		try(fmt.Sprintf(`"read-job" in namespace %q`, namespace), refused)
		job := api.NewBatchJob(doctorsJob, doctorsJob, b.config().Region, 50).AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("none", 0).AddTask(api.NewTask("none", "raw_exec").SetConfig("command", "true")))
		_, _, refused = client.API().Jobs().PlanOpts(job, nil, (&api.WriteOptions{Namespace: namespace}).WithContext(b.ctx))
		try(fmt.Sprintf(`"submit-job" in namespace %q`, namespace), refused)
	}
	switch {
	case err != nil:
		return check("token", palapi.Fail, fmt.Sprintf("not known, because Nomad fails: %v", err), query.NextServers)
	case len(lacks) > 0:
		return check("token", palapi.Fail, "the token lacks "+strings.Join(lacks, ", "), "use a token with the agent's policy, with \"submit-job\" and \"alloc-lifecycle\" in each namespace that the agent serves; with this token, the checks below may not see everything")
	}
	return check("token", palapi.OK, "the token reads nodes and jobs, may submit jobs, and writes nomad-pal's variables", "")
}
