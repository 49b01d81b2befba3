// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Who answers. The agent sees all of Nomad and tells each token what it may know:
// its answers count GPUs that jobs of other namespaces hold. Reading Nomad with
// the caller's own token is what remains without it. The token goes to an agent
// only if its address was configured by whoever runs the command; one that stands
// in Nomad is asked without, see docs/operators/secure.md.

// askTimeout bounds one answer: an agent of a large cluster looks for seconds.
const askTimeout = 2 * time.Minute

// answers is who is asked.
type answers struct {
	b        *base
	nomad    *nomad.Client
	agent    *api.Client // nil: Nomad itself is read
	snapshot *query.Snapshot
	// note is what the answers lack, "" for nothing.
	note     string
	activity heartbeat.Activity
}

// ask finds out who is to be asked.
func (b *base) ask() (*answers, error) {
	client, err := b.client()
	if err != nil {
		return nil, err
	}
	a := &answers{b: b, nomad: client}
	if u, err := url.Parse(b.palAddress); b.palAddress != "" && (err != nil || u.Scheme == "" || u.Host == "") {
		return nil, fmt.Errorf("the agent's address %q (-pal-address, NOMAD_PAL_ADDR) is none such as http://127.0.0.1:8090", b.palAddress)
	}
	if b.palAddress != "" {
		return a, a.askAgent(b.palAddress, b.config())
	}
	if a.activity, err = heartbeat.ReadActivity(b.ctx, client, time.Now()); err != nil {
		return nil, err
	}
	cfg := b.config()
	switch {
	case a.activity.Address == "" || !a.activity.Working:
	case cfg.SecretID == "" && cfg.HttpAuth == nil && cfg.TLSConfig.ClientCert == "":
		return a, a.askAgent(a.activity.Address, cfg)
	default:
		a.note = fmt.Sprintf("to ask the agent, which sees all GPUs in use: NOMAD_PAL_ADDR=%s. Your token then goes there", a.activity.Address)
	}
	return a, a.look()
}

// askAgent asks an agent, and Nomad if that does not answer as one does.
func (a *answers) askAgent(address string, cfg *api.Config) error {
	cfg.Address, cfg.TLSConfig.TLSServerName = address, ""
	at, err := nomad.NewClient(cfg, "")
	if err == nil {
		a.agent = at.API()
		err = a.get("/v1/agent", "", &a.activity)
	}
	if err == nil {
		return nil
	}
	a.agent = nil
	a.note = fmt.Sprintf("the agent at %s does not answer: %v", address, err)
	return a.look()
}

// look reads Nomad itself.
func (a *answers) look() (err error) {
	if a.snapshot, err = placer.Refresh(a.b.ctx, a.nomad, a.snapshot); err == nil {
		a.activity = a.snapshot.Activity
	}
	return err
}

// noNamespace says that Nomad has no namespace of the name that the command was given; nil if it
// has one, or does not tell. It is asked where there is nothing else to show.
func (b *base) noNamespace(client *nomad.Client) error {
	return b.hasNone(client, b.namespace)
}

// hasNone is the same of any namespace: a job file may name one of its own.
func (b *base) hasNone(client *nomad.Client, namespace string) error {
	all, _, err := client.API().Namespaces().List((&api.QueryOptions{}).WithContext(b.ctx))
	names := each(all, func(n *api.Namespace) string { return n.Name })
	if err != nil || len(names) == 0 || namespace == "*" || slices.Contains(names, namespace) {
		return nil
	}
	slices.Sort(names)
	if near := nearest.Name(namespace, names); near != "" {
		return fmt.Errorf("no namespace %q (did you mean %q?)", namespace, near)
	}
	if len(names) == 1 {
		return fmt.Errorf("no namespace %q: there is only %q", namespace, names[0])
	}
	return fmt.Errorf("no namespace %q: there are %s", namespace, firstOf(names))
}

// askAgain has the next answers be new ones; a is nil if nobody was asked before.
func (b *base) askAgain(a *answers) (*answers, error) {
	switch {
	case a == nil:
		return b.ask()
	case a.agent == nil:
		return a, a.look()
	}
	return a, a.get("/v1/agent", "", &a.activity)
}

func (a *answers) get(path, namespace string, out any) error {
	ctx, cancel := context.WithTimeout(a.b.ctx, askTimeout)
	defer cancel()
	_, err := a.agent.Raw().Query(path, out, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	return a.plain(err)
}

// plain is an agent's refusal in its own words.
func (a *answers) plain(err error) error {
	unexpected, ok := errors.AsType[api.UnexpectedResponseError](err)
	if ok && unexpected.HasBody() && unexpected.StatusCode() != http.StatusNotFound {
		return refusal{fmt.Sprintf("the agent answers %d: %s", unexpected.StatusCode(), strings.TrimSpace(unexpected.Body())), err}
	}
	return err
}

// refusal is an agent's, in its own words.
type refusal struct {
	text  string
	cause error
}

func (r refusal) Error() string { return r.text }
func (r refusal) Unwrap() error { return r.cause }

// Jobs are all jobs with GPUs that have not ended.
func (a *answers) Jobs() (jobs []model.JobStatus, err error) {
	if a.agent == nil {
		return a.snapshot.Jobs(), nil
	}
	return jobs, a.get("/v1/queue", "", &jobs)
}

// Tenants are how the tenants stand; none where the agent does not know that yet.
func (a *answers) Tenants() (tenants []queue.TenantUse) {
	if a.agent == nil {
		return a.snapshot.Tenants(func(string) bool { return true })
	}
	if a.get("/v1/tenants", "", &tenants) != nil {
		return nil // an agent of an earlier version
	}
	return tenants
}

// GPUs are all GPUs.
func (a *answers) GPUs() (gpus []query.GPU, err error) {
	if a.agent == nil {
		return a.snapshot.GPUs(), nil
	}
	return gpus, a.get("/v1/gpus", "", &gpus)
}

// Profile is the version of the profile in force, 0 for none.
func (a *answers) Profile() (int, error) {
	if a.agent == nil {
		if p := a.snapshot.Model().Profile; p != nil {
			return p.Version, nil
		}
	}
	p, err := store.In(a.nomad).Profile().ReadOrRefused(a.b.ctx)
	if p == nil {
		return 0, err
	}
	return p.Version, err
}

// Warnings are for operators: others get none.
func (a *answers) Warnings() []string {
	if a.agent == nil {
		return a.snapshot.Warnings()
	}
	h, err := a.health()
	if err != nil {
		return nil // trouble of the agent's is what the activity says
	}
	return h.Warnings
}

// health is how the agent that is asked says it is.
func (a *answers) health() (h agent.Health, err error) {
	err = a.get("/v1/health", "", &h)
	if unexpected, ok := errors.AsType[api.UnexpectedResponseError](err); ok && unexpected.StatusCode() == http.StatusServiceUnavailable {
		err = json.Unmarshal([]byte(unexpected.Body()), &h) // it says what the trouble is
	}
	return h, err
}

// Explain says why.
func (a *answers) Explain(k nomad.JobKey) (*query.Explanation, error) {
	if a.agent == nil {
		ctx, cancel := context.WithTimeout(a.b.ctx, askTimeout)
		defer cancel()
		return a.snapshot.Explain(ctx, k)
	}
	e := &query.Explanation{}
	err := a.get("/v1/job/"+url.PathEscape(k.ID)+"/explain", k.Namespace, e)
	if unexpected, ok := errors.AsType[api.UnexpectedResponseError](err); ok && unexpected.StatusCode() == http.StatusNotFound {
		err = refusal{strings.TrimSpace(unexpected.Body()), nomad.ErrNoJob}
	}
	return e, err
}

// Plan says what would happen to a job.
func (a *answers) Plan(job *api.Job) (*query.Explanation, error) {
	ctx, cancel := context.WithTimeout(a.b.ctx, askTimeout)
	defer cancel()
	if a.agent == nil {
		return a.snapshot.Plan(ctx, job)
	}
	e := &query.Explanation{}
	_, err := a.agent.Raw().Write("/v1/plan", map[string]any{"Job": job}, e, (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(ctx))
	return e, a.plain(err)
}

// exitNoPlacer is the exit code of commands while no placer is at work.
const exitNoPlacer = 3

const exitCodes = `
Exit code 3: no placer is at work, so that nothing starts; the answer is printed
all the same.
`

// close says on standard error what the answers lack, and returns the exit code: 3
// if no placer is at work.
func (a *answers) close(code int) int {
	a.printNotes()
	if a.activity.Unknown != "" {
		a.say("Note: whether a placer is at work is not known: " + a.activity.Unknown)
	}
	if !a.activity.Idle() {
		return code
	}
	a.say(idleSentence(a.activity, time.Now()))
	return cmp.Or(code, exitNoPlacer)
}

func (a *answers) say(text string) { fmt.Fprintln(a.b.io.err, oneLine(text)) }

// printNotes says on standard error what the answers lack.
func (a *answers) printNotes() {
	switch part := a.part(); {
	case part != "":
		a.say("Note: " + part)
	case a.note != "":
		a.say("Note: " + a.note)
	}
}

// part says that Nomad was read by a token that may not see everything.
func (a *answers) part() string {
	if a.agent != nil || !a.b.seesPart(a.nomad) {
		return ""
	}
	text := partSeen
	if a.note == "" {
		return text + ". NOMAD_PAL_ADDR names an agent to ask instead"
	}
	return text + "; " + a.note
}

// partSeen is said of what was read from Nomad by a token that may not see everything.
const partSeen = "read from Nomad with your token: GPUs of jobs that it cannot see look free"

// seesPart says whether the token may not see everything.
func (b *base) seesPart(client *nomad.Client) bool {
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	return !aclDisabled(self, err) && (err != nil || self.Type != "management")
}

// aclDisabled says whether Nomad answered that it has no access control: by an error, or,
// as 1.11.3 does, by a token of that name.
func aclDisabled(self *api.ACLToken, err error) bool {
	if unexpected, ok := errors.AsType[api.UnexpectedResponseError](err); ok {
		return strings.Contains(unexpected.Body(), "ACL support disabled")
	}
	return err == nil && self.AccessorID == "acls-disabled"
}

// idleSentence says since when no placer has been at work.
func idleSentence(a heartbeat.Activity, now time.Time) string {
	const nothing = ": nothing starts until one is"
	switch {
	case a.Since.IsZero() && a.Trouble != "":
		return fmt.Sprintf("No placer is at work%s. The agent %s: %s.", nothing, a.Agent, a.Trouble)
	case a.Since.IsZero():
		return "No placer is at work, and none has been yet" + nothing + " (nomad-pal agent)."
	case a.Trouble != "":
		return fmt.Sprintf("No placer has been at work since %s%s. The agent %s: %s.", when(a.Since, now), nothing, a.Agent, a.Trouble)
	}
	return fmt.Sprintf("No placer has been at work since %s%s. The last was %s.", when(a.Since, now), nothing, cmp.Or(a.Agent, "unknown"))
}

// workSentence says who is at work.
func workSentence(a heartbeat.Activity, now time.Time) string {
	switch {
	case a.Unknown != "":
		return "not known: " + a.Unknown
	case a.Idle():
		return idleSentence(a, now)
	}
	return fmt.Sprintf("at work since %s: %s, %s", when(a.Since, now), a.Agent, a.Version)
}
