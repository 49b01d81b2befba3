// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/advice"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// broken is a failing check of doctor, its advice, and how to follow the advice.
type broken struct {
	check, says string
	before      func()
	args, then  []string // doctor's arguments, before and after
	follow      func()
	becomes     query.Verdict // "": the check is no longer shown
}

// mends follows doctor's advice, after which the check must have its new
// verdict.
func (c *testCluster) mends(f *advice.Followed, of broken) {
	c.t.Helper()
	if of.before != nil {
		of.before()
	}
	k := c.check(of.check, of.args...)
	if k == nil || k.Verdict == query.OK || !f.Add(k.Found+" "+k.Next, of.says) {
		c.t.Errorf("%s: %+v, want advice %q", of.check, k, of.says)
		return
	}
	if of.follow != nil {
		of.follow()
	}
	args := of.then
	if args == nil {
		args = of.args
	}
	c.until(of.check+" is well", func() bool {
		k := c.check(of.check, args...)
		return k == nil && of.becomes == "" || k != nil && k.Verdict == of.becomes
	})
}

// profileMade returns a function that stores a profile of two GPUs, made at
// this time.
func (c *testCluster) profileMade(version int, at time.Time) func() {
	return func() {
		var samples []profile.Sample
		for n := range 2 {
			for k := range 4 {
				for _, app := range pal.AppClasses() {
					samples = append(samples, profile.Sample{GPU: fmt.Sprintf("GPU-%d-%d", n, k), Model: "NVIDIA H200", App: app, Time: 1})
				}
			}
		}
		p, err := profile.Build(samples, profile.DefaultOptions(), nil)
		if err != nil {
			c.t.Fatal(err)
		}
		p.Created, p.Version = at.UTC().Format(time.RFC3339), version
		if err := store.In(c.client("")).Profile().Write(c.t.Context(), p); err != nil {
			c.t.Fatal(err)
		}
	}
}

// types runs one of our commands, which must print something.
func (c *testCluster) types(shows string, args ...string) {
	c.t.Helper()
	if code, out, said := c.does(args...); code != 0 || !strings.Contains(out, shows) {
		c.t.Errorf("%q: %d, want %q\n%s%s", args, code, shows, out, said)
	}
}

// adviceOfChecks follows doctor's advice about Nomad, its clients, GPUs and profile.
func adviceOfChecks(t *testing.T, f *advice.Followed) {
	c := newCluster(t)
	nodes := func(change func(*api.Node)) func() {
		return func() {
			for i := range 2 {
				n := nomadtest.GPUNode(i, 4)
				n.Attributes = map[string]string{"driver.raw_exec": "1", "nomad.version": "1.11.3", "kernel.name": "linux"}
				change(n)
				c.nomad.AddNode(n)
			}
		}
	}
	well := nodes(func(*api.Node) {})
	shows := func(name string, a api.Attribute) func() {
		return nodes(func(n *api.Node) { n.NodeResources.Devices[0].Attributes[name] = &a })
	}
	now := time.Now()
	for _, of := range []broken{
		{check: "profile", says: "or nomad-pal profile import", follow: func() {
			c.types("", "profile", "import", c.written("times.csv", "gpu,app,time\nGPU-0-0,A,100\nGPU-0-1,A,101\n"))
			c.profileMade(1, now)() // as an agent would make it
		}, becomes: query.OK},
		{check: "profile", says: "measure the GPUs again, because their speeds change over months", before: c.profileMade(2, now.AddDate(-1, 0, 0)), follow: c.profileMade(3, now), becomes: query.OK},
		{check: "profile", says: "check that the device plugins on these clients can read the variables nomad-pal/*; a plugin looks for a new profile about once a minute",
			before: shows(attr.ProfileVersion, api.Attribute{IntVal: new(int64(2))}), follow: shows(attr.ProfileVersion, api.Attribute{IntVal: new(int64(3))}), becomes: query.OK},
		{check: "measured gpus", says: "or nomad-pal profile import; until then, these GPUs count as median GPUs", before: nodes(func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "GPU-new-" + n.Name }), follow: func() {
			c.types("", "profile", "import", c.written("new.csv", "gpu,app,time\nGPU-new-node-0,A,100\nGPU-new-node-1,A,101\n"))
			well() // the test runs no agent, which would make a profile
		}, becomes: query.OK},
		{check: "measuring", says: "to see why, run nomad-device-pal doctor on the node; to measure with a job: jobspecs/measure.nomad.hcl",
			before: shows(attr.Measuring, api.Attribute{StringVal: new(attr.FormatAccounts(map[string]attr.Account{"GPU-0-0": {Waits: "nobody knows that it is idle"}}))}), follow: func() {
				shows(attr.Measuring, api.Attribute{StringVal: new(attr.FormatAccounts(map[string]attr.Account{"GPU-0-0": {}}))})()
			}, becomes: query.OK},
		{check: "nomad version", says: "check with nomad node status that there are clients, and that the token may read nodes", before: nodes(func(n *api.Node) { delete(n.Attributes, "nomad.version") }), follow: well, becomes: query.OK},
		{check: "nomad version", says: "or later; until then the placer requeues such gangs", before: nodes(func(n *api.Node) { n.Attributes["nomad.version"] = "1.10.5" }), follow: well, becomes: query.OK},
		{check: "gpus", says: "nomad-pal gpus shows why", before: func() { c.nomad.SetHealth(false, "GPU-0-0") }, follow: func() {
			c.types("unhealthy", "gpus")
			c.nomad.SetHealth(true, "GPU-0-0")
		}, becomes: query.OK},
		{check: "gate", says: "nomad node meta apply -unset pal_gate -node-id <id>", before: nodes(func(n *api.Node) { n.Meta["pal_gate"] = "open" }), follow: well, becomes: query.OK},
		{check: "agent's API", says: "is NOMAD_PAL_ADDR (or -pal-address) right?", args: []string{"-pal-address=nowhere"}, then: []string{"-pal-address=" + c.agent("", atAnyPort)}, becomes: query.OK},
		{check: "token", says: "nomad acl bootstrap", follow: func() {
			c.nomad.SetTokens(map[string]nomadtest.Token{"": {Management: true}, "root": {Management: true}})
		}, then: []string{"-token=root"}, becomes: query.OK},
		{check: "token", says: "nomad acl token create, with the agent's policy", args: []string{"-token=deleted"}, then: []string{"-token=root"}, becomes: query.OK},
		{check: "nomad", says: "is NOMAD_ADDR (or -address) right, and is Nomad running there?", args: []string{"-address=http://127.0.0.1:1"}, then: []string{"-address=" + c.url}, becomes: query.OK},
		{check: "reading nomad", says: "doctor needs a token that may read nodes", before: func() {
			c.nomad.SetTokens(map[string]nomadtest.Token{"": {Management: true}, "root": {Management: true}, "users": {Namespaces: map[string][]string{"default": {"list-jobs"}}}})
		}, args: []string{"-token=users"}, then: []string{"-token=root"}},
	} {
		c.mends(f, of)
	}
	c.mendsServers(f)
	c.mendsWarnings(f)
}

// mendsServers follows doctor's advice about Nomad's servers.
func (c *testCluster) mendsServers(f *advice.Followed) {
	answers := map[string]string{} // by path
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch answer, ok := answers[r.URL.Path]; {
		case r.URL.Query().Get("region") == "mars":
			http.Error(w, "No path to region", http.StatusInternalServerError)
		case !ok:
			c.nomad.ServeHTTP(w, r)
		case answer == "":
			http.Error(w, "No cluster leader", http.StatusInternalServerError)
		default:
			fmt.Fprint(w, answer)
		}
	}))
	defer between.Close()
	const leader, scheduler = "/v1/status/leader", "/v1/operator/scheduler/configuration"
	there := []string{"-address=" + between.URL}
	set := func(path, answer string) func() { return func() { answers[path] = answer } }
	for _, of := range []broken{
		{check: "nomad", says: "choose one of these regions (-region or NOMAD_REGION)", args: []string{"-region=mars"}, then: there, becomes: query.OK},
		{check: "nomad", says: "nomad server members, and the logs of the servers", before: set(leader, ""), follow: func() { delete(answers, leader) }, becomes: query.OK},
		{check: "nomad", says: "nomad server members", before: set(leader, `""`), follow: func() { delete(answers, leader) }, becomes: query.OK},
		{check: "reading nomad", says: query.NextServers, before: set("/v1/jobs", ""), follow: func() { delete(answers, "/v1/jobs") }},
		{check: "scheduler", says: "nomad operator scheduler set-config -pause-eval-broker=false", before: set(scheduler, `{"SchedulerConfig":{"PauseEvalBroker":true}}`), follow: set(scheduler, `{"SchedulerConfig":{"PauseEvalBroker":false}}`)},
		{check: "scheduler", says: "nomad operator scheduler set-config -reject-job-registration=false", before: set(scheduler, `{"SchedulerConfig":{"RejectJobRegistration":true}}`), follow: set(scheduler, `{"SchedulerConfig":{}}`)},
	} {
		of.args = append(of.args, there...)
		c.mends(f, of)
	}
}

// mendsWarnings reads a warning in status, as doctor advises, until the warning
// ends.
func (c *testCluster) mendsWarnings(f *advice.Followed) {
	const window = "window \"w\" {\n  cron = \"0 2 * * 0\"\n  duration = \"1h\"\n  nodes = [\"none\"]\n}\n"
	c.t.Run("an agent with a warning", func(t *testing.T) {
		in := *c
		in.t = t
		url := in.agent("", atAnyPort+window)
		in.until("doctor warns", func() bool {
			k := in.check("agent's API", "-pal-address="+url)
			return k != nil && strings.Contains(k.Found, "covers no GPU") && f.Add(k.Next, query.NextStatus)
		})
		if code, out, said := in.does("status", "-pal-address="+url); code != 0 || !strings.Contains(oneLine(out+said), "covers no GPU") {
			t.Errorf("status: %d %s%s", code, out, said)
		}
	})
	c.t.Run("and without", func(t *testing.T) {
		in := *c
		in.t = t
		url := in.agent("", atAnyPort)
		in.until("doctor finds no problem", func() bool {
			k := in.check("agent's API", "-pal-address="+url)
			return k != nil && k.Verdict == query.OK
		})
	})
}
