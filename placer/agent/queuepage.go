// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// queuePageLimit is the maximum number of jobs on one page.
const queuePageLimit = 200

// queueOrders has the sort orders of a page, each as an ascending order. In ascending order, jobs
// without a position, or without an expected start, come last.
var queueOrders = map[string]func(a, b palapi.JobStatus) int{
	"position":  func(a, b palapi.JobStatus) int { return last(a.Position == 0, b.Position == 0, a.Position-b.Position) },
	"job":       func(a, b palapi.JobStatus) int { return 0 }, // each order sorts equal jobs by name
	"state":     func(a, b palapi.JobStatus) int { return cmp.Compare(a.State, b.State) },
	"gpus":      func(a, b palapi.JobStatus) int { return a.GPUs - b.GPUs },
	"class":     func(a, b palapi.JobStatus) int { return cmp.Compare(a.Class, b.Class) },
	"user":      func(a, b palapi.JobStatus) int { return cmp.Compare(a.User, b.User) },
	"submitted": func(a, b palapi.JobStatus) int { return a.Submitted.Compare(b.Submitted) },
	"start": func(a, b palapi.JobStatus) int {
		return last(a.StartFrom.IsZero(), b.StartFrom.IsZero(), a.StartFrom.Compare(b.StartFrom))
	},
}

func last(a, b bool, otherwise int) int {
	switch {
	case a == b:
		return otherwise
	case a:
		return 1
	}
	return -1
}

// serveQueuePage returns a part of the queue:
//
//	GET /v1/queue/page?offset=&limit=&sort=&order=desc&search=&state=&class=
func (s *server) serveQueuePage(w http.ResponseWriter, r *http.Request) {
	ask, err := newQueueQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if jobs, ok := s.jobsFor(w, r); ok {
		writeJSON(w, http.StatusOK, ask.page(jobs))
	}
}

type queueQuery struct {
	offset, limit int
	search, class string
	states        []palapi.State // if empty, all states
	order         func(a, b palapi.JobStatus) int
}

// commaList lists the allowed values of a parameter or key.
func commaList[T ~string](all []T) string {
	var names []string
	for _, one := range all {
		names = append(names, string(one))
	}
	return strings.Join(names, ", ")
}

func newQueueQuery(v url.Values) (q queueQuery, err error) {
	number := func(name string, otherwise int) int {
		if v.Get(name) == "" {
			return otherwise
		}
		n, e := strconv.Atoi(v.Get(name))
		if e != nil || n < 0 {
			err = fmt.Errorf("%s=%q is neither 0 nor a positive integer", name, v.Get(name))
		}
		return n
	}
	q = queueQuery{
		offset: number("offset", 0), limit: min(number("limit", 50), queuePageLimit),
		search: strings.ToLower(v.Get("search")), class: v.Get("class"),
	}
	for _, state := range words(v["state"]) {
		states := palapi.States()
		if !slices.Contains(states, palapi.State(state)) {
			return q, fmt.Errorf("state=%q is none of %s", state, commaList(states))
		}
		q.states = append(q.states, palapi.State(state))
	}
	class, e := pal.ParseAppClass(q.class)
	if e == nil {
		q.class = string(class)
	} else if q.class != "" {
		return q, fmt.Errorf("class=%q: %w", q.class, e)
	}
	sort := cmp.Or(v.Get("sort"), "position")
	by, ok := queueOrders[sort]
	if !ok {
		return q, fmt.Errorf("sort=%q is none of position, job, state, gpus, class, user, submitted, start", sort)
	}
	q.order = func(a, b palapi.JobStatus) int {
		return cmp.Or(by(a, b), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Job, b.Job))
	}
	if v.Get("order") == "desc" {
		up := q.order
		q.order = func(a, b palapi.JobStatus) int { return up(b, a) }
	}
	return q, err
}

// words splits the values of a parameter that may be repeated, or contain several values separated
// by commas.
func words(values []string) []string {
	return strings.FieldsFunc(strings.Join(values, ","), func(r rune) bool { return r == ',' })
}

func (q queueQuery) page(jobs []palapi.JobStatus) palapi.QueuePage {
	p := palapi.QueuePage{Total: len(jobs), States: map[palapi.State]int{}}
	for _, j := range jobs {
		p.States[j.State]++
	}
	all := jobs
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j palapi.JobStatus) bool {
		return len(q.states) > 0 && !slices.Contains(q.states, j.State) || q.class != "" && j.Class != q.class ||
			!strings.Contains(strings.ToLower(j.Namespace+"/"+j.Job), q.search)
	})
	for _, j := range jobs {
		p.GPUs += j.Amount(j.GPUs)
	}
	p.GPUs = reason.Rounded(p.GPUs)
	slices.SortFunc(jobs, q.order)
	if q.search == "" {
		jobs = palapi.ByArray(jobs, all)
	}
	from := min(q.offset, len(jobs))
	p.Matching, p.Jobs = len(jobs), jobs[from:min(from+q.limit, len(jobs))]
	return p
}
