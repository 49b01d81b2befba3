// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// The next step of a failed gang can be typed as it stands.
func TestNextOfFailed(t *testing.T) {
	var out bytes.Buffer
	printNext(&base{io: streams{out: &out}}, &query.Explanation{Namespace: "team", Job: "j", State: gang.Failed,
		Failures: []model.Try{{Try: 1, Failure: failure.Failure{Alloc: "11111111-old"}}, {Try: 2, Failure: failure.Failure{Alloc: "22222222-last"}}}})
	for _, want := range []string{"nomad alloc logs -stderr -namespace team 22222222\n", "nomad alloc status -namespace team 22222222\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// Services that are in the way do not end by themselves: what makes room can be typed as it stands.
// Those that the placer may stop, and those that nobody else may know of, are not offered.
func TestNextBesideServices(t *testing.T) {
	var out bytes.Buffer
	printNext(&base{io: streams{out: &out}}, &query.Explanation{Namespace: "default", Job: "j", State: gang.Waiting, Holders: &query.Holders{Enough: true, Jobs: []query.Holder{
		{Job: "default/batch", Needed: true}, {Job: "default/web", Service: true, Needed: true}, {Job: "team/api/v1", Service: true, Needed: true},
		{Job: "default/spare", Service: true, Preemptible: true, Needed: true}, {Job: model.Unseen, Service: true, Needed: true}, {Job: "default/far", Service: true},
	}}})
	_, next, _ := strings.Cut(out.String(), "Next\n")
	const want = "- default/web is a service: it makes room if somebody stops it (nomad job stop web) or gives it fewer members (nomad job scale web <count>).\n" +
		"- team/api/v1 is a service: it makes room if somebody stops it (nomad job stop -namespace team api/v1) or gives it fewer members (nomad job scale -namespace team api/v1 <count>).\n"
	if unfolded := strings.ReplaceAll(next, "\n  ", " "); unfolded != want {
		t.Errorf("%s\nwant\n%s", unfolded, want)
	}
}

// A new version that waits to be promoted: what promotes it can be typed as it stands.
func TestNextOfCanary(t *testing.T) {
	d := &query.Deployment{ID: "b5787e71-1111", Status: "running", Version: 3, Promote: true}
	e := &query.Explanation{Namespace: "team", Job: "web", State: gang.Running, Deployment: d}
	const want = "Version 3 waits to be promoted: nomad deployment promote -namespace team b5787e71. To give it up: nomad deployment fail -namespace team b5787e71\n"
	for _, waits := range []bool{true, false} {
		var out bytes.Buffer
		d.Promote = waits
		printNext(&base{io: streams{out: &out}}, e)
		if got := strings.Contains(strings.ReplaceAll(out.String(), "\n  ", " "), want); got != waits {
			t.Errorf("waits: %v: %s", waits, out.String())
		}
	}
}

// A gang of which members are pending in Nomad does not run yet.
func TestPendingIsStarting(t *testing.T) {
	e := &query.Explanation{Job: "j", State: gang.Running, Reason: reason.Reason{Kind: reason.MembersRun, Want: 2, Doing: &reason.Doing{Run: 1}}, Decision: &pal.Decision{Demand: 2, Chosen: &pal.Choice{Nodes: 1}}}
	for status, want := range map[string]string{"running": "j runs on 2 GPUs", "pending": "j is placed on 2 GPUs of one node. 1 of 2 members run. "} {
		e.Allocations = []query.Allocation{{Status: "running"}, {Status: status}}
		if got := sentence(e, time.Now()); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", status, got)
		}
	}
}

// Nobody can change a dispatched child.
func TestRejectedChild(t *testing.T) {
	e := &query.Explanation{Job: "d/dispatch-1", State: gang.Rejected, Reason: reason.Reason{Kind: reason.Rejected, Cause: "x"}}
	if got, want := sentence(e, time.Now()), "d/dispatch-1 is rejected: x."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.Parent = "d"
	if got, want := sentence(e, time.Now()), "d/dispatch-1 is rejected, and nobody can change it, as it is a child of d: x."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
