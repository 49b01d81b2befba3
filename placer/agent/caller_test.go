// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// fakeNomad accepts some tokens, with the namespaces in which they may list and read jobs; "*" may
// do everything, including reading nodes.
func fakeNomad(t *testing.T, rights map[string][]string) *server {
	t.Helper()
	t.Setenv("NOMAD_TOKEN", "the-agents-own") // must never be used for a caller
	may := func(token, namespace string) bool {
		for _, ns := range rights[token] {
			if ns == namespace || ns == "*" {
				return true
			}
		}
		return false
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, namespace := r.Header.Get("X-Nomad-Token"), r.URL.Query().Get("namespace")
		allowed := may(token, namespace)
		if r.URL.Path == "/v1/jobs" && namespace == "*" {
			allowed = len(rights[token]) > 0
		}
		switch {
		case !allowed:
			http.Error(w, "Permission denied", http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/plan"):
			w.Write([]byte(`{}`))
		case strings.HasPrefix(r.URL.Path, "/v1/job/") && r.URL.Path != "/v1/job/train":
			http.Error(w, "job not found", http.StatusNotFound)
		case strings.HasPrefix(r.URL.Path, "/v1/job/"):
			w.Write([]byte(`{}`))
		default:
			w.Write([]byte(`[]`))
		}
	}))
	t.Cleanup(srv.Close)
	return siteOn(t, srv.URL)
}

// fileAt returns the configuration of an agent whose Nomad has this address.
func fileAt(address string) File {
	f := blank()
	f.Nomad.Address = address
	return f
}

// siteOn returns the API of an agent that places nothing, with a Nomad at this address.
func siteOn(t *testing.T, address string) *server {
	t.Helper()
	s, err := New(hclog.NewNullLogger(), placer.Hooks{}).newServer(fileAt(address))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func callerWith(t *testing.T, s *server, header, value string) *caller {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v1/queue", nil)
	if header != "" {
		r.Header.Set(header, value)
	}
	c, err := s.caller(r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestVisible(t *testing.T) {
	s := fakeNomad(t, map[string][]string{"alice": {"research"}, "root": {"*"}, "the-agents-own": {"*"}})
	jobs := []palapi.JobStatus{
		{Namespace: "default", Job: "a"}, {Namespace: "research", Job: "b"}, {Namespace: "default", Job: "c"}, {Namespace: "research", Job: "d"},
	}
	for _, c := range []struct {
		name, header, value string
		want                []string
		denied              bool
	}{
		{"everything", "X-Nomad-Token", "root", []string{"a", "b", "c", "d"}, false},
		{"one namespace", "X-Nomad-Token", "alice", []string{"b", "d"}, false},
		{"as bearer", "Authorization", "Bearer alice", []string{"b", "d"}, false},
		{"no token", "", "", nil, true},
		{"an unknown token", "X-Nomad-Token", "mallory", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			asks := callerWith(t, s, c.header, c.value)
			err := asks.listsSome(t.Context())
			var seen []palapi.JobStatus
			if err == nil {
				seen, err = asks.visible(t.Context(), jobs)
			}
			if denied(err) != c.denied || err != nil && !c.denied {
				t.Fatalf("error %v", err)
			}
			if c.denied && !strings.Contains(err.Error(), `"list-jobs"`) {
				t.Errorf("the error does not name the capability: %v", err)
			}
			var names []string
			for _, j := range seen {
				names = append(names, j.Job)
			}
			if d := cmp.Diff(c.want, names); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestReadsJob(t *testing.T) {
	s := fakeNomad(t, map[string][]string{"alice": {"research"}})
	alice := callerWith(t, s, "X-Nomad-Token", "alice")
	for _, c := range []struct {
		name   string
		key    cluster.JobKey
		status int
		want   string
	}{
		{"her own", cluster.JobKey{Namespace: "research", ID: "train"}, http.StatusOK, ""},
		{"not there", cluster.JobKey{Namespace: "research", ID: "gone"}, http.StatusNotFound, `no job "gone" in namespace "research"`},
		{"a call of Nomad's", cluster.JobKey{Namespace: "research", ID: "ml/plan"}, http.StatusNotFound,
			`no job "ml/plan" in namespace "research": job id "ml/plan" ends with /plan, which Nomad's HTTP API interprets as one of its own calls: give the job another id`},
		{"another's", cluster.JobKey{Namespace: "default", ID: "train"}, http.StatusForbidden, `permission denied: the token lacks the capability "read-job" in namespace "default", or has expired or been deleted`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := alice.readsJob(t.Context(), c.key)
			if c.status == http.StatusOK {
				if err != nil {
					t.Error(err)
				}
				return
			}
			w := httptest.NewRecorder()
			refuse(w, err)
			if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.want {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		})
	}
	if err := alice.readsNodes(t.Context()); !denied(err) || !strings.Contains(err.Error(), `node { policy = "read" }`) {
		t.Errorf("nodes: %v", err)
	}
	for namespace, want := range map[string]bool{"default": false, "research": true} {
		id := "x"
		err := alice.plans(t.Context(), &api.Job{ID: &id, Namespace: &namespace})
		if denied(err) == want || err != nil && !strings.Contains(err.Error(), `"submit-job" or "plan-job" in namespace "default"`) {
			t.Errorf("plan in %s: %v", namespace, err)
		}
	}
}

// If Nomad is down, the answer is not a refusal.
func TestNomadDown(t *testing.T) {
	s := siteOn(t, "http://127.0.0.1:1")
	err := callerWith(t, s, "", "").readsNodes(t.Context())
	w := httptest.NewRecorder()
	refuse(w, err)
	if w.Code != http.StatusBadGateway || denied(err) || strings.Contains(w.Body.String(), "127.0.0.1") {
		t.Errorf("status %d: %v: %s", w.Code, err, w.Body)
	}
}

// A token that Nomad does not know is rejected, even if Nomad answers 500 for it. Any other 500 is
// not a rejection.
func TestUnknownToken(t *testing.T) {
	text := "ACL token not found"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, text, http.StatusInternalServerError)
	}))
	defer srv.Close()
	s := siteOn(t, srv.URL)
	if err := callerWith(t, s, "X-Nomad-Token", "gone").readsNodes(t.Context()); !denied(err) || !strings.Contains(err.Error(), "Nomad does not know the token") {
		t.Error(err)
	}
	text = "no leader"
	if err := callerWith(t, s, "X-Nomad-Token", "gone").readsNodes(t.Context()); err == nil || denied(err) {
		t.Error(err)
	}
}

// The agent distinguishes a Nomad that does not answer in time from one that cannot be reached.
func TestNomadIsSlow(t *testing.T) {
	timeout := &url.Error{Op: "Get", URL: "http://10.0.0.1/v1/nodes", Err: context.DeadlineExceeded}
	gone := &url.Error{Op: "Get", URL: "http://10.0.0.1/v1/nodes", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err  error
		want string
	}{{timeout, "Nomad did not answer the agent in time"}, {fmt.Errorf("reading nodes: %w", gone), "the agent cannot reach Nomad"}} {
		if got := publicError(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// If the agent's own token lacks a right, the error does not blame the caller's token.
func TestAgentRefused(t *testing.T) {
	nobody := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Permission denied", http.StatusForbidden)
	}))
	defer nobody.Close()
	c, err := nomad.NewClient(&api.Config{Address: nobody.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Resync(t.Context(), nil)
	w := httptest.NewRecorder()
	refuse(w, err)
	if want := "Nomad refuses the agent's own token: reading nodes: "; w.Code != http.StatusBadGateway || !strings.HasPrefix(w.Body.String(), want) {
		t.Errorf("status %d: %s, want %s…", w.Code, w.Body, want)
	}
}

func TestExplained(t *testing.T) {
	for path, want := range map[string]string{
		"train/explain": "train", "train/dispatch-1/explain": "train/dispatch-1", "train": "", "/explain": "", "explain": "", "train/plan": "",
	} {
		if got, ok := explained(path); got != want && ok {
			t.Errorf("%q: job %q", path, got)
		} else if ok != (want != "") {
			t.Errorf("%q: %v", path, ok)
		}
	}
}

// Only a Bearer header carries a token; the credentials of a proxy before the agent are none.
func TestTokenOf(t *testing.T) {
	for header, want := range map[string]string{"Bearer secret": "secret", "bearer secret": "secret", "Basic dXNlcjpwdw==": "", "": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/queue", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		if got := tokenOf(r); got != want {
			t.Errorf("%q: token %q, want %q", header, got, want)
		}
	}
}

// A job for another region, or for one that does not exist, is neither planned nor registered.
func TestJobForAnotherRegion(t *testing.T) {
	t.Parallel()
	nomads := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch region := r.URL.Query().Get("region"); region {
		case "", "east":
			_, _ = io.WriteString(w, `"10.0.0.1:4647"`)
		case "west":
			_, _ = io.WriteString(w, `"10.0.0.2:4647"`)
		default:
			http.Error(w, "No path to region", http.StatusInternalServerError)
		}
	}))
	defer nomads.Close()
	s := &server{agent: newAgent(&testlog.Buffer{}), file: File{Nomad: &Nomad{Address: nomads.URL}}, bodies: newBodies()}
	for _, c := range []struct {
		query, region string
		refused       bool
	}{
		{"", "", false}, {"", "global", false}, {"", "east", false}, {"?region=east", "west", false},
		{"", "west", true}, {"?region=west", "", true}, {"", "mars", true}, {"?region=global", "", true},
	} {
		body := fmt.Sprintf(`{"Job": {"ID": "j", "Region": %q, "TaskGroups": []}}`, c.region)
		w := httptest.NewRecorder()
		s.servePlan(w, httptest.NewRequest(http.MethodPost, "/v1/plan"+c.query, strings.NewReader(body)))
		if refused := w.Code == http.StatusMisdirectedRequest; refused != c.refused || refused && !strings.Contains(w.Body.String(), "but this agent serves another region") {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}
