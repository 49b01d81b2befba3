// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/advice"
	"github.com/nomad-pal/nomad-pal/internal/race"
)

// followedBy are texts that commands do not show, each with the test that follows its advice.
var followedBy = map[string]string{
	"To start a run: ":          "TestControlOfArray",
	"\nTo start a run: %s":      "TestControlOfArray",
	"nomad job dispatch ":       "TestControlOfArray",
	"nomad job periodic force ": "TestStartRun",
	"\nTo set variables: -var <name>=<value>, or -var-file <file>":                                            "TestUnsetVariables",
	"To promote version %d%s: nomad deployment promote %s. To give up this version: nomad deployment fail %s": "testCanaryByHand",
	"give the CA of the agent's certificate (-ca-cert) or, if you trust the address, set NOMAD_PAL_ADDR=":     "TestTokenTravelsProtected",
	"server.<region>.nomad (nomad tls cert create -client)":                                                   "TestFollowsHints",
	"\nServers with tls { rpc = true } accept only TLS connections: set ca_cert, client_cert and client_key":  "TestFollowsHints",
	"On the best GPUs that are free now, the job would take %.2f times as long as on its present GPUs. With pal_migrate = true the placer may move the job, if the agent's configuration has queue { migrate = true }.": "TestMovesAGang",
	"To make Nomad try the missing member once more: nomad job eval -force-reschedule ":                                                                "testTriedOnceMore",
	"Set the job's expected run time (pal_duration), because no earlier run of the job shows how long the job runs.":                                   "TestAsksForAnEstimate",
	"request the same number of parts per member in both groups, or add pal_neighbours = \"any,self\"":                                                 "TestUnlikePartsOfAGang",
	"the agent is processing too many requests that contain jobs: try again":                                                                           "TestBodiesShareRoom",
	"cannot listen on the default port: running without the HTTP API; set http { bind_port } to use another port":                                      "TestDefaultPortIsTaken",
	"the agent's %s %s on %s: renew it, and reload the agent":                                                                                          "TestExpiringCertificates",
	"two placers, %s and %s, are active and disturb each other: stop one of the two, or give both the same block high_availability { enabled = true }": "TestTwoAtWork",
	"; if the first node is an earlier installation, purge it: nomad operator api -X PUT /v1/node/%s/purge":                                            "TestPurgeAdvice",
	"wait a minute if another agent stands by; otherwise start one (nomad-pal agent), or set NOMAD_PAL_ADDR":                                           "TestLastSeen",
	"look at this agent's log; a standby agent takes over within a minute":                                                                             "TestWithoutAgent",
	"start one (nomad-pal agent), or set NOMAD_PAL_ADDR":                                                                                               "TestWithoutAgent",
	" (to lift the hold: nomad-pal hold -lift <job>)":                                                                                                  "TestHold",
	"%s is a script, not a jobspec. To run it on a GPU, if the nodes can read it: nomad-pal shell -- %s. For an example of a jobspec: nomad-pal init":  "TestRunOfScript",
	"To lift the hold: nomad-pal hold -lift ":                                                                                                          "TestHold",
	"priority %d (set with nomad-pal priority; the jobspec has %d)":                                                                                    "TestPriority",
	" (nomad-pal requeue)":                     "TestRequeue",
	"To see its state: nomad-pal explain %s\n": "TestHold",
	"give at least one job; see nomad-pal ":    "TestHold",
	"Note: no job has %s as its user. The meta %s is a job's user; nomad-pal run adds it if %s is set": "TestMine",
	"finding out who is logged in: %w; set %s":                                                         "TestMine",
	"asking Nomad for the name of the token: %w; set NOMAD_TOKEN, or %s":                               "TestMine",
	"stopping jobs: no job is given; give one or use -mine":                                            "TestMine",
	"-reason must have 1 to %d bytes":                                                                  "TestOperatorsQuarantine",
	"give at least one GPU":                                                                            "TestOperatorsQuarantine",
	"job %q is parameterized or periodic: give the id of one of its runs (%s)":                         "TestCancelOfAnArray",
	"%q matches %d GPUs: give the full id of one of them (nomad-pal gpus)":                             "TestOperatorsQuarantine",
	"GPU ids require -reason or -lift, and -all requires -lift; see nomad-pal quarantine -help":        "TestOperatorsQuarantine",
	"find in the logs of this agent and of Nomad's servers why the heartbeat is late":                  "TestDoctorAsksSilentAgent",
	"set NOMAD_PAL_ADDR":                 "TestWithoutAgent",
	"set NOMAD_TOKEN, or NOMAD_PAL_ADDR": "TestCommandsAskTheAgent",
	"Nomad took %s to answer, but an agent with lock_ttl = %s keeps the lock only if Nomad answers within %s: find out why Nomad is slow, or set high_availability { lock_ttl = %q } for all agents":      "TestElectionWithSlowAnswers",
	"Warning: this Nomad ignores max_run_duration, which needs Nomad 2.0.3, so the job has no time limit. Instead, end the task after 6 hours as successful: timeout 6h python train.py || test $? = 124": "TestRunWithoutTimeLimit",
	"set http { advertise } in the agent's configuration, or set NOMAD_PAL_ADDR":                                                                                              "TestWithoutAgent",
	"run the command on %s, or set http { bind_address } in the agent's configuration":                                                                                        "TestWithoutAgent",
	"give the CA of its certificate (-ca-cert)":                                                                                                                               "TestTLSIsExplained",
	"renew its certificate, and make the server load the new one; or, if the certificate is still valid, correct this machine's clock":                                        "TestTLSIsExplained",
	"start an agent: nomad-pal agent; if one runs whose configuration sets nomad { namespace }, give this namespace (-pal-namespace)":                                         "TestDoctor",
	"Nomad has placed no member of %s (the first was started %s): nomad-pal doctor shows whether Nomad's evaluations are paused; if not, look at the load of Nomad's servers": "TestNothingIsEvaluated",
	"use a name in the address for which the certificate is valid":                                                                                                            "TestTLSIsExplained",
	"write http:// in the address, because the server does not use TLS":                                                                                                       "TestTLSIsExplained",
	"write https:// in the address, because the server uses TLS":                                                                                                              "TestTLSIsExplained",
	"use a certificate that the server accepts (-client-cert, -client-key)":                                                                                                   "TestTLSIsExplained",
	"leave out -tls-skip-verify, and give the CA of the agent's certificate (-ca-cert)":                                                                                       "TestTLSIsExplained",
	"set NOMAD_PAL_ADDR, or http { advertise } in the agent's configuration, to an address for which the agent's certificate is valid":                                        "TestTLSIsExplained",
	"commands reject the certificate at the address that this agent publishes: set http { advertise } to an address for which the certificate is valid":                       "TestPublishedNameIsNotInCertificate",
	"give the agent a certificate, or send the token unprotected (-pal-token-plain)":                                                                                          "TestTokenTravelsProtected",
	": the active agent does not accept this agent's certificate (%v); set nomad { client_cert, client_key } in this agent's configuration":                                   "TestStandbyNeedsCertificate",
	"this standby agent is already forwarding too many requests: ask the active agent directly, or try again later":                                                           "TestStandbyForwardsNotTooMany",
	"agent %s forwarded the request to this agent as if it were active: try again in a moment; if the error persists, correct http { advertise } of the active agent":         "TestStandbyForwards",
	"the active agent, %s, publishes no address: set http { advertise } in the configuration of the active agent":                                                             "TestStandbyCannotForward",
	"the active agent, %s, listens only on its own machine: set http { bind_address } in the configuration of the active agent":                                               "TestStandbyCannotForward",
	"does not forward your request to the active agent, %s at %s: %w; send the request to the active agent directly, or set %s in this agent's configuration":                 "TestStandbyCannotForward",
}

// adviceParts provoke advice and follow it.
var adviceParts = map[string]func(*testing.T, *advice.Followed){
	"jobs": adviceOnJobs, "typing": adviceOnTyping, "checks": adviceOfChecks, "traces": adviceOnTraces, "commands": adviceOnCommands, "lives": adviceOnLives, "doctor": adviceOfDoctor, "hardware": adviceOnHardware, "templates": adviceOnTemplates,
}

// A user who follows a piece of advice gets what it promises. One of the parts has to provoke and
// follow each piece of advice in the code.
func TestAdvice(t *testing.T) {
	followed, ran := &advice.Followed{}, 0
	for _, name := range slices.Sorted(maps.Keys(adviceParts)) {
		t.Run(name, func(t *testing.T) {
			ran++
			adviceParts[name](t, followed)
		})
	}
	if t.Failed() || ran < len(adviceParts) || race.Enabled {
		return // not all parts ran; with the race detector, only a sample does
	}
	finder, err := advice.NewFinder("../../../docs", "gang/table.go", "model/keys.go")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := advice.Linked(".")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := finder.In(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range followed.Rest(texts) {
		if by := followedBy[text.Text]; by == "" {
			t.Errorf("%s: no test follows the advice %q: provoke and follow it in one of adviceParts", text.Where, text.Text)
		} else if !isTest(t, by) {
			t.Errorf("the test for %q, %s, does not exist", text.Text, by)
		}
	}
}

// isTest reports whether a test of this name exists in a package with advice.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	var files []string
	for _, in := range []string{"*_test.go", "../../*/*_test.go", "../../nomadtest/bed/*_test.go", "../../../e2e/*_test.go"} {
		some, err := filepath.Glob(in)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

// typed is a command line that causes advice about itself, and the command line that
// follows the advice.
type typed struct {
	wrong  []string
	says   string
	right  []string
	shows  string // "": anything but an error
	before func()
}

// follows types the wrong command, and then the advised one.
func (c *testCluster) follows(f *advice.Followed, of typed) {
	c.t.Helper()
	code, out, said := c.does(of.wrong...)
	if !f.Add(out+said, of.says) {
		c.t.Errorf("%q: %d, want advice %q\n%s%s", of.wrong, code, of.says, out, said)
	}
	if of.before != nil {
		of.before()
	}
	code, out, said = c.does(of.right...)
	if code == 1 || code > 100 || strings.Contains(said, "Error:") || !strings.Contains(out+said, of.shows) || advice.Shows(out+said, of.says) {
		c.t.Errorf("%q, as advised: exit code %d, want %q\n%s%s", of.right, code, of.shows, out, said)
	}
}
