// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/classify"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// busyNode is a Nomad with one GPU, which draws this much of its 700 W. Every second request gets a
// new reading.
func busyNode(t *testing.T, watts int) (*nomad.Client, map[string]string) {
	t.Helper()
	const id = "f7476465-4d6e-c0de-26d0-e383c49be941"
	written := map[string]string{}
	questions := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			body, _ := io.ReadAll(r.Body)
			written[r.URL.Path] = string(body)
			_, _ = w.Write(body)
		case r.URL.Path == "/v1/vars":
			_, _ = io.WriteString(w, "[]")
		case r.URL.Path == "/v1/node/"+id:
			fmt.Fprintf(w, `{"ID": %q, "HTTPAddr": "127.0.0.1:1"}`, id)
		case r.URL.Path == "/v1/client/stats":
			at := time.Unix(int64(questions/2), 0).UTC().Format(time.RFC3339)
			questions++
			fmt.Fprintf(w, `{"DeviceStats": [{"InstanceStats": {"GPU-1": {"Timestamp": %q, "Stats": {"Attributes": {
				"GPU utilization": {"IntNumeratorVal": 99}, "Power usage": {"IntNumeratorVal": %d, "IntDenominatorVal": 700}}}}}}]}`, at, watts)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	c, err := nomad.NewClient(&api.Config{Address: server.URL}, "default")
	if err != nil {
		t.Fatal(err)
	}
	return c, written
}

func TestLearnerTakesEachReadingOnceAndSkipsTheStart(t *testing.T) {
	c, written := busyNode(t, 690)
	l := NewLearner(c, time.Second, hclog.NewNullLogger())
	k := cluster.JobKey{Namespace: "default", ID: "train"}
	s := &study{gpus: map[string][]string{"f7476465-4d6e-c0de-26d0-e383c49be941": {"GPU-1"}}, seen: map[string]time.Time{}}
	rounds := 0
	for !s.done && rounds < 1000 {
		l.read(context.Background(), k, s)
		rounds++
	}
	// Every second round gives a new reading.
	if want := learnSkip + 2*learnFrom; rounds < want-1 || rounds > want+1 {
		t.Errorf("learned after %d rounds, want about %d", rounds, want)
	}
	if path := "/v1/var/nomad-pal/classes/default/train"; !strings.Contains(written[path], `"class":"A"`) {
		t.Errorf("written: %v", written)
	}
	name, parent, namespace := "train/dispatch-1", "train", "default"
	child := &api.Job{ID: &name, ParentID: &parent, Namespace: &namespace}
	if class, ok := l.Class(child); !ok || class != pal.ClassA {
		t.Errorf("a dispatched job of that name has class %q, %v", class, ok)
	}
	next := "train-2"
	if class, ok := l.Class(&api.Job{ID: &next, Name: &parent, Namespace: &namespace}); !ok || class != pal.ClassA {
		t.Errorf("a job with another id and the same name has class %q, %v", class, ok)
	}
	l.read(context.Background(), k, s)
	if s.rounds != rounds {
		t.Error("a job is still watched although its class is learned")
	}
}

// A class that somebody stores while the learner runs counts for the next jobs of that name. So does
// a class that could not be read when the learner started.
func TestLearnerReadsStoredClasses(t *testing.T) {
	t.Parallel()
	server := nomadtest.New(nomadtest.Options{Seed: 1})
	defer server.Close()
	c, err := nomad.NewClient(server.Config("c", ""), "")
	if err != nil {
		t.Fatal(err)
	}
	k := cluster.JobKey{Namespace: "default", ID: "train"}
	l := NewLearner(c, time.Millisecond, hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	server.Fail("", "GET /v1/vars", nomadtest.Failed, 1)
	running.Go(func() { l.Run(ctx) })
	for _, class := range []pal.AppClass{pal.ClassC, pal.ClassA} {
		if err := store.In(c).Class(k).Write(t.Context(), store.Class{Job: k, Verdict: classify.Verdict{Class: class}}); err != nil {
			t.Fatal(err)
		}
		patience.Eventually(t, "the class "+string(class)+" is used", func() bool {
			learned, ok := l.Class(&api.Job{ID: &k.ID, Namespace: &k.Namespace})
			return ok && learned == class
		})
	}
	if err := c.DeleteVariable(t.Context(), store.In(c).Class(k).Path); err != nil {
		t.Fatal(err)
	}
	patience.Eventually(t, "a deleted class is not used", func() bool {
		_, ok := l.Class(&api.Job{ID: &k.ID, Namespace: &k.Namespace})
		return !ok
	})
}

// Nomad shows an empty list to a token that may no longer list variables. The learner then keeps the
// classes that it knows.
func TestLearnerKeepsClassesWithoutRights(t *testing.T) {
	t.Parallel()
	server := nomadtest.New(nomadtest.Options{Seed: 1})
	defer server.Close()
	may := map[string]nomadtest.Token{"agent": {Namespaces: map[string][]string{"default": {"variables"}}}}
	server.SetTokens(may)
	c, err := nomad.NewClient(server.Config("c", "agent"), "")
	if err != nil {
		t.Fatal(err)
	}
	k := cluster.JobKey{Namespace: "default", ID: "train"}
	if err := store.In(c).Class(k).Write(t.Context(), store.Class{Job: k, Verdict: classify.Verdict{Class: pal.ClassA}}); err != nil {
		t.Fatal(err)
	}
	l := NewLearner(c, time.Second, hclog.NewNullLogger())
	for _, tokens := range []map[string]nomadtest.Token{may, {"agent": {Nodes: true}}} {
		server.SetTokens(tokens)
		l.readClasses(t.Context())
		if class, ok := l.Class(&api.Job{ID: &k.ID, Namespace: &k.Namespace}); !ok || class != pal.ClassA {
			t.Errorf("with %v: class %q, %v", tokens, class, ok)
		}
	}
}

// The classes of names that never come again are deleted, the oldest first. The class of a name that
// a job has stays.
func TestLearnerForgets(t *testing.T) {
	t.Parallel()
	server := nomadtest.New(nomadtest.Options{Seed: 1})
	defer server.Close()
	c, err := nomad.NewClient(server.Config("c", ""), "")
	if err != nil {
		t.Fatal(err)
	}
	named := func(id string) cluster.JobKey { return cluster.JobKey{Namespace: "default", ID: id} }
	names := []string{"exists", "gone"}
	for i := range classesKept {
		names = append(names, fmt.Sprint("run-", i))
	}
	for _, name := range names {
		if err := store.In(c).Class(named(name)).Write(t.Context(), store.Class{Job: named(name), Verdict: classify.Verdict{Class: pal.ClassA}}); err != nil {
			t.Fatal(err)
		}
	}
	id, namespace := names[0], "default"
	s := cluster.NewState()
	s.Jobs[named(id)] = &api.Job{ID: &id, Name: &id, Namespace: &namespace}
	l := NewLearner(c, time.Second, hclog.NewNullLogger())
	if err := l.forget(t.Context(), s, l.readClasses(t.Context())); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if is, err := store.In(c).Class(named(name)).Read(t.Context()); err != nil || is.There != (i != 1) {
			t.Errorf("class of %q: there %v, %v", name, is.There, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The learner lists the stored classes once each time it lists the jobs.
func TestLearnerListsClassesOnce(t *testing.T) {
	t.Parallel()
	server := nomadtest.New(nomadtest.Options{Seed: 1})
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	lists, jobs := 0, 0
	c, err := nomad.NewClient(server.Config("c", ""), "", func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/v1/vars":
				lists++
			case "/v1/jobs":
				if jobs++; jobs == 3 {
					cancel()
				}
			}
			return next.RoundTrip(r)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	k := cluster.JobKey{Namespace: "default", ID: "train"}
	if err := store.In(c).Class(k).Write(t.Context(), store.Class{Job: k, Verdict: classify.Verdict{Class: pal.ClassA}}); err != nil {
		t.Fatal(err)
	}
	NewLearner(c, time.Millisecond, hclog.NewNullLogger()).Run(ctx)
	if lists != 3 {
		t.Errorf("the learner listed the classes %d times, and the jobs 3 times", lists)
	}
}

// If the learner panics, it logs the bug and continues; the process does not end.
func TestLearnerSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := NewLearner(nil, time.Second, hclog.New(&hclog.LoggerOptions{Output: &log})) // any request panics
		ctx, cancel := patience.Context(t.Context(), patience.Limits{})
		defer cancel()
		l.Run(ctx)
		if n := strings.Count(log.String(), "a bug: in="); n < 3 {
			t.Errorf("%d bugs are logged", n)
		}
	})
}
