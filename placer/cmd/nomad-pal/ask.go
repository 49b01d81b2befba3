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
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// The commands are clients of the agent. The agent reads all of Nomad, and shows each token only
// what the token may see. NOMAD_PAL_ADDR names the agent; without it, commands use the address that
// the agent publishes in Nomad. Commands that work without an agent read Nomad directly: see
// plain.go.

const (
	// askTimeout is the time limit for one answer. On a large cluster, an answer takes seconds.
	askTimeout = 2 * time.Minute
	// reachTimeout is the time limit for the first answer, which costs the agent little.
	reachTimeout = 10 * time.Second
)

// answers reads data from an agent and, if the agent does not serve the data, from Nomad.
type answers struct {
	b     *base
	nomad *nomad.Client
	agent *api.Client
	// address is the agent's address. told is where the command found the address.
	address, told string
	activity      palapi.Activity
}

// noAgent is the error for a missing agent or, if refused is set, for an agent that cannot serve
// the request. looked describes where the command looked for an agent. next is what the user can
// do.
type noAgent struct {
	looked, next string
	cause        error
	refused      bool
}

func (e noAgent) Error() string {
	if e.refused {
		return "no active agent answers: " + e.looked + ": " + e.next
	}
	return "no agent answers: " + e.looked + ": " + e.next
}
func (e noAgent) Unwrap() error { return e.cause }

// lacksAgent reports whether err means that no agent answers.
func lacksAgent(err error) bool { _, lacks := errors.AsType[noAgent](err); return lacks }

// ask finds the agent, connects to it, and asks whether a placer is active.
func (b *base) ask() (*answers, error) {
	client, err := b.client()
	if err != nil {
		return nil, err
	}
	a := &answers{b: b, nomad: client, address: b.palAddress, told: "NOMAD_PAL_ADDR"}
	if b.given("pal-address") {
		a.told = "-pal-address"
	}
	if a.address == "" {
		if err := a.findPublished(time.Now()); err != nil {
			return nil, err
		}
	} else if u, err := url.Parse(a.address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the agent's address %q (%s) is not a URL; example: http://127.0.0.1:8090", a.address, a.told)
	}
	return a, a.connect()
}

// findPublished reads the address that the active agent has published in Nomad.
func (a *answers) findPublished(now time.Time) error {
	is, err := heartbeat.ReadActivity(a.b.ctx, a.nomad, now)
	if err != nil {
		return err
	}
	missing := func(next, looked string, args ...any) error {
		return noAgent{looked: "NOMAD_PAL_ADDR is not set, and " + fmt.Sprintf(looked, args...), next: next}
	}
	const start, set = "start one (nomad-pal agent), or set NOMAD_PAL_ADDR", "set NOMAD_PAL_ADDR"
	a.told = fmt.Sprintf("published in Nomad %s by agent %s", palapi.Ago(is.Beaten, now), is.Agent)
	a.address = is.Address
	switch {
	case is.Agent == "" && is.Unknown != "" && a.b.config().SecretID == "":
		return missing("set NOMAD_TOKEN, or NOMAD_PAL_ADDR", "without a token, the address that an agent publishes in Nomad cannot be read")
	case is.Agent == "" && is.Unknown != "":
		unknown := a.b.tokenUnknown()
		if unknown != "" {
			return errors.New(unknown)
		}
		return missing(set, "the address that an agent publishes in Nomad cannot be read: %s", is.Unknown)
	case is.Agent == "":
		if _, err := a.nomad.API().Status().Leader(); err != nil { // the server is not Nomad, or Nomad is in trouble
			return err
		}
		return missing(start, "no agent has published its address in Nomad")
	case !heartbeat.Fresh(is, now):
		return missing("wait a minute if another agent stands by; otherwise start one (nomad-pal agent), or set NOMAD_PAL_ADDR", "agent %s, at %s, was last seen %s", is.Agent, cmp.Or(is.Address, "no address"), palapi.Ago(is.Beaten, now))
	case is.Address == "":
		return missing("set http { advertise } in the agent's configuration, or set NOMAD_PAL_ADDR", "agent %s publishes no address", is.Agent)
	case onlyThere(is):
		return missing(fmt.Sprintf("run the command on %s, or set http { bind_address } in the agent's configuration", is.Host()),
			"agent %s listens only on its own machine, at %s", is.Agent, is.Address)
	}
	return nil
}

// onlyThere reports whether only another machine can reach the agent's address.
func onlyThere(is palapi.Activity) bool {
	host, _ := os.Hostname() // if the host name is unknown, no agent counts as local
	return palapi.Loopback(is.Address) && is.Host() != host
}

// fails returns the error for an address at which no agent can be asked. told is where the command
// found the address.
func fails(address, told, next string, err error) error {
	return noAgent{looked: fmt.Sprintf("%s (%s): %s", address, told, oneLine(err.Error())), next: next, cause: err}
}

// protected returns an error if the user's token must not be sent to the address. published means
// that an agent named the address, and not the user.
func (b *base) protected(address, told string, published bool) error {
	cfg := b.config()
	err := palapi.Unprotected(address, published, cfg.TLSConfig)
	switch {
	case err == nil || b.tokenPlain || cfg.SecretID == "" && cfg.HttpAuth == nil:
		return nil
	case strings.HasPrefix(address, "https:"):
		return fails(address, told, "give the CA of the agent's certificate (NOMAD_CACERT), without NOMAD_SKIP_VERIFY, or, if you trust the address, set NOMAD_PAL_ADDR="+address, err)
	}
	return fails(address, told, "give the agent a certificate, or send the token unprotected (NOMAD_PAL_TOKEN_PLAIN=true)", err)
}

// redirected decides whether a request follows the redirect of a standby agent to the active one,
// with the user's token. The rules are those of a published address.
func (a *answers) redirected(r *http.Request, via []*http.Request) error {
	address, told := r.URL.Scheme+"://"+r.URL.Host, "the standby agent at "+a.address+" redirects there"
	switch {
	case len(via) > 2:
		return fails(address, told, "set http { advertise } of each agent to the agent's own address", errors.New("the agents redirect to each other"))
	case palapi.Loopback(address) && !palapi.Loopback(a.address):
		return fails(address, told, "set http { bind_address } in the active agent's configuration", errors.New("the active agent listens only on its own machine"))
	}
	if err := a.b.protected(address, told, true); err != nil {
		return err
	}
	r.Header = via[0].Header.Clone() // Go leaves out the password of NOMAD_HTTP_AUTH for another host
	return nil
}

// connect checks, without a token, that an agent answers at the address.
func (a *answers) connect() error {
	if err := a.b.protected(a.address, a.told, a.b.palAddress == ""); err != nil {
		return err
	}
	cfg := a.b.config()
	cfg.Address, cfg.TLSConfig.TLSServerName = a.address, ""
	through, err := nomad.HTTPClient(cfg, 0)
	if err != nil {
		return err
	}
	through.CheckRedirect = a.redirected
	cfg.HttpClient = through
	at, err := nomad.NewClient(cfg, "")
	if err != nil {
		return err
	}
	a.agent = at.API()
	a.agent.SetSecretID("")
	if err := a.hear(reachTimeout); err != nil {
		if answer, ok := errors.AsType[api.UnexpectedResponseError](err); ok && answer.StatusCode() == http.StatusBadGateway {
			return noAgent{looked: fmt.Sprintf("%s (%s): %s", a.address, a.told, err), next: "look at this agent's log; a standby agent takes over within a minute", cause: err, refused: true}
		}
		return fails(a.address, a.told, cmp.Or(remedyTLS(err), "is an agent running there?"), err)
	}
	a.agent.SetSecretID(cfg.SecretID)
	return nil
}

// hear asks the agent whether a placer is active, and records the answer in a.activity.
func (a *answers) hear(within time.Duration) error {
	is := palapi.Activity{}
	if err := a.within(within, "/v1/agent", nil, &is); err != nil {
		return err
	}
	a.activity = is
	return nil
}

// noNamespace returns an error if Nomad does not have the namespace, or hides it from the token.
// noNamespace returns nil if Nomad has the namespace, or if the namespaces cannot be listed.
// Commands call noNamespace when they have nothing else to show.
func (b *base) noNamespace(client *nomad.Client, namespace string) error {
	all, _, err := client.API().Namespaces().List((&api.QueryOptions{}).WithContext(b.ctx))
	names := each(all, func(n *api.Namespace) string { return n.Name })
	if err != nil || len(names) == 0 || namespace == "*" || slices.Contains(names, namespace) {
		return nil
	}
	slices.Sort(names)
	none := fmt.Sprintf("no namespace %q", namespace)
	if b.seesPart(client) { // Nomad lists only the namespaces in which the token has rights
		none += " that your token can see"
	}
	return fmt.Errorf("%s%s: there are %s", none, nearest.Question(namespace, names), firstOf(names))
}

// get sends a request to the agent, with the parameters in q, and decodes the answer into out.
func (a *answers) get(path string, q url.Values, out any) error {
	return a.within(askTimeout, path, q, out)
}

func (a *answers) within(d time.Duration, path string, q url.Values, out any) error {
	ctx, cancel := context.WithTimeout(a.b.ctx, d)
	defer cancel()
	_, err := a.agent.Raw().Query(path+"?"+q.Encode(), out, (&api.QueryOptions{}).WithContext(ctx))
	return a.plain(err)
}

// notServed is the body that Go's HTTP server returns for an unknown path.
const notServed = "404 page not found"

// plain turns the error of a request that an agent refused into an error with a plain sentence.
func (a *answers) plain(err error) error {
	if none, ok := errors.AsType[noAgent](err); ok { // see redirected
		return none
	}
	unexpected, ok := errors.AsType[api.UnexpectedResponseError](err)
	if !ok || !unexpected.HasBody() {
		return err
	}
	body := strings.TrimSpace(unexpected.Body())
	code := unexpected.StatusCode()
	switch {
	case code == http.StatusNotFound && body == notServed:
		return refusal{fmt.Sprintf("the agent at %s does not serve this request: the server is not an agent of nomad-pal, or has another version (%s; this command is %s)",
			a.address, cmp.Or(a.activity.Version, "not known"), version.Human()), err}
	case code == http.StatusNotFound && strings.HasPrefix(body, nomad.ErrNoJob.Error()+" "):
		return refusal{body, nomad.ErrNoJob}
	case code == http.StatusNotFound:
		return err
	case code == http.StatusServiceUnavailable && strings.HasPrefix(body, "the history "): // only the history is unavailable; the agent serves other requests
		return refusal{fmt.Sprintf("the agent at %s answers: %s", a.address, body), err}
	case code == http.StatusServiceUnavailable:
		return noAgent{looked: fmt.Sprintf("%s (%s): %s", a.address, a.told, body), next: "nomad-pal doctor explains more", cause: err, refused: true}
	default:
		return refusal{fmt.Sprintf("the agent answers %d: %s", code, body), err}
	}
}

// refusal is the error for a request that an agent refused, in the agent's words.
type refusal struct {
	text  string
	cause error
}

func (r refusal) Error() string { return r.text }
func (r refusal) Unwrap() error { return r.cause }

// Jobs returns all jobs with GPUs that have not ended.
func (a *answers) Jobs() (jobs []palapi.JobStatus, err error) {
	return jobs, a.get("/v1/queue", nil, &jobs)
}

// Tenants returns what each tenant holds and has used.
func (a *answers) Tenants() (tenants []queue.TenantUse, err error) {
	return tenants, a.get("/v1/tenants", nil, &tenants)
}

func (a *answers) GPUs() (gpus []palapi.GPU, err error) { return a.SomeGPUs(palapi.GPUFilter{}, false) }

// SomeGPUs returns the GPUs of f.Nodes that f.Job holds. An empty f.Nodes or f.Job selects all.
// SomeGPUs ignores the other conditions of the filter. live adds the current load of the GPUs.
func (a *answers) SomeGPUs(f palapi.GPUFilter, live bool) (gpus []palapi.GPU, err error) {
	q := url.Values{"node": f.Nodes}
	if f.Job != "" {
		q.Set("job", f.Job)
	}
	if live {
		q.Set("live", "true")
	}
	return gpus, a.get("/v1/gpus", q, &gpus)
}

// Warnings returns the active agent's warnings, or none if the token is not an operator's.
func (a *answers) Warnings() []string {
	h, err := a.health(url.Values{"active": {"true"}})
	if err != nil {
		return nil // the activity already reports that the agent is in trouble
	}
	return h.Warnings
}

// health returns the health of the agent that was asked. With active=true in q, health returns the
// health of the active agent.
func (a *answers) health(q url.Values) (h palapi.Health, err error) {
	err = a.get("/v1/health", q, &h)
	if unexpected, ok := errors.AsType[api.UnexpectedResponseError](err); ok && unexpected.StatusCode() == http.StatusServiceUnavailable {
		err = json.Unmarshal([]byte(unexpected.Body()), &h) // an agent in trouble also describes its health in the body
	}
	return h, err
}

func (a *answers) Explain(k cluster.JobKey) (*palapi.Explanation, error) {
	e := &palapi.Explanation{}
	return e, a.get("/v1/job/"+url.PathEscape(k.ID)+"/explain", url.Values{"namespace": {k.Namespace}}, e)
}

// Plan explains what would happen to a job that nomad-pal run registers.
func (a *answers) Plan(job *api.Job) (*palapi.Explanation, error) {
	ctx, cancel := context.WithTimeout(a.b.ctx, askTimeout)
	defer cancel()
	e := &palapi.Explanation{}
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(ctx)
	_, err := a.agent.Raw().Write("/v1/plan", map[string]any{"Job": job}, e, w)
	return e, a.plain(err)
}

// exitNoPlacer is the exit code of commands while no placer is active.
const exitNoPlacer = 3

const exitCodes = `
Exit code 3: no agent answers, or none is active. The answer is still printed.
`

// close prints to standard error whether no placer is active. close returns the exit code:
// exitNoPlacer if no placer is active and code is 0, otherwise code.
func (a *answers) close(code int) int {
	if a.activity.Unknown != "" {
		fmt.Fprintln(a.b.io.err, "Note: cannot find out whether an agent is active:", oneLine(a.activity.Unknown))
	}
	if !a.activity.Idle() {
		return code
	}
	fmt.Fprintln(a.b.io.err, oneLine(idleSentence(a.activity, time.Now())))
	return cmp.Or(code, exitNoPlacer)
}

// seesPart reports whether the token may see only part of the cluster.
func (b *base) seesPart(client *nomad.Client) bool {
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	return !aclDisabled(self, err) && (err != nil || self.Type != "management")
}

// aclDisabled reports whether Nomad's answer means that ACLs are off. Nomad answers with an error
// or, in version 1.11.3, with a token whose accessor is "acls-disabled".
func aclDisabled(self *api.ACLToken, err error) bool {
	if unexpected, ok := errors.AsType[api.UnexpectedResponseError](err); ok {
		return strings.Contains(unexpected.Body(), "ACL support disabled")
	}
	return err == nil && self.AccessorID == "acls-disabled"
}

// idleSentence describes since when no placer has been active.
func idleSentence(a palapi.Activity, now time.Time) string {
	const nothing = ": until an agent is active, no job with a gate starts"
	switch {
	case a.Since.IsZero() && a.Trouble != "":
		return fmt.Sprintf("No agent is active%s. The agent %s: %s.", nothing, a.Agent, a.Trouble)
	case a.Since.IsZero():
		return "No agent has been active yet" + nothing + " (nomad-pal agent)."
	case a.Trouble != "":
		return fmt.Sprintf("No agent has been active since %s%s. The agent %s: %s.", palapi.When(a.Since, now), nothing, a.Agent, a.Trouble)
	}
	return fmt.Sprintf("No agent has been active since %s%s. The last was %s.", palapi.When(a.Since, now), nothing, cmp.Or(a.Agent, "unknown"))
}

// workSentence names the active agent.
func workSentence(a palapi.Activity, now time.Time) string {
	switch {
	case a.Unknown != "":
		return "not known: " + a.Unknown
	case a.Idle():
		return idleSentence(a, now)
	}
	return fmt.Sprintf("active since %s: %s, %s", palapi.When(a.Since, now), a.Agent, a.Version)
}

// pause waits for the duration d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
