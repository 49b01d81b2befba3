// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

var helpDoctor = help("doctor [options]", `
Checks everything that nomad-pal needs: Nomad's address and version, the token's
rights, the device plugin on every client, the profile and GPUs missing from the
profile, nodes whose meta opens the gate by accident, jobs that use GPUs without
a device block, clocks, and the active agent with its warnings. It says how to
fix what fails, and changes nothing. Use a token with the agent's policy: other
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
	count := map[palapi.Verdict]int{}
	for _, k := range checks {
		count[k.Verdict]++
		mark := paint(styles[k.Verdict], string(k.Verdict)) + strings.Repeat(" ", 6-len(k.Verdict))
		b.sayAfter(mark, plain, k.Name+": "+oneLine(k.Found))
		if k.Next != "" && k.Verdict != palapi.OK {
			b.sayAfter("      → ", plain, oneLine(k.Next))
		}
	}
	b.write("\n")
	b.say(plain, fmt.Sprintf("Checked: %d OK, %d WARN, %d FAIL.", count[palapi.OK], count[palapi.Warn], count[palapi.Fail]))
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
	checks = append(checks, checkToken(b, client), checkAgent(b, client))
	if paused := checkPaused(b, client); paused.Found != "" {
		checks = append(checks, paused)
	}
	servers := time.Now()
	beat, err := store.In(client).Heartbeat().Read(nomad.WithDate(b.ctx, &servers))
	if err == nil {
		checks = append(checks, query.CheckClocks(beat.Of, beat.Written, servers, time.Now()))
	}
	s, err := plainly(b, client, nil)
	var told []string // warnings that s.Checks includes
	if err == nil {
		told = s.Warnings()
	}
	checks = append(checks, checkAPI(b, told)...)
	if err != nil {
		return append(checks, query.ChecksFailed(err))
	}
	return append(append(checks, s.Checks()...), checkPastNomad(b, client)...)
}

// jobsChecked is the maximum number of jobs that doctor reads.
const jobsChecked = 500

// checkPastNomad names the jobs that can use GPUs past Nomad. The agent knows only jobs with device
// blocks, so doctor reads the jobs itself. Runs of one template are alike.
func checkPastNomad(b *base, client *nomad.Client) []palapi.Check {
	all, _, err := client.API().Jobs().List((&api.QueryOptions{Namespace: api.AllNamespacesNamespace}).WithContext(b.ctx))
	if err != nil {
		return nil // checkToken says what the token may not do
	}
	all = slices.DeleteFunc(all, func(j *api.JobListStub) bool { return j.Status == "dead" || j.ParentID != "" })
	var found []palapi.Check
	for _, j := range all[:min(len(all), jobsChecked)] {
		job, err := client.Job(b.ctx, cluster.JobKey{Namespace: j.Namespace, ID: j.ID})
		if err != nil || job == nil {
			continue // it has just been purged, or the token may not read it
		}
		if w := request.PastNomad(job); w != "" {
			found = append(found, palapi.Check{Name: "job " + cluster.KeyOf(job).String(), Verdict: palapi.Warn, Found: w, Next: "nomad-pal validate JOBSPEC, by its author"})
		}
	}
	return found
}

func checkReach(client *nomad.Client) palapi.Check {
	address := client.API().Address()
	leader, err := client.API().Status().Leader()
	_, answered := errors.AsType[api.UnexpectedResponseError](err)
	switch {
	case nomad.NoRegion(err):
		return palapi.Check{Name: "nomad", Verdict: palapi.Fail, Found: fmt.Sprintf("%s answers: %v", address, err), Next: "choose one of these regions (-region or NOMAD_REGION)"}
	case answered:
		return palapi.Check{Name: "nomad", Verdict: palapi.Fail, Found: fmt.Sprintf("%s answers: %v", address, err), Next: cmp.Or(remedyTLS(err), "nomad server members, and the logs of the servers: more than half of them must be up and reach each other")}
	case err != nil:
		return palapi.Check{Name: "nomad", Verdict: palapi.Fail, Found: fmt.Sprintf("no answer from %s: %v", address, err), Next: cmp.Or(remedyTLS(err), "is NOMAD_ADDR (or -address) right, and is Nomad running there?")}
	case leader == "":
		return palapi.Check{Name: "nomad", Verdict: palapi.Fail, Found: fmt.Sprintf("%s answers, but the servers have no leader", address), Next: "nomad server members"}
	}
	return palapi.Check{Name: "nomad", Verdict: palapi.OK, Found: fmt.Sprintf("%s answers, the leader is %s", address, leader)}
}

// checkPaused returns a failed check if an operator has paused placement or job registration. The
// check is empty if nothing is paused, or if the token may not read the scheduler configuration.
func checkPaused(b *base, client *nomad.Client) palapi.Check {
	answer, _, err := client.API().Operator().SchedulerGetConfiguration((&api.QueryOptions{}).WithContext(b.ctx))
	switch {
	case err != nil || answer == nil || answer.SchedulerConfig == nil:
		return palapi.Check{}
	case answer.SchedulerConfig.PauseEvalBroker:
		return palapi.Check{Name: "scheduler", Verdict: palapi.Fail, Found: "an operator has paused Nomad's evaluation broker, so Nomad places nothing", Next: "nomad operator scheduler set-config -pause-eval-broker=false"}
	case answer.SchedulerConfig.RejectJobRegistration:
		return palapi.Check{Name: "scheduler", Verdict: palapi.Fail, Found: "an operator has set Nomad to reject all registrations without a management token, so an agent without such a token starts nothing", Next: "nomad operator scheduler set-config -reject-job-registration=false"}
	}
	return palapi.Check{}
}

func checkAgent(b *base, client *nomad.Client) palapi.Check {
	a, err := heartbeat.ReadActivity(b.ctx, client, time.Now())
	switch {
	case err != nil:
		return palapi.Check{Name: "agent", Verdict: palapi.Fail, Found: err.Error()}
	case a.Unknown != "":
		return palapi.Check{Name: "agent", Verdict: palapi.Warn, Found: "not known: " + a.Unknown}
	case a.Idle() && a.Agent == "":
		return palapi.Check{Name: "agent", Verdict: palapi.Fail, Found: idleSentence(a, time.Now()), Next: "start an agent: nomad-pal agent; if one runs whose configuration sets nomad { namespace }, give this namespace (-pal-namespace)"}
	case a.Idle():
		return palapi.Check{Name: "agent", Verdict: palapi.Fail, Found: idleSentence(a, time.Now()), Next: "a standby agent takes over within a minute; if no agent runs, start one: nomad-pal agent"}
	case a.Version != version.Human():
		return palapi.Check{Name: "agent", Verdict: palapi.Warn, Found: fmt.Sprintf("%s; this command is %s", workSentence(a, time.Now()), version.Human()), Next: "use the same version for both"}
	}
	return palapi.Check{Name: "agent", Verdict: palapi.OK, Found: workSentence(a, time.Now())}
}

// checkAPI checks the health of the agent whose address all commands use. checkAPI leaves out the
// warnings in told, because other checks include these warnings.
func checkAPI(b *base, told []string) []palapi.Check {
	a, err := b.ask()
	if none, ok := errors.AsType[noAgent](err); ok {
		if k, ok := checkSilent(b, time.Now()); ok {
			return []palapi.Check{k}
		}
		return []palapi.Check{{Name: "agent's API", Verdict: palapi.Fail, Found: "no agent answers: " + none.looked, Next: none.next}}
	}
	if err != nil {
		return []palapi.Check{{Name: "agent's API", Verdict: palapi.Fail, Found: err.Error(), Next: "is NOMAD_PAL_ADDR (or -pal-address) right?"}}
	}
	h, err := a.health(nil)
	if err != nil {
		return []palapi.Check{{Name: "agent's API", Verdict: palapi.Fail, Found: fmt.Sprintf("%s answers, but its health is unknown: %v", a.address, err), Next: "look at the log of this agent"}}
	}
	if h.Trouble != "" {
		found := fmt.Sprintf("%s answers, but this agent is in trouble: %s", a.address, h.Trouble)
		if h.LastError != "" {
			found += ": " + h.LastError
		}
		return []palapi.Check{{Name: "agent's API", Verdict: palapi.Fail, Found: found, Next: "look at the log of this agent"}}
	}
	var checks []palapi.Check
	for _, w := range h.Configuration {
		checks = append(checks, palapi.Check{Name: "configuration", Verdict: palapi.Warn, Found: w, Next: "correct or remove this setting in the agent's configuration"})
	}
	warnings := slices.DeleteFunc(h.Warnings, func(w string) bool { return slices.Contains(told, w) })
	if len(warnings) > 0 {
		return append(checks, palapi.Check{Name: "agent's API", Verdict: palapi.Warn, Found: fmt.Sprintf("%s answers, with %s: %s", a.address, counted(len(warnings), "warning"), strings.Join(warnings, "; ")), Next: query.NextStatus})
	}
	return append(checks, palapi.Check{Name: "agent's API", Verdict: palapi.OK, Found: a.address + " answers"})
}

// checkSilent asks the agent that wrote the last heartbeat, although this heartbeat is so old that
// other commands do not ask the agent. If Nomad is slow, the agent may still work. checkSilent
// sends no token, because the address may by now belong to another program. ok is false if nothing
// answers like an agent.
func checkSilent(b *base, now time.Time) (k palapi.Check, ok bool) {
	client, err := b.client()
	if err != nil {
		return k, false
	}
	is, err := heartbeat.ReadActivity(b.ctx, client, now)
	if err != nil || b.palAddress != "" || is.Address == "" || heartbeat.Fresh(is, now) || onlyThere(is) {
		return k, false
	}
	cfg := b.config()
	cfg.Address, cfg.SecretID, cfg.HttpAuth, cfg.TLSConfig.TLSServerName = is.Address, "", nil, ""
	at, err := nomad.NewClient(cfg, "")
	if err != nil {
		return k, false
	}
	a := &answers{b: b, nomad: client, address: is.Address, agent: at.API()}
	a.agent.SetSecretID("") // not even from the environment
	h, err := a.health(nil)
	if err != nil {
		return k, false
	}
	k = palapi.Check{Name: "agent's API", Verdict: palapi.Fail, Next: "look at the log of this agent"}
	said := fmt.Sprintf("%s answers, but wrote its last heartbeat %s", is.Address, palapi.Ago(is.Beaten, now))
	switch {
	case h.Trouble != "":
		k.Found = fmt.Sprintf("%s, and is in trouble: %s", said, h.Trouble)
	case !h.Leader:
		k.Found = said + ", because it is no longer active"
	default:
		k.Found = said + ", so other commands report that no agent is active, although this agent is active"
		k.Next = "find in the logs of this agent and of Nomad's servers why the heartbeat is late"
	}
	return k, true
}

func checkConfig(b *base, config paths) palapi.Check {
	file, cfg, err := configOf(config)
	if err == nil {
		err = besideActive(b, file)
	}
	if err != nil {
		return palapi.Check{Name: "configuration", Verdict: palapi.Fail, Found: err.Error(), Next: "fix the configuration before the agent reads it"}
	}
	if warnings := cfg.Warnings(time.Now()); len(warnings) > 0 {
		return palapi.Check{Name: "configuration", Verdict: palapi.Warn, Found: fmt.Sprintf("%s can be used, but %s", strings.Join(config, ", "), strings.Join(warnings, "; ")), Next: "correct or remove this setting"}
	}
	return palapi.Check{Name: "configuration", Verdict: palapi.OK, Found: strings.Join(config, ", ") + " can be used"}
}

// besideActive returns an error if an agent with this configuration must not run beside the active
// agent. If Nomad does not answer, another check says so.
func besideActive(b *base, file agent.File) error {
	client, err := b.client()
	if err != nil {
		return nil
	}
	active, err := heartbeat.ReadActivity(b.ctx, client, time.Now())
	if err != nil {
		return nil
	}
	return file.Beside(active)
}
