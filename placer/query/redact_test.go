// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// A caller who cannot see a namespace finds no name from it in the reasons for waiting, neither in
// fields nor in sentences; everything else is unchanged.
func TestRedaction(t *testing.T) {
	t.Parallel()
	mine := palapi.Sees(func(namespace string) bool { return namespace == "mine" })
	all := palapi.Sees(func(string) bool { return true })
	for _, c := range []struct {
		name string
		wait queue.Wait
		want string // for a caller who sees only his own namespace
	}{
		{"kept for another", queue.Wait{Reason: reason.Reserved, Free: 2, Ahead: "theirs/secret"}, "free GPUs are reserved for " + palapi.Unseen + ", ahead in the queue"},
		{"kept for his own", queue.Wait{Reason: reason.Reserved, Free: 2, Ahead: "mine/first"}, "free GPUs are reserved for mine/first, ahead in the queue"},
		{"stopping some", queue.Wait{Reason: reason.Stopping, Stopping: []string{"theirs/secret", "mine/old"}}, palapi.Unseen + " and mine/old are being stopped for this job"},
		{"and shrinking some", queue.Wait{Reason: reason.Stopping, Stopping: []string{"theirs/secret"}, Shrinking: []string{"theirs/wide", "mine/wide"}},
			palapi.Unseen + " is being stopped for this job; " + palapi.Unseen + " and mine/wide are giving back GPUs"},
		{"nobody", queue.Wait{Reason: reason.GPUs, GPUs: 4, Free: 1}, "needs 4 GPUs; 1 is free"},
		{"a name that is none", queue.Wait{Reason: reason.Reserved, Ahead: "secret"}, "free GPUs are reserved for " + palapi.Unseen + ", ahead in the queue"},
	} {
		var j palapi.JobStatus
		(&model.Wait{Wait: c.wait}).Tell(&j)
		e := draft{Explanation: palapi.Explanation{Reason: c.wait.Why()}}
		e.takeWait(&model.Wait{Wait: c.wait}, &pal.Decision{}, 0)
		if got := j.RedactedFor(all); got.Reason.String() != j.Reason.String() && c.wait.Ahead != "secret" {
			t.Errorf("%s: who sees all reads %q", c.name, got.Reason.String())
		}
		got := j.RedactedFor(mine)
		if got.Reason.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.Reason.String(), c.want)
		}
		his := e.RedactedFor(mine)
		if his.Reason.String() != c.want || his.Wait.Why().String() != c.want {
			t.Errorf("%s: explained %q, %q", c.name, his.Reason.String(), his.Wait.Why())
		}
		if e.Wait.Ahead != c.wait.Ahead || strings.Join(e.Wait.Stopping, " ") != strings.Join(c.wait.Stopping, " ") {
			t.Errorf("%s: the snapshot's own explanation has changed", c.name)
		}
	}
	never, always := func() bool { return false }, func() bool { return true }
	g := palapi.GPU{Job: "theirs/secret", Quarantine: &palapi.Quarantine{Reason: "task secret failed", Strikes: 2}}
	if got := g.RedactedFor(mine, never); got.Job != palapi.Unseen || strings.Contains(got.Quarantine.Reason, "secret") || got.Quarantine.Strikes != 2 || !strings.Contains(g.Quarantine.Reason, "secret") {
		t.Errorf("%+v", got)
	}
	if got := g.RedactedFor(all, always); got.Job != g.Job || got.Quarantine.Reason != g.Quarantine.Reason {
		t.Errorf("to an operator: %+v", got)
	}
	if got := (palapi.GPU{}).RedactedFor(mine, never); got.Job != "" {
		t.Errorf("a free GPU: %+v", got)
	}
}

// Each reason in an answer is redacted, also one that is in a new field.
func TestRedactionOfEveryReason(t *testing.T) {
	t.Parallel()
	const secret = "theirs/secret"
	nobody := palapi.Sees(func(string) bool { return false })
	naming := func(answer any) (fields []string) {
		eachReason("", reflect.ValueOf(answer).Elem(), func(field string, r *reason.Reason) {
			if r.Ahead == secret {
				fields = append(fields, field)
			}
		})
		return fields
	}
	set := func(_ string, r *reason.Reason) { *r = reason.Reason{Kind: reason.Reserved, Ahead: secret} }
	var e palapi.Explanation
	var j palapi.JobStatus
	eachReason("", reflect.ValueOf(&e).Elem(), set)
	eachReason("", reflect.ValueOf(&j).Elem(), set)
	before := naming(&e)
	if len(before) < 8 || len(naming(&j)) == 0 {
		t.Fatalf("found the reasons %v and %v only", before, naming(&j))
	}
	his := j.RedactedFor(nobody)
	if got := slices.Concat(naming(e.RedactedFor(nobody)), naming(&his)); len(got) > 0 {
		t.Errorf("these reasons are not redacted: %v", got)
	}
	if got := naming(&e); !slices.Equal(got, before) {
		t.Errorf("the snapshot's own explanation has changed: it names the job in %v only", got)
	}
}

// eachReason calls do with each reason in the exported fields of v and their path. It fills in
// pointers and lists that are nil.
func eachReason(path string, v reflect.Value, do func(path string, r *reason.Reason)) {
	switch {
	case v.Type() == reflect.TypeFor[reason.Reason]():
		do(path, v.Addr().Interface().(*reason.Reason))
	case v.Kind() == reflect.Struct:
		for f, field := range v.Fields() {
			if f.IsExported() {
				eachReason(path+"."+f.Name, field, do)
			}
		}
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		eachReason(path, v.Elem(), do)
	case v.Kind() == reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		eachReason(path, v.Index(0), do)
	}
}
