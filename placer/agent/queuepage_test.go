// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// TestWholeQueries: a query that cannot be parsed is refused. net/http would drop the filter.
func TestWholeQueries(t *testing.T) {
	h := wholeQueries(http.NotFoundHandler())
	for ask, want := range map[string]int{"namespace=default;state=waiting": 400, "state=%zz": 400, "state=waiting&class=B": 404, "state=a%3Bb": 404, "": 404} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/queue?"+ask, nil))
		if w.Code != want {
			t.Errorf("%q: status %d, want %d: %s", ask, w.Code, want, w.Body)
		}
	}
}

func TestQueuePage(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	jobs := func() []palapi.JobStatus {
		return []palapi.JobStatus{
			{Namespace: "default", Job: "runs", User: "ann", State: palapi.Running, GPUs: 8, Class: "A", Submitted: at(1)},
			{Namespace: "default", Job: "second", State: palapi.Waiting, Position: 2, GPUs: 2, Class: "B", Submitted: at(3), StartFrom: at(10)},
			{Namespace: "research", Job: "First", State: palapi.Waiting, Position: 1, GPUs: 4, Class: "A", Submitted: at(2), StartFrom: at(20)},
			{Namespace: "default", Job: "never", State: palapi.Unschedulable, GPUs: 99, Class: "B", Submitted: at(4)},
		}
	}
	for ask, want := range map[string]string{
		"":                          "First second never runs",
		"order=desc":                "runs never second First",
		"sort=gpus":                 "second First runs never",
		"sort=gpus&order=desc":      "never runs First second",
		"sort=start":                "second First never runs",
		"sort=submitted":            "runs First second never",
		"sort=state":                "runs never second First",
		"sort=job":                  "never runs second First",
		"sort=user":                 "never second First runs",
		"sort=class&limit=2":        "runs First",
		"sort=job&limit=2&offset=1": "runs second",
		"offset=9":                  "",
		"search=research/f":         "First",
		"state=waiting&class=B":     "second",
		"state=waiting&class=b":     "second",
		"state=running,waiting":     "First second runs",
		"limit=0":                   "",
	} {
		v, _ := url.ParseQuery(ask)
		q, err := newQueueQuery(v)
		if err != nil {
			t.Fatalf("%s: %v", ask, err)
		}
		p := q.page(jobs())
		var names []string
		for _, j := range p.Jobs {
			names = append(names, j.Job)
		}
		if d := cmp.Diff(want, strings.Join(names, " ")); d != "" {
			t.Errorf("%s (-want +got):\n%s", ask, d)
		}
		if p.Total != 4 || p.States[palapi.Waiting] != 2 {
			t.Errorf("%s: %d jobs, %v", ask, p.Total, p.States)
		}
	}
	for _, ask := range []string{"limit=-1", "offset=x", "sort=luck", "state=done", "state=running,done", "class=E"} {
		v, _ := url.ParseQuery(ask)
		if _, err := newQueueQuery(v); err == nil {
			t.Errorf("%s is taken", ask)
		}
	}
	v, _ := url.ParseQuery("state=waiting&limit=1")
	if q, err := newQueueQuery(v); err != nil || q.page(jobs()).GPUs != 6 {
		t.Errorf("those that wait request %g GPUs: %v", q.page(jobs()).GPUs, err)
	}
	v, _ = url.ParseQuery("limit=1000000")
	if q, err := newQueueQuery(v); err != nil || q.limit != queuePageLimit {
		t.Errorf("a page has %d jobs: %v", q.limit, err)
	}
}

// The runs of an array are shown as one entry, unless a search matches a part of their names.
func TestQueuePageOfArray(t *testing.T) {
	jobs := []palapi.JobStatus{
		{Namespace: "default", Job: "a", State: palapi.Template, Runs: &palapi.Runs{Waiting: 2}},
		{Namespace: "default", Job: "a/1", Parent: "a", State: palapi.Waiting, Position: 1, GPUs: 2},
		{Namespace: "default", Job: "a/2", Parent: "a", State: palapi.Waiting, Position: 3, GPUs: 2},
		{Namespace: "default", Job: "b", State: palapi.Waiting, Position: 2, GPUs: 1},
	}
	for ask, want := range map[string]string{"": "a b", "state=waiting": "a b", "search=a/": "a/1 a/2", "sort=gpus": "a b"} {
		v, _ := url.ParseQuery(ask)
		q, err := newQueueQuery(v)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, j := range q.page(jobs).Jobs {
			names = append(names, j.Job)
		}
		if d := cmp.Diff(want, strings.Join(names, " ")); d != "" {
			t.Errorf("%s (-want +got):\n%s", ask, d)
		}
	}
}
