// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/live"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// server is the HTTP API under one configuration. server shows jobs and GPUs only to callers to
// whom Nomad would show them: see [caller]. Each handler checks the caller's token before it uses
// data that was read with the agent's own token. The health, activity, metrics, samples and
// admission endpoints need no token, and their answers to callers without a token name no jobs,
// nodes or GPUs.
type server struct {
	agent     *Agent
	file      File
	cfg       model.Config
	snapshots *snapshots
	// activities answers /v1/agent, which needs no token. activities reads from Nomad at most every
	// 2 s.
	activities activities
	// pages has the state that the stream sends to web pages. The state is the same for all readers
	// who may read nodes.
	pages pages
	// live reads the current load of GPUs.
	live   live.Reader
	bodies bodies
}

func (a *Agent) newServer(file File) (*server, error) {
	cfg, err := file.PlacerConfig()
	if err != nil {
		return nil, err
	}
	connect := func() (*nomad.Client, error) { return file.Nomad.Connect(a.meter.Transport) }
	s := &server{agent: a, file: file, cfg: cfg, snapshots: &snapshots{atWork: a.current.Load}, bodies: newBodies()}
	s.activities.connect = connect
	return s, nil
}

// handler returns the routes. [server.guarded] adds the guards around them. A standby agent
// redirects most requests to the active one: see [server.redirectIfStandby].
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", s.serveHealth)
	mux.HandleFunc("GET /v1/metrics", s.serveMetrics)
	mux.Handle("GET /ui/", page())
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
	mux.HandleFunc("GET /v1/agent", s.serveActivity)
	mux.HandleFunc("GET /v1/queue", s.serveQueue)
	mux.HandleFunc("GET /v1/queue/page", s.serveQueuePage)
	mux.HandleFunc("GET /v1/stream", s.serveStream)
	mux.HandleFunc("GET /v1/history", s.serveSamples)
	mux.HandleFunc("GET /v1/uses", s.serveUses)
	mux.HandleFunc("GET /v1/gpus", s.serveGPUs)
	mux.HandleFunc("GET /v1/models", s.serveModels)
	mux.HandleFunc("GET /v1/tenants", s.serveTenants)
	mux.HandleFunc("GET /v1/runs", s.serveRuns)
	mux.HandleFunc("GET /v1/speed", s.serveSpeed)
	mux.HandleFunc("GET /v1/usage", s.serveUsage)
	mux.HandleFunc("GET /v1/events", s.serveEvents)
	mux.HandleFunc("GET /v1/failures", s.serveFailures)
	mux.HandleFunc("GET /v1/job/{id...}", s.serveExplain) // …/explain; ids may contain slashes
	mux.HandleFunc("PUT /v1/job/{id...}", s.serveControl)
	mux.HandleFunc("PUT /v1/gpu/{id}/{what}", s.serveQuarantine)
	mux.HandleFunc("POST /v1/reread", s.serveReread)
	mux.HandleFunc("PUT /v1/reread", s.serveReread)
	mux.HandleFunc("POST /v1/plan", s.servePlan)
	mux.HandleFunc("PUT /v1/plan", s.servePlan) // Nomad's own client uses PUT
	if s.file.Admission != nil {
		mux.HandleFunc("POST /v1/admission", s.serveAdmission)
		mux.HandleFunc("PUT /v1/admission", s.serveAdmission)
	}
	return wholeQueries(s.redirectIfStandby(mux))
}

// wholeQueries refuses requests whose query cannot be parsed, such as one with a semicolon.
// Otherwise net/http would drop the faulty parameter in silence, and the answer would be that of
// another question.
func wholeQueries(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			http.Error(w, fmt.Sprintf("parsing the query %.200q: %v", r.URL.RawQuery, err), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// judged returns the caller if the given check allows the request, and otherwise refuses the
// request.
func (s *server) judged(w http.ResponseWriter, r *http.Request, may func(*caller, context.Context) error) (c *caller, ok bool) {
	c, err := s.caller(r)
	if err == nil {
		err = may(c, r.Context())
	}
	if err != nil {
		refuse(w, err)
	}
	return c, err == nil
}

// snapshotFor returns a snapshot if the given check allows the request, and otherwise refuses the
// request. With ?stale, as in Nomad's API, the snapshot may be a second old.
func (s *server) snapshotFor(w http.ResponseWriter, r *http.Request, may func(*caller, context.Context) error) (*caller, *query.Snapshot, bool) {
	c, ok := s.judged(w, r, may)
	if !ok {
		return c, nil, false
	}
	look := s.snapshots.upToNow
	if r.URL.Query().Has("stale") {
		look = s.snapshots.get
	}
	snapshot, err := look(r.Context())
	if err != nil {
		refuse(w, err)
	}
	return c, snapshot, err == nil
}

// serveQueue lists the jobs that the caller may see.
func (s *server) serveQueue(w http.ResponseWriter, r *http.Request) {
	if jobs, ok := s.jobsFor(w, r); ok {
		writeJSON(w, http.StatusOK, jobs)
	}
}

// jobsFor returns the jobs that the caller may see; ok is false if the request was refused.
func (s *server) jobsFor(w http.ResponseWriter, r *http.Request) (jobs []palapi.JobStatus, ok bool) {
	c, snapshot, ok := s.snapshotFor(w, r, (*caller).listsSome)
	if !ok {
		return nil, false
	}
	jobs, err := c.visible(r.Context(), snapshot.Jobs())
	if err != nil {
		refuse(w, err)
	}
	return jobs, err == nil
}

// serveGPUs lists the GPUs, or some of them:
//
//	GET /v1/gpus?node=<name or id>&node=…&gpu=<id>&job=<namespace>/<id>&trouble=true
//	GET /v1/gpus?outliers=true&limit=<n>
//
// With live=true, GPUs include their current load, if they are on at most [live.MostNodes] nodes.
// Jobs in namespaces that the caller cannot list are not named.
func (s *server) serveGPUs(w http.ResponseWriter, r *http.Request) {
	c, snapshot, ok := s.snapshotFor(w, r, (*caller).readsNodes)
	if !ok {
		return
	}
	q := r.URL.Query()
	most, err := count(q, "limit")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	filter := palapi.GPUFilter{Nodes: q["node"], ID: q.Get("gpu"), Job: q.Get("job"), Trouble: q.Get("trouble") == "true", Outliers: q.Get("outliers") == "true", Most: most}
	sees, operates := c.sees(r.Context()), c.asOperator(r.Context())
	namespace, _, _ := strings.Cut(filter.Job, "/")
	if filter.Job != "" && !sees(namespace) {
		writeJSON(w, http.StatusOK, []palapi.GPU{})
		return
	}
	gpus := snapshot.SomeGPUs(filter)
	if q.Get("live") == "true" {
		if err := query.AddLive(r.Context(), &s.live, c.nomad, gpus, publicError); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	now := time.Now()
	for i, g := range gpus {
		g.IdleSince = s.agent.idle.of(g, now)
		gpus[i] = g.RedactedFor(sees, operates)
	}
	writeJSON(w, http.StatusOK, gpus)
}

func (s *server) serveModels(w http.ResponseWriter, r *http.Request) {
	_, snapshot, ok := s.snapshotFor(w, r, (*caller).readsNodes)
	if ok {
		writeJSON(w, http.StatusOK, snapshot.Models())
	}
}

// explanation is a job's explanation, with its headline and the next steps.
type explanation struct {
	*palapi.Explanation
	Summary string   `json:"summary"`
	Next    []string `json:"next,omitempty"`
}

// serveExplain explains one job: GET /v1/job/<id>/explain?namespace=<ns>&zone=<zone>. zone is the
// time zone of the summary.
func (s *server) serveExplain(w http.ResponseWriter, r *http.Request) {
	id, ok := explained(r.PathValue("id"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	k := cluster.JobKey{Namespace: cmp.Or(r.URL.Query().Get("namespace"), api.DefaultNamespace), ID: id}
	c, snapshot, ok := s.snapshotFor(w, r, func(c *caller, ctx context.Context) error { return c.readsJob(ctx, k) })
	if !ok {
		return
	}
	e, err := snapshot.Explain(r.Context(), k)
	for began := time.Now(); err == nil && e.Behind && time.Since(began) < heardWithin; pause(r.Context(), heardWithin/40) {
		if snapshot, err = s.snapshots.upToNow(r.Context()); err == nil {
			e, err = snapshot.Explain(r.Context(), k)
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	if !e.StoppedWhy.IsZero() && e.StoppedFor == "" {
		e.StoppedFor = s.agent.hooks.Events.StoppedFor(k)
	}
	s.addLive(r.Context(), c, snapshot, e)
	e = e.RedactedFor(c.sees(r.Context()))
	writeJSON(w, http.StatusOK, explanation{e, e.Headline(time.Now().In(zoneOf(r))), e.Next("")})
}

// zoneOf returns the time zone that the request names; UTC if the zone is unknown.
func zoneOf(r *http.Request) *time.Location {
	if zone, err := time.LoadLocation(r.URL.Query().Get("zone")); err == nil {
		return zone
	}
	return time.UTC
}

// addLive adds the current load of the job's GPUs, if the caller may read nodes. addLive leaves the
// load out if the nodes do not answer or are too many, because the explanation must not wait for
// them.
func (s *server) addLive(ctx context.Context, c *caller, snapshot *query.Snapshot, e *palapi.Explanation) {
	if len(e.Allocations) == 0 || c.readsNodes(ctx) != nil {
		return
	}
	gpus := snapshot.SomeGPUs(palapi.GPUFilter{Job: e.Namespace + "/" + e.Job})
	if query.AddLive(ctx, &s.live, c.nomad, gpus, publicError) != nil {
		return
	}
	e.Live, e.Idle = map[string]palapi.Load{}, map[string]time.Time{}
	for _, g := range gpus {
		if g.Live != nil {
			e.Live[attr.GPUOf(g.ID)] = *g.Live
		}
		since := s.agent.idle.of(g, time.Now())
		if !since.IsZero() {
			e.Idle[attr.GPUOf(g.ID)] = since
		}
	}
}

// heardWithin is the time within which the placer normally receives a registered job.
const heardWithin = 2 * time.Second

// serveActivity returns whether a placer is active, in this agent or another, and its agent's
// address. serveActivity needs no token, because it names no job, node or GPU.
func (s *server) serveActivity(w http.ResponseWriter, r *http.Request) {
	a, err := s.activities.get(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, a)
}

// validateEndpoints checks what [model.Config.Validate] does not: the log level, addresses,
// certificates, admission, and values that would otherwise fail only when they are
// used.
func (f File) validateEndpoints(cfg model.Config) error {
	if _, err := LogLevel(cmp.Or(f.LogLevel, "info")); err != nil {
		return err
	}
	if err := f.Admission.Validate(); err != nil {
		return err
	}
	h := f.HTTP
	if h.BindPort != nil && (*h.BindPort < 0 || *h.BindPort > 65535) {
		return fmt.Errorf("http: bind_port: %d is not in 0…65535", *h.BindPort)
	}
	if err := h.checkNames(); err != nil {
		return err
	}
	if h.Advertise != "" {
		if err := checkAdvertise(h.Advertise); err != nil {
			return err
		}
	}
	if _, err := h.tls(); err != nil {
		return err
	}
	if err := f.Nomad.addresses(); err != nil {
		return err
	}
	if err := f.HA.check(); err != nil {
		return err
	}
	if _, err := profile.Build(nil, cfg.Calibration, nil); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	return placer.Validate(cfg)
}

// serveTenants lists the tenants with at least one namespace whose jobs the caller may list.
func (s *server) serveTenants(w http.ResponseWriter, r *http.Request) {
	c, snapshot, ok := s.snapshotFor(w, r, (*caller).listsSome)
	if !ok {
		return
	}
	writeJSON(w, http.StatusOK, snapshot.Tenants(c.sees(r.Context())))
}

// serveFailures lists failed allocations, oldest first, in namespaces whose jobs the caller may
// list. The failures are stored in Nomad's variables, so they survive restarts.
func (s *server) serveFailures(w http.ResponseWriter, r *http.Request) {
	c, snapshot, ok := s.snapshotFor(w, r, (*caller).listsSome)
	if !ok {
		return
	}
	all, sees := append([]palapi.Failure{}, snapshot.Model().Failures...), c.sees(r.Context())
	writeJSON(w, http.StatusOK, slices.DeleteFunc(all, func(f palapi.Failure) bool { return !sees(f.Namespace) }))
}
