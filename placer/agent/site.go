// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// site is the HTTP API under one configuration. What it says of jobs and GPUs
// it says to whom Nomad would say it: see [caller].
type site struct {
	agent *Agent
	file  File
	rules placer.Config
	// authors is a connection without a token: each request brings its author's.
	authors *api.Client

	mu     sync.Mutex // guards what follows, and lets one survey be made at a time
	survey *placer.Survey
	made   time.Time
}

// surveyAge is how old a survey may be that is shown: making one reads the lists
// of all nodes, jobs and allocations.
const surveyAge = 2 * time.Second

func (a *Agent) newSite(file File) (*site, error) {
	rules, err := file.Rules()
	if err != nil {
		return nil, err
	}
	s := &site{agent: a, file: file, rules: rules}
	if file.HTTP != nil && file.HTTP.Register {
		if s.authors, err = file.Nomad.connectAuthors(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *site) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", s.agent.health)
	mux.HandleFunc("GET /v1/metrics", s.serveMetrics)
	mux.HandleFunc("GET /ui/", servePage)
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
	mux.HandleFunc("GET /v1/queue", s.serveQueue)
	mux.HandleFunc("GET /v1/gpus", s.serveGPUs)
	mux.HandleFunc("GET /v1/job/{id...}", s.serveExplain) // …/explain; ids may hold slashes
	mux.HandleFunc("POST /v1/plan", s.servePlan)
	if s.file.HTTP != nil && s.file.HTTP.Admission {
		mux.HandleFunc("POST /v1/admission", s.serveAdmission)
		mux.HandleFunc("PUT /v1/admission", s.serveAdmission)
	}
	if s.authors != nil {
		mux.HandleFunc("POST /v1/jobs", s.serveRegister)
		mux.HandleFunc("PUT /v1/jobs", s.serveRegister)
	}
	return mux
}

// observe is the cluster as the agent sees it, at most surveyAge old.
func (s *site) observe(ctx context.Context) (*placer.Survey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.survey != nil && time.Since(s.made) < surveyAge {
		return s.survey, nil
	}
	survey, err := s.fresh(ctx)
	if err != nil {
		return nil, err
	}
	s.survey, s.made = survey, time.Now()
	return survey, nil
}

// fresh reads what has changed since the last survey. Callers hold mu.
func (s *site) fresh(ctx context.Context) (*placer.Survey, error) {
	client, err := s.file.Nomad.Connect()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, client.API().Close) // see caller
	if s.survey == nil {
		return placer.Observe(ctx, client)
	}
	return s.survey.Again(ctx, client)
}

// serveQueue lists the jobs that the caller may see.
func (s *site) serveQueue(w http.ResponseWriter, r *http.Request) {
	c, survey, ok := s.look(w, r)
	if !ok {
		return
	}
	jobs, err := c.visible(r.Context(), s.jobs(survey))
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, jobs)
}

// jobs are the survey's; a survey answers one question at a time.
func (s *site) jobs(survey *placer.Survey) []placer.JobStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return survey.Jobs()
}

// serveGPUs lists the GPUs. Jobs in namespaces that the caller cannot read are
// not named.
func (s *site) serveGPUs(w http.ResponseWriter, r *http.Request) {
	c, survey, ok := s.look(w, r)
	if !ok {
		return
	}
	if err := c.readsNodes(r.Context()); err != nil {
		refuse(w, err)
		return
	}
	jobs, err := c.visible(r.Context(), s.jobs(survey))
	if err != nil && !denied(err) {
		refuse(w, err)
		return
	}
	s.mu.Lock()
	gpus := survey.GPUs()
	s.mu.Unlock()
	named := map[string]bool{"": true}
	for _, j := range jobs {
		named[j.Namespace+"/"+j.Job] = true
	}
	for i, g := range gpus {
		if !named[g.Job] {
			gpus[i].Job = "(a job that the token cannot see)"
		}
	}
	writeJSON(w, http.StatusOK, gpus)
}

// serveExplain explains one job: GET /v1/job/<id>/explain?namespace=<ns>.
func (s *site) serveExplain(w http.ResponseWriter, r *http.Request) {
	id, ok := explained(r.PathValue("id"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	c, survey, ok := s.look(w, r)
	if !ok {
		return
	}
	k := nomad.JobKey{Namespace: r.URL.Query().Get("namespace"), ID: id}
	if k.Namespace == "" {
		k.Namespace = api.DefaultNamespace
	}
	if err := c.readsJob(r.Context(), k); err != nil {
		refuse(w, err)
		return
	}
	s.mu.Lock()
	e, err := survey.Explain(r.Context(), k)
	s.mu.Unlock()
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, e)
}

// servePlan says what would happen to a job: POST {"Job": …}.
func (s *site) servePlan(w http.ResponseWriter, r *http.Request) {
	var request struct{ Job *api.Job }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, admissionBytes)).Decode(&request); err != nil {
		http.Error(w, fmt.Sprintf("reading the job: %v", err), http.StatusBadRequest)
		return
	}
	job, err := canonical(request.Job)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := s.caller(r)
	if err == nil {
		err = c.submits(r.Context(), *job.Namespace)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	s.mu.Lock()
	survey, err := s.fresh(r.Context()) // of its own: planning changes it
	s.mu.Unlock()
	if err != nil {
		refuse(w, err)
		return
	}
	e, err := survey.Plan(job)
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, e)
}

// look is what all readers need: who asks, and what there is.
func (s *site) look(w http.ResponseWriter, r *http.Request) (*caller, *placer.Survey, bool) {
	c, err := s.caller(r)
	if err != nil {
		refuse(w, err)
		return nil, nil, false
	}
	survey, err := s.observe(r.Context())
	if err != nil {
		refuse(w, err)
		return nil, nil, false
	}
	return c, survey, true
}

// secure puts TLS around the listener where a certificate is configured.
func (h *HTTP) secure(l net.Listener) (net.Listener, error) {
	config, err := h.tls()
	if err != nil || config == nil {
		return l, err
	}
	return tls.NewListener(l, config), nil
}

// tls is nil where no certificate is configured.
func (h *HTTP) tls() (*tls.Config, error) {
	if h == nil || h.CertFile == "" && h.KeyFile == "" && h.ClientCA == "" {
		return nil, nil
	}
	if h.CertFile == "" || h.KeyFile == "" {
		return nil, fmt.Errorf("http: TLS takes both cert_file and key_file")
	}
	pair, err := tls.LoadX509KeyPair(h.CertFile, h.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("http: cert_file %q: %w", h.CertFile, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if h.ClientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(h.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("http: client_ca_file: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("http: client_ca_file: %q holds no certificate in PEM", h.ClientCA)
	}
	return config, nil
}

// checkEdges checks what the placer's own rules do not: addresses,
// certificates, admission, and what only shows when something is made of it.
func (f File) checkEdges(rules placer.Config) error {
	if err := f.Admission.Validate(); err != nil {
		return err
	}
	if f.Admission != nil && (f.HTTP == nil || !f.HTTP.Admission) {
		return fmt.Errorf("admission: the endpoint is off; set http { admission = true }")
	}
	if h := f.HTTP; h != nil && h.BindPort != nil && (*h.BindPort < 0 || *h.BindPort > 65535) {
		return fmt.Errorf("http: bind_port: %d is not in 0…65535", *h.BindPort)
	}
	if _, err := f.HTTP.tls(); err != nil {
		return err
	}
	if f.Nomad != nil && f.Nomad.RPCAddress != "" {
		if _, err := rpcAddresses(f.Nomad.RPCAddress); err != nil {
			return err
		}
	}
	if _, _, err := f.HA.times(); err != nil {
		return err
	}
	if _, err := profile.Build(nil, rules.Calibration, nil); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	_, err := placer.New(nil, rules, hclog.NewNullLogger(), placer.Hooks{})
	return err
}
