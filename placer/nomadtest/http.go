// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// ServeHTTP implements the part of Nomad's HTTP API that the placer uses.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/event/stream" {
		s.serveEvents(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps++
	out, err := s.route(r)
	var coded *statusError
	switch {
	case errors.As(err, &coded):
		http.Error(w, coded.text, coded.code)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(max(1, s.tables[table(r.URL.Path)]), 10))
	w.Header().Set("X-Nomad-KnownLeader", "true")
	w.Header().Set("X-Nomad-LastContact", "0")
	w.Header().Set("Content-Type", "application/json")
	if conflict, ok := out.(variableConflict); ok {
		w.WriteHeader(http.StatusConflict)
		out = conflict.Variable
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(text) // the client may be gone
}

// variableConflict is the answer to a check-and-set write that failed. The answer contains the
// current variable.
type variableConflict struct{ *api.Variable }

// table returns the name of the table whose index Nomad sends with a list.
func table(path string) string {
	switch {
	case strings.HasPrefix(path, "/v1/node"):
		return "nodes"
	case strings.HasPrefix(path, "/v1/alloc"):
		return "allocs"
	case strings.HasPrefix(path, "/v1/var"):
		return "variables"
	}
	return "jobs"
}

// namespaceOf returns the namespace to which a request applies.
func namespaceOf(r *http.Request) string {
	if ns := r.URL.Query().Get("namespace"); ns != "" {
		return ns
	}
	return "default"
}

func topicsOf(r *http.Request) (out []string) {
	for _, t := range r.URL.Query()["topic"] {
		name, _, _ := strings.Cut(t, ":")
		out = append(out, name)
	}
	return out
}

// route answers a request. The caller holds s.mu. While a write is pending, route releases s.mu.
func (s *Server) route(r *http.Request) (any, error) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	read := r.Method == http.MethodGet
	if !read || parts[0] != "job" {
		s.was = uncommitted{}
	}
	switch parts[0] {
	case "nodes", "node":
		return s.serveNodes(r, parts)
	case "jobs":
		if read {
			return s.listJobs(r)
		}
		return s.serveRegister(r)
	case "job":
		return s.serveJob(r, parts[1:])
	case "allocations", "allocation":
		return s.serveAllocs(r, parts)
	case "client":
		if parts[1] == "stats" {
			return s.serveStats(r)
		}
		return s.restart(parts[2])
	case "deployment":
		return s.serveDeployment(r, parts[1:])
	case "vars":
		switch err := s.authorize(r, namespaceOf(r), variables); {
		case errors.Is(err, errNoToken):
			return nil, err
		case err != nil: // Nomad's lists omit what the token may not see
			return []*api.VariableMetadata{}, nil
		}
		return s.listVariables(namespaceOf(r), r.URL.Query().Get("prefix")), nil
	case "var":
		return s.serveVariable(r, strings.Join(parts[1:], "/"))
	case "acl":
		return s.tokenSelf(r)
	case "namespaces":
		if err := s.authorize(r, "", ""); errors.Is(err, errNoToken) {
			return nil, err
		}
		return s.listNamespaces(), nil
	case "status": // this request needs no token
		return "127.0.0.1:4647", nil
	case "operator":
		return s.serveSchedulerConfig(r)
	}
	return nil, httpError(http.StatusNotFound, "Invalid URL: %s", r.URL.Path)
}

// serveSchedulerConfig reads and sets the scheduler's configuration. Only preemption is simulated.
func (s *Server) serveSchedulerConfig(r *http.Request) (any, error) {
	if r.Method == http.MethodPut {
		var c api.SchedulerConfiguration
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			return nil, httpError(http.StatusBadRequest, "%v", err)
		}
		s.preempts = c.PreemptionConfig.BatchSchedulerEnabled && c.PreemptionConfig.ServiceSchedulerEnabled
		return api.SchedulerSetConfigurationResponse{Updated: true}, nil
	}
	return api.SchedulerConfigurationResponse{SchedulerConfig: &api.SchedulerConfiguration{
		SchedulerAlgorithm: "binpack", PreemptionConfig: api.PreemptionConfig{BatchSchedulerEnabled: s.preempts, ServiceSchedulerEnabled: s.preempts},
	}}, nil
}

func (s *Server) serveNodes(r *http.Request, parts []string) (any, error) {
	if err := s.authorize(r, "", readNodes); err != nil {
		return nil, err
	}
	switch {
	case parts[0] == "nodes":
		return s.listNodes(r)
	case parts[1] == "pools":
		return []map[string]any{{"Name": "all"}, {"Name": "default"}}, nil
	}
	if n := s.nodes[parts[1]]; n != nil {
		return n.Node, nil
	}
	return nil, httpError(http.StatusNotFound, "node not found")
}

// page returns the first page of a list if the request asks for pages, and the whole list
// otherwise.
func page[T any](r *http.Request, list []T) []T {
	if n, err := strconv.Atoi(r.URL.Query().Get("per_page")); err == nil && n > 0 && n < len(list) {
		return list[:n]
	}
	return list
}

// listNodes lists the nodes. If the request has a filter, listNodes lists only the nodes with
// GPUs, or only the nodes that are away. If the request has a filter and a node has no resources,
// Nomad returns an error (seen on 1.11.3).
func (s *Server) listNodes(r *http.Request) (any, error) {
	q, out := r.URL.Query(), []*api.NodeListStub{}
	for _, id := range s.sortedNodes() {
		n := s.nodes[id].Node
		stub := &api.NodeListStub{
			ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, NodePool: n.NodePool, NodeClass: n.NodeClass, Status: n.Status, Drain: n.Drain,
			SchedulingEligibility: n.SchedulingEligibility, Drivers: n.Drivers, Version: "1.11.3",
			CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex,
		}
		if q.Get("resources") == "true" {
			stub.NodeResources = n.NodeResources
		}
		if strings.Contains(q.Get("filter"), "Drivers") { // the filter for nodes that are away
			unwell := func(d *api.DriverInfo) bool { return d.Detected && !d.Healthy }
			if ready(n) && !slices.ContainsFunc(slices.Collect(maps.Values(n.Drivers)), unwell) {
				continue
			}
		} else if q.Has("filter") {
			if n.NodeResources == nil || slices.Contains(n.NodeResources.Devices, nil) {
				return nil, httpError(http.StatusBadRequest, "failed to read result page: error finding value in datum: /NodeResources/Devices")
			}
			if len(cluster.GPUDevices(n)) == 0 {
				continue
			}
		}
		out = append(out, stub)
	}
	return page(r, out), nil
}

// listJobs lists the jobs. If the request has a filter, listJobs lists only the jobs that request
// devices.
func (s *Server) listJobs(r *http.Request) (any, error) {
	ns, devices := namespaceOf(r), r.URL.Query().Has("filter")
	if err := s.authorize(r, ns, listJobs); err != nil {
		return nil, err
	}
	out := []*api.JobListStub{}
	for _, k := range sortedKeys(s.jobs) {
		if (ns != "*" && ns != k.Namespace) || s.authorize(r, k.Namespace, listJobs) != nil {
			continue
		}
		j := s.jobs[k].Job
		if devices && !asksDevices(j) || !strings.HasPrefix(k.ID, r.URL.Query().Get("prefix")) {
			continue
		}
		out = append(out, &api.JobListStub{
			ID: k.ID, ParentID: value(j.ParentID), Namespace: k.Namespace, Name: value(j.Name), Periodic: j.Periodic != nil, ParameterizedJob: isParameterized(j), Type: value(j.Type), Priority: value(j.Priority), Status: value(j.Status), Stop: value(j.Stop),
			CreateIndex: *j.CreateIndex, ModifyIndex: *j.ModifyIndex, JobModifyIndex: *j.JobModifyIndex, SubmitTime: *j.SubmitTime,
		})
	}
	return page(r, out), nil
}

func asksDevices(j *api.Job) bool {
	return slices.ContainsFunc(j.TaskGroups, func(g *api.TaskGroup) bool {
		return slices.ContainsFunc(g.Tasks, func(t *api.Task) bool { return len(t.Resources.Devices) > 0 })
	})
}

// serveRegister checks a registration and then writes the job.
func (s *Server) serveRegister(r *http.Request) (any, error) {
	var request api.JobRegisterRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, httpError(http.StatusBadRequest, "%v", err)
	}
	if err := validate(request.Job); err != nil {
		return nil, err
	}
	if value(request.Job.Namespace) == "" {
		request.Job.Namespace = new(namespaceOf(r))
	}
	k := Key{Namespace: *request.Job.Namespace, ID: *request.Job.ID}
	if err := s.authorize(r, k.Namespace, submitJobs); err != nil {
		return nil, err
	}
	overHTTP(r, request.Job)
	request.Job.Canonicalize()
	if err := s.checkModifyIndex(k, &request); err != nil {
		return nil, err
	}
	if err := checkUpdate(s.jobs[k], request.Job); err != nil {
		return nil, err
	}
	request.Job.SubmitTime = new(s.now().UnixNano())
	checked := s.index
	s.commitDelay(r, k)
	before := s.jobs[k]
	out := s.register(&request)
	s.notifyWrote(Write{Client: r.Header.Get(clientHeader), Kind: "register", Job: k, Before: versionOf(before), After: s.jobs[k].Job, Checked: checked})
	return out, nil
}

func versionOf(j *job) *api.Job {
	if j == nil {
		return nil
	}
	return j.Job
}

// commitDelay waits for the time between the check of a write and the write.
func (s *Server) commitDelay(r *http.Request, k Key) {
	d := s.jitter(s.opts.Raft, "raft "+k.String()+strconv.Itoa(s.count("raft "+k.String())))
	if late, ok := r.Context().Value(slowWrite{}).(time.Duration); ok {
		d = late
	}
	if s.opts.Stepped {
		return
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	_ = pause(r.Context(), d) // the client cannot cancel this wait
}

func (s *Server) serveJob(r *http.Request, parts []string) (any, error) {
	// The id of a job may contain slashes.
	last := parts[len(parts)-1]
	if n := len(parts) - 2; n > 0 && last == "force" && parts[n] == "periodic" {
		parts = parts[:n+1]
	}
	known := last == "force" || slices.Contains([]string{"versions", "allocations", "evaluations", "deployment", "submission", "plan", "evaluate", "dispatch"}, last)
	if known && len(parts) > 1 {
		parts = parts[:len(parts)-1]
	} else {
		last = ""
	}
	k := Key{Namespace: namespaceOf(r), ID: strings.Join(parts, "/")}
	right := readJobs
	if r.Method != http.MethodGet && last != "evaluate" {
		right = submitJobs
	}
	if err := s.authorize(r, k.Namespace, right); err != nil {
		return nil, err
	}
	switch last {
	case "plan":
		return s.servePlan(r, k)
	case "evaluate":
		return s.serveEvaluate(r, k)
	case "dispatch":
		return s.serveDispatch(r, k)
	case "force":
		return s.serveForce(r, k)
	}
	if r.Method == http.MethodDelete {
		purge, _ := strconv.ParseBool(r.URL.Query().Get("purge"))
		submitted := s.now()
		s.commitDelay(r, k)
		before := versionOf(s.jobs[k])
		out, err := s.deregister(k, purge, submitted)
		s.notifyWrote(Write{Client: r.Header.Get(clientHeader), Kind: "deregister", Job: k, Before: before, After: versionOf(s.jobs[k])})
		return out, err
	}
	return s.readJob(r, k, last)
}

func (s *Server) readJob(r *http.Request, k Key, what string) (any, error) {
	j := s.jobs[k]
	if what == "" {
		j = s.visible(k)
	} else {
		s.was = uncommitted{}
	}
	switch what {
	case "allocations":
		out := []*api.AllocationListStub{}
		for _, a := range s.byJob[k] {
			out = append(out, s.stub(a, false))
		}
		return out, nil
	case "evaluations":
		return append([]*api.Evaluation{}, s.evals[k]...), nil
	case "deployment":
		return s.latestDeployment(k), nil
	}
	if j == nil {
		return nil, httpError(http.StatusNotFound, "job not found")
	}
	switch what {
	case "":
		return j.Job, nil
	case "versions":
		return map[string]any{"Versions": j.versions}, nil
	case "submission":
		v, err := strconv.ParseUint(r.URL.Query().Get("version"), 10, 64)
		if sub := j.submissions[v]; err == nil && sub != nil {
			return sub, nil
		}
		return nil, httpError(http.StatusNotFound, "job source not found")
	}
	return nil, httpError(http.StatusNotFound, "Invalid URL: %s", r.URL.Path)
}

// serveEvaluate evaluates a job again. As in Nomad, the right to read jobs is enough.
func (s *Server) serveEvaluate(r *http.Request, k Key) (any, error) {
	s.commitDelay(r, k)
	j := s.jobs[k]
	if j == nil {
		return nil, httpError(http.StatusNotFound, "job not found")
	}
	if isTemplate(j.Job) {
		return nil, httpError(http.StatusInternalServerError, "can't evaluate parameterized or periodic job")
	}
	s.nextIndex("evals")
	return &api.JobRegisterResponse{EvalID: s.evaluate(k, "job-register").ID, JobModifyIndex: *j.JobModifyIndex}, nil
}

// servePlan makes a dry run.
func (s *Server) servePlan(r *http.Request, k Key) (any, error) {
	var request api.JobPlanRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, httpError(http.StatusBadRequest, "%v", err)
	}
	if err := validate(request.Job); err != nil {
		return nil, err
	}
	for _, g := range request.Job.TaskGroups {
		if g.Count != nil && *g.Count < 0 {
			return nil, httpError(http.StatusInternalServerError, "1 error occurred:\n\t* Task group %s validation failed: Task group count can't be negative\n\n", value(g.Name))
		}
	}
	overHTTP(r, request.Job)
	own := *request.Job
	own.Canonicalize()
	if isTemplate(&own) {
		return &api.JobPlanResponse{}, nil
	}
	next := s.index + 1
	own.JobModifyIndex, own.CreateIndex, own.Version = &next, &next, new(uint64(0))
	was := uint64(0)
	if j := s.jobs[k]; j != nil {
		own.CreateIndex, own.Version, was = j.CreateIndex, new(*j.Version+1), *j.JobModifyIndex
	}
	p := s.schedule(k, "plan", &own)
	return &api.JobPlanResponse{JobModifyIndex: was, FailedTGAllocs: p.failed}, nil
}

func (s *Server) serveAllocs(r *http.Request, parts []string) (any, error) {
	ns := namespaceOf(r)
	if parts[0] == "allocations" {
		if err := s.authorize(r, ns, readJobs); err != nil {
			return nil, err
		}
		out := []*api.AllocationListStub{}
		for _, a := range s.sortedAllocs() {
			if (ns == "*" || ns == a.key.Namespace) && s.authorize(r, a.key.Namespace, readJobs) == nil {
				out = append(out, s.stub(a, r.URL.Query().Get("resources") == "true"))
			}
		}
		return page(r, out), nil
	}
	a := s.allocs[parts[1]]
	if a == nil {
		return nil, httpError(http.StatusNotFound, "alloc not found")
	}
	if len(parts) == 3 && parts[2] == "stop" {
		if err := s.authorize(r, a.key.Namespace, lifecycle); err != nil {
			return nil, err
		}
		s.notifyWrote(Write{Client: r.Header.Get(clientHeader), Kind: "stop", Job: a.key, Before: a.job, After: a.job})
		return s.stopAlloc(a.id)
	}
	if err := s.authorize(r, a.key.Namespace, readJobs); err != nil {
		return nil, err
	}
	return s.allocation(a), nil
}

func (s *Server) serveVariable(r *http.Request, path string) (any, error) {
	ns, q := namespaceOf(r), r.URL.Query()
	err := s.authorize(r, ns, variables)
	if err != nil && (r.Method != http.MethodGet || s.authorize(r, ns, readVars) != nil) {
		return nil, err
	}
	switch r.Method {
	case http.MethodGet:
		v := s.vars[variableKey(ns, path)]
		if v == nil {
			return nil, httpError(http.StatusNotFound, "variable not found")
		}
		return &v.Variable, nil
	case http.MethodDelete:
		s.deleteVariable(ns, path)
		return nil, nil
	}
	var v api.Variable
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		return nil, httpError(http.StatusBadRequest, "%v", err)
	}
	v.Namespace, v.Path = ns, path
	var out, conflict *api.Variable
	switch {
	case q.Has("lock-acquire"):
		out, conflict, err = s.acquire(&v)
	case q.Has("lock-release"):
		out, err = s.releaseLock(&v)
	case q.Has("lock-renew"):
		return s.renew(&v)
	default:
		cas := int64(-1)
		if q.Has("cas") {
			if cas, err = strconv.ParseInt(q.Get("cas"), 10, 64); err != nil {
				return nil, httpError(http.StatusBadRequest, "%v", err)
			}
		}
		out, conflict, err = s.setVariable(&v, cas)
	}
	if err != nil {
		return nil, err
	}
	if conflict != nil {
		return variableConflict{conflict}, nil
	}
	return out, nil
}

// serveEvents streams events over a socket.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	err := s.authorize(r, "*", readJobs)
	var st *stream
	if err == nil {
		st = s.subscribe(r.Context(), r.Header.Get(clientHeader), topicsOf(r))
	}
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	buffer := make([]byte, 1<<16)
	for {
		n, err := st.Read(buffer)
		if err != nil {
			return
		}
		if _, err := w.Write(buffer[:n]); err != nil {
			return
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
}
