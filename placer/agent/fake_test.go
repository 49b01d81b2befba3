// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// fake simulates a Nomad with access control and one GPU node, as far as the agent uses it. It
// records each request as "<token> <method> <path>".
type fake struct {
	*httptest.Server
	t *testing.T

	mu sync.Mutex
	// rights contains the namespaces of each token; "*" may do everything.
	rights map[string][]string
	jobs   map[string]*api.Job // by namespace/id
	allocs []string            // in JSON
	vars   map[string]string   // items in JSON
	varsAt map[string]int64    // when they were written
	locks  map[string]lock     // by path
	// expires is when each token expires; zero: never.
	expires time.Time
	index   uint64
	listed  int // number of changes of the lists
	asked   []string
	// broken matches the requests that are answered with 500.
	broken *regexp.Regexp
	// denied matches the requests that are answered with 403.
	denied *regexp.Regexp
	// hangUp matches the requests on which the connection is closed.
	hangUp *regexp.Regexp
	// block delays the answers to matching requests until it is closed.
	block   *regexp.Regexp
	blocked chan struct{}
}

const agentsToken = "the-agents-own"

func newFake(t *testing.T, rights map[string][]string) *fake {
	t.Helper()
	f := &fake{t: t, rights: map[string][]string{agentsToken: {"*"}}, jobs: map[string]*api.Job{}, vars: map[string]string{}, varsAt: map[string]int64{}, locks: map[string]lock{}, index: 10, blocked: make(chan struct{})}
	maps.Copy(f.rights, rights)
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *fake) may(token, namespace string) bool {
	return slices.ContainsFunc(f.rights[token], func(ns string) bool { return ns == namespace || ns == "*" })
}

// askedFor returns the requests that match a pattern.
func (f *fake) askedFor(pattern string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, a := range f.asked {
		if regexp.MustCompile(pattern).MatchString(a) {
			out = append(out, a)
		}
	}
	return out
}

func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = nil
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("X-Nomad-Token")
	what := fmt.Sprintf("%s %s %s", token, r.Method, r.URL.Path)
	if r.URL.Query().Has("lock-release") {
		what += "?lock-release"
	}
	f.mu.Lock()
	f.asked = append(f.asked, what)
	broken, denied, hangUp, block, blocked := f.broken, f.denied, f.hangUp, f.block, f.blocked
	f.mu.Unlock()
	if hangUp != nil && hangUp.MatchString(what) {
		panic(http.ErrAbortHandler)
	}
	if broken != nil && broken.MatchString(what) {
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	}
	if denied != nil && denied.MatchString(what) {
		http.Error(w, "Permission denied", http.StatusForbidden)
		return
	}
	if block != nil && block.MatchString(what) {
		select {
		case <-blocked:
		case <-r.Context().Done():
			return
		}
	}
	f.mu.Lock()
	listed := 5 + f.listed
	f.mu.Unlock()
	w.Header().Set("X-Nomad-Index", strconv.Itoa(listed))
	if r.URL.Path == "/v1/event/stream" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer(w, r, token)
}

const fakeNode = `{"ID":"n1","Name":"one","Datacenter":"dc1","NodePool":"default","Status":"ready","SchedulingEligibility":"eligible","ModifyIndex":1,
	"Attributes":{"driver.raw_exec":"1"},"Drivers":{"raw_exec":{"Detected":true,"Healthy":true}},
	"NodeResources":{"Cpu":{"CpuShares":10000},"Memory":{"MemoryMB":10000},"Disk":{"DiskMB":10000},
	"Devices":[{"Vendor":"nvidia","Type":"gpu","Name":"X","Instances":[{"ID":"GPU-1","Healthy":true},{"ID":"GPU-2","Healthy":true},{"ID":"GPU-3","Healthy":true}]}]}}`

func (f *fake) answer(w http.ResponseWriter, r *http.Request, token string) {
	path, namespace := r.URL.Path, r.URL.Query().Get("namespace")
	if namespace == "" {
		namespace = "default"
	}
	allowed := f.may(token, namespace)
	switch {
	case path == "/v1/jobs" && r.Method != http.MethodGet, strings.HasSuffix(path, "/plan"):
		f.register(w, r, token)
		return
	case namespace == "*" && path == "/v1/jobs":
		allowed = len(f.rights[token]) > 0
	case path == "/v1/nodes" || path == "/v1/client/stats":
		allowed = f.may(token, "*") || f.may(token, "nodes")
	}
	switch id, isJob := strings.CutPrefix(path, "/v1/job/"); {
	case path == "/v1/acl/token/self" && strings.Count(token, ".") == 2:
		http.Error(w, "ACL token not found", http.StatusNotFound) // as Nomad 1.11.3 answers a workload identity
	case path == "/v1/acl/token/self":
		kind, accessor, called := "client", "1", token
		switch token {
		case "root":
			kind = "management"
		case "":
			accessor, called = "anonymous", "Anonymous Token"
		}
		expires := ""
		if !f.expires.IsZero() {
			expires = fmt.Sprintf(`,"ExpirationTime":%q`, f.expires.Format(time.RFC3339))
		}
		fmt.Fprintf(w, `{"AccessorID":%q,"Name":%q,"Type":%q%s}`, accessor, called, kind, expires)
	case !allowed:
		http.Error(w, "Permission denied", http.StatusForbidden)
	case path == "/v1/nodes":
		fmt.Fprintf(w, "[%s]", fakeNode)
	case path == "/v1/client/stats":
		fmt.Fprint(w, `{"DeviceStats":[{"Vendor":"nvidia","InstanceStats":{"GPU-1":{"Stats":{"Attributes":{"GPU utilization":{"IntNumeratorVal":42}}}}}}]}`)
	case path == "/v1/node/n1":
		fmt.Fprint(w, fakeNode)
	case path == "/v1/jobs":
		list := []*api.Job{}
		for _, j := range f.jobs {
			if namespace == "*" || namespace == *j.Namespace {
				list = append(list, j)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	case isJob && r.Method == http.MethodDelete:
		f.index++
		delete(f.jobs, namespace+"/"+id)
		fmt.Fprintf(w, `{"EvalID":"e","JobModifyIndex":%d}`, f.index)
	case path == "/v1/job/web/deployment":
		fmt.Fprint(w, `{"ID":"d","JobVersion":0,"Status":"failed"}`)
	case isJob && f.jobs[namespace+"/"+id] != nil:
		_ = json.NewEncoder(w).Encode(f.jobs[namespace+"/"+id])
	case strings.HasPrefix(path, "/v1/var/"):
		f.variable(w, r, strings.TrimPrefix(path, "/v1/var/"))
	case isJob:
		http.NotFound(w, r)
	case path == "/v1/allocations":
		fmt.Fprintf(w, "[%s]", strings.Join(f.allocs, ","))
	default:
		fmt.Fprint(w, `[]`)
	}
}

// register answers PUT /v1/jobs and the dry run, which need different rights.
func (f *fake) register(w http.ResponseWriter, r *http.Request, token string) {
	var request api.JobRegisterRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	job := request.Job
	if !f.may(token, *job.Namespace) {
		http.Error(w, "Permission denied", http.StatusForbidden)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/plan") && strings.Count(token, ".") == 2 { // as Nomad 1.11.3 answers
		http.Error(w, "acl token lookup failed: index error: UUID must be 36 characters", http.StatusInternalServerError)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/plan") {
		fmt.Fprint(w, `{}`)
		return
	}
	if p := job.Priority; p != nil && *p > 100 {
		http.Error(w, "1 error occurred:\n\t* job priority must be between [1, 100]\n\n", http.StatusInternalServerError)
		return
	}
	k := *job.Namespace + "/" + *job.ID
	old, index := f.jobs[k], uint64(0)
	if old != nil {
		index = *old.JobModifyIndex
	}
	if request.EnforceIndex && request.JobModifyIndex != index {
		http.Error(w, fmt.Sprintf("%s %d: job exists with conflicting job modify index: %d", api.RegisterEnforceIndexErrPrefix, request.JobModifyIndex, index), http.StatusInternalServerError)
		return
	}
	f.index++
	f.putJob(job)
	fmt.Fprintf(w, `{"EvalID":"e","JobModifyIndex":%d}`, f.index)
}

// putJob stores a job. Callers hold mu.
func (f *fake) putJob(job *api.Job) {
	at, version, status, index := time.Now().UnixNano(), uint64(0), "pending", f.index
	job.SubmitTime, job.Version, job.Status = &at, &version, &status
	job.CreateIndex, job.ModifyIndex, job.JobModifyIndex = &index, &index, &index
	f.jobs[*job.Namespace+"/"+*job.ID] = job
}

// lock is a lock of a variable. A lock expires unless it is renewed. If expires is zero, the lock
// never expires.
type lock struct {
	id, ttl string
	expires time.Time
}

// locked is the body of a request about a variable and its lock.
type locked struct {
	Items json.RawMessage
	Lock  struct{ ID, TTL string }
}

// lockVariable acquires, renews or releases the lock of a variable.
func (f *fake) lockVariable(w http.ResponseWriter, r *http.Request, path string) {
	var v locked
	_ = json.NewDecoder(r.Body).Decode(&v)
	q, now := r.URL.Query(), time.Now()
	held, there := f.locks[path]
	there = there && (held.expires.IsZero() || now.Before(held.expires))
	if there == q.Has("lock-acquire") || there && held.id != v.Lock.ID {
		http.Error(w, "conflict", http.StatusConflict)
		return
	}
	if q.Has("lock-acquire") {
		f.vars[path], f.varsAt[path] = string(v.Items), now.UnixNano()
		f.index++
		held = lock{id: fmt.Sprint("lock-", f.index), ttl: v.Lock.TTL}
	}
	ttl, err := time.ParseDuration(held.ttl)
	if err != nil {
		f.t.Errorf("a lock with ttl = %q: %v", held.ttl, err)
	}
	held.expires = now.Add(ttl)
	f.locks[path] = held
	if q.Has("lock-release") {
		delete(f.locks, path)
	}
	fmt.Fprintf(w, `{"Namespace":"default","Path":%q,"Lock":{"ID":%q,"TTL":%q}}`, path, held.id, held.ttl)
}

func (f *fake) variable(w http.ResponseWriter, r *http.Request, path string) {
	items, there := f.vars[path]
	q := r.URL.Query()
	switch {
	case q.Has("lock-acquire"), q.Has("lock-renew"), q.Has("lock-release"):
		f.lockVariable(w, r, path)
	case r.Method == http.MethodPut:
		var v struct{ Items json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&v)
		f.vars[path], f.varsAt[path] = string(v.Items), time.Now().UnixNano()
		fmt.Fprintf(w, `{"Namespace":"default","Path":%q,"Items":%s,"ModifyIndex":%d,"ModifyTime":%d}`, path, v.Items, f.index, f.varsAt[path])
	case there:
		fmt.Fprintf(w, `{"Namespace":"default","Path":%q,"Items":%s,"ModifyIndex":%d,"ModifyTime":%d}`, path, items, f.index, f.varsAt[path])
	default:
		http.NotFound(w, r)
	}
}

// gpuJob returns a gated job of one member that requests GPUs, in JSON.
func gpuJob(namespace, id string, gpus int) string {
	return fmt.Sprintf(`{"ID":%q,"Namespace":%q,"Type":"batch","Datacenters":["*"],"Constraints":[{"LTarget":"${meta.pal_gate}","RTarget":"open","Operand":"="}],
		"TaskGroups":[{"Name":"g","Count":1,"Tasks":[{"Name":"t","Driver":"raw_exec","Config":{"command":"/bin/true"},
			"Resources":{"CPU":10,"MemoryMB":10,"Devices":[{"Name":"nvidia/gpu","Count":%d}]}}]}]}`, id, namespace, gpus)
}

// has stores a job; if GPUs are passed, the job is running on them.
func (f *fake) has(text string, gpus ...string) {
	f.t.Helper()
	var job api.Job
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		f.t.Fatal(err)
	}
	job.Canonicalize()
	out := &job
	if len(gpus) > 0 {
		var err error
		pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n1"}, GPUs: gpus}}}
		if out, err = rewrite.Pin(&job, pins, rewrite.Racks{}); err != nil {
			f.t.Fatal(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.putJob(out)
	if len(gpus) > 0 {
		ids, _ := json.Marshal(gpus)
		f.allocs = append(f.allocs, fmt.Sprintf(`{"ID":"a-%s","Namespace":%q,"JobID":%q,"TaskGroup":"g","Name":"%s.g[0]","NodeID":"n1","DesiredStatus":"run","ClientStatus":"running",
			"CreateIndex":%d,"ModifyIndex":%d,"CreateTime":%d,"ModifyTime":%[7]d,"AllocatedResources":{"Tasks":{"t":{"Devices":[{"Vendor":"nvidia","Type":"gpu","Name":"X","DeviceIDs":%s}]}}}}`,
			*job.ID, *job.Namespace, *job.ID, *job.ID, f.index+1, f.index+1, time.Now().UnixNano(), ids))
	}
}

// running is an agent that runs on the fake.
type running struct {
	t      *testing.T
	agent  *Agent
	log    *testlog.Buffer
	conf   string
	reload chan os.Signal
	stop   func() error
}

func newAgent(log *testlog.Buffer) *Agent {
	a := New(hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug}), placer.Hooks{})
	a.rest = 0
	return a
}

// run starts an agent with this configuration and a nomad block.
func (f *fake) run(config string) *running {
	f.t.Helper()
	r := &running{t: f.t, log: &testlog.Buffer{}, conf: filepath.Join(f.t.TempDir(), "agent.hcl"), reload: make(chan os.Signal, 1)}
	r.configure(f, config)
	r.agent = newAgent(r.log)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.agent.Run(ctx, []string{r.conf}, r.reload) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	f.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			f.t.Errorf("the agent ended: %v", err)
		}
		if f.t.Failed() {
			f.t.Logf("log of the agent:\n%s", r.log)
		}
	})
	return r
}

func (r *running) configure(f *fake, config string) {
	r.t.Helper()
	text := fmt.Sprintf("%s\nnomad {\n  address = %q\n  token = %q\n}\n", config, f.URL, agentsToken)
	if err := os.WriteFile(r.conf, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// until polls until a condition is true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	patience.Eventually(t, what, done)
}

func (r *running) url() string {
	all := regexp.MustCompile(`HTTP API: address=(\S+)`).FindAllStringSubmatch(r.log.String(), -1)
	if len(all) == 0 {
		return ""
	}
	return "http://" + all[len(all)-1][1]
}

// send sends a request to the agent; headers are "Name: value".
func (r *running) send(method, path, token, body string, headers ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("X-Nomad-Token", token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		} else {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, b.String()
}

// ready waits until the agent is ready and, if it is active, sends no requests by itself. All later
// requests to Nomad come from a caller.
func (r *running) ready() *running {
	r.t.Helper()
	until(r.t, "the agent is ready", func() bool {
		if p := r.agent.current.Load(); r.url() == "" || p != nil && !p.Vitals().RestsFor(time.Now(), rest) {
			return false
		}
		status, body := r.send(http.MethodGet, "/v1/health", "", "")
		return status == http.StatusOK && strings.Contains(body, `"ready": true`)
	})
	return r
}
