// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// agentWith simulates an agent with n jobs: every tenth never starts, and namespaces and classes
// alternate.
func agentWith(t testing.TB, n int) string {
	var jobs []palapi.JobStatus
	for i := range n {
		j := palapi.JobStatus{Namespace: fmt.Sprintf("ns-%d", i%2), Job: fmt.Sprintf("job-%05d", i), State: palapi.Waiting, GPUs: 1 + i%4, Class: string(rune('A' + i%4)),
			Submitted: time.Now().Add(-time.Hour), Reason: reason.Reason{Kind: reason.GPUs, Needs: 4, Free: 1}}
		if i%10 == 9 {
			j.State, j.Reason = palapi.Unschedulable, reason.Reason{Kind: reason.TooFew, Needs: 80, Match: 8}
		} else {
			j.Position = n - i
		}
		jobs = append(jobs, j)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/v1/agent":
			_ = json.NewEncoder(w).Encode(palapi.Activity{Working: true, Agent: "test"})
		case "/v1/queue":
			_ = json.NewEncoder(w).Encode(jobs)
		case "/v1/tenants":
			_, _ = io.WriteString(w, "[]")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A namespace that does not exist is an error, because its name may be
// misspelled. It is not treated as one without jobs.
func TestNoSuchNamespace(t *testing.T) {
	c := newCluster(t)
	c.nomad.AddNamespace("research")
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\n"))
	for _, args := range [][]string{{"status"}, {"queue"}, {"explain", "train"}, {"events"}, {"release", "-all"}, {"release", "train"}, {"classify", "train"}} {
		in := func(namespace string) []string { return slices.Insert(slices.Clone(args), 1, "-namespace", namespace) }
		for namespace, want := range map[string]string{"reserach": `Error: no namespace "reserach" (did you mean "research"?)`, "nowhere": `Error: no namespace "nowhere": there are default, research`} {
			if code, out, said := c.does(in(namespace)...); code != 1 || out != "" || !strings.HasPrefix(said, want) {
				t.Errorf("%v: %d %s%s", in(namespace), code, out, said)
			}
		}
		if _, _, said := c.does(in("research")...); strings.Contains(said, "no namespace") {
			t.Errorf("%v: %s", in("research"), said)
		}
	}
}

// queue shows the jobs that match, by position, and counts them.
func TestQueue(t *testing.T) {
	c := newCluster(t)
	c.nomad.AddNamespace("none")
	t.Setenv("NOMAD_PAL_ADDR", agentWith(t, 100))
	lines := func(args ...string) (jobs []string, out string) {
		t.Helper()
		code, out, err := c.does(append([]string{"queue"}, args...)...)
		if code != 0 {
			t.Fatalf("%v: %d %s", args, code, err)
		}
		for line := range strings.Lines(out) {
			if _, rest, ok := strings.Cut(line, "job-"); ok {
				jobs = append(jobs, rest[:5])
			}
		}
		return jobs, out
	}
	all, out := lines()
	if len(all) != 100 || all[0] != "00098" || all[89] != "00000" || all[90] != "00009" || !strings.Contains(out, "90 jobs wait for 220 GPUs; 10 can never start.\n") {
		t.Errorf("%d: %v\n%s", len(all), all, out[len(out)-200:])
	}
	for args, want := range map[string]int{
		"-namespace=ns-1": 50, "-namespace=*": 100, "-namespace=none": 0,
	} {
		if jobs, out := lines(strings.Fields(args)...); len(jobs) != want {
			t.Errorf("%s: %d jobs, want %d\n%s", args, len(jobs), want, out)
		}
	}
}

// status says why a running job has no expected end, and says nothing about it if all
// have one.
func TestStatusWithoutExpectedEnd(t *testing.T) {
	now := time.Now()
	for _, known := range []bool{false, true} {
		j := palapi.JobStatus{Namespace: "default", Job: "a", State: palapi.Running, Nodes: 1}
		if known {
			j.EndFrom, j.EndTo = now.Add(time.Hour), now.Add(time.Hour)
		}
		var out bytes.Buffer
		printStatus(&base{io: streams{out: &out}}, overview{Jobs: []palapi.JobStatus{j}}, false)
		if strings.Contains(out.String(), "pal_duration") == known {
			t.Errorf("known %v:\n%s", known, out.String())
		}
	}
}

// Past GPU hours of tenants count less and less, and the table shows how fast.
func TestTenantsFade(t *testing.T) {
	for seconds, want := range map[float64]string{7 * 24 * 3600: "a GPU hour used 7 days ago counts half", 0: ""} {
		var out bytes.Buffer
		printTenants(&base{io: streams{out: &out}}, []queue.TenantUse{{Tenant: "a", HalfLifeSeconds: seconds}, {Tenant: "b", HalfLifeSeconds: seconds}})
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "count less") != (want != "") {
			t.Errorf("%v s:\n%s", seconds, got)
		}
	}
}

// On a terminal of 80 columns, the table of jobs breaks no word, and a reason gets lines of its own if
// it would be squeezed into a narrow column.
func TestJobsOnTerminal(t *testing.T) {
	now := time.Now()
	const why = "the job could start, but waits for GPUs that are faster or closer together and may soon come free"
	start, end := now.Add(4*time.Minute), now.Add(8*time.Minute)
	jobs := []palapi.JobStatus{
		{Namespace: "default", Job: "train", Position: 1, State: palapi.Waiting, GPUs: 16, Class: "A", Submitted: now, StartFrom: start, StartTo: end, Reason: reason.Reason{Kind: reason.Locality}},
		{Namespace: "default", Job: "light", State: palapi.Running, GPUs: 1, Nodes: 1, Class: "B", Submitted: now, Started: now, EndFrom: start, EndTo: end},
		{Namespace: "default", Job: "mig", State: palapi.Unschedulable, GPUs: 1, Class: "D", Submitted: now, Reason: reason.Unread("none")},
	}
	for _, listed := range [][]palapi.JobStatus{jobs, jobs[:1]} {
		var out bytes.Buffer
		b := base{io: streams{out: &out, terminal: true}}
		b.printJobs(listed, now)
		text := out.String()
		for line := range strings.Lines(text) {
			if textWidth(strings.TrimRight(line, "\n")) > columns {
				t.Errorf("more than %d columns: %s", columns, line)
			}
		}
		words := strings.Fields(text)
		for _, want := range []string{"Submitted", "train", "waiting"} {
			if !slices.Contains(words, want) {
				t.Errorf("no %q:\n%s", want, text)
			}
		}
		if len(listed) > 1 && (!slices.Contains(words, "unschedulable") || !slices.Contains(words, "Elapsed")) {
			t.Errorf("a broken word:\n%s", text)
		}
		if !strings.Contains(strings.Join(words, " "), why) || strings.Count(text, "\n") > 3+2*len(listed) {
			t.Errorf("the reason is not in one piece, or takes too many lines:\n%s", text)
		}
	}
	var plain bytes.Buffer
	b := base{io: streams{out: &plain}}
	b.printJobs(jobs, now)
	if !regexp.MustCompile(`(?m)Expected +Reason$`).MatchString(plain.String()) || strings.Count(plain.String(), "\n") != 4 {
		t.Errorf("not on a terminal:\n%s", plain.String())
	}
}

// Of gangs that were registered again while they run, queue lists those that do not fit in
// their new form.
func TestQueueOfResubmitted(t *testing.T) {
	jobs := []palapi.JobStatus{
		{State: palapi.Waiting, GPUs: 2},
		{State: palapi.Resubmitted, GPUs: 8, Reason: reason.Reason{Kind: reason.RunsOnAsBefore}},
		{State: palapi.Resubmitted, GPUs: 4}, // keeps its GPUs
	}
	if !queues(jobs[0]) || !queues(jobs[1]) || queues(jobs[2]) {
		t.Error("the listed gangs")
	}
	for _, tc := range []struct {
		jobs []palapi.JobStatus
		want string
	}{
		{jobs[:2], "1 job waits for 2 GPUs; 1 keeps running in the old version."},
		{jobs[1:2], "1 job keeps running in the old version."},
		{[]palapi.JobStatus{{State: palapi.Failed}, {State: palapi.Unschedulable}, {State: palapi.Rejected}}, "2 jobs can never start; 1 failed."},
		{[]palapi.JobStatus{{State: palapi.Failed}}, "1 job failed."},
	} {
		if got := queueSummary(tc.jobs); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// Status says how much slower the same jobs ran on slow GPUs, once there are enough runs.
func TestStatusOfSpeed(t *testing.T) {
	slower, low, high := 0.061, 0.042, 0.08
	for _, c := range []struct {
		speed *palapi.Speed
		want  string
	}{
		{&palapi.Speed{FastRuns: 12, SlowRuns: 10, Slower: &slower, Low: &low, High: &high},
			"the same jobs took 6.1 % (4.2 to 8.0 %) longer with a GPU of class 4 or slower (10 runs) than on GPUs of class 1 (12 runs)"},
		{&palapi.Speed{FastRuns: 9, SlowRuns: 10}, ""},
		{nil, ""},
	} {
		var out strings.Builder
		printStatus(&base{io: streams{out: &out}}, overview{Speed: c.speed}, false)
		if got := out.String(); !strings.Contains(got, c.want) || strings.Contains(got, "Speed") != (c.want != "") {
			t.Errorf("%+v:\n%s", c.speed, got)
		}
	}
}
