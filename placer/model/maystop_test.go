// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// The tenant decides whether its jobs may be stopped; if it does not, its parent tenant does;
// otherwise the class does.
func TestMayStop(t *testing.T) {
	yes, no := true, false
	c := DefaultConfig()
	if may, _ := c.MayStop("anybody", pal.ClassD); may {
		t.Error("by default, a job without pal_preempt may be stopped")
	}
	if err := setClasses(&c, "C, d"); err != nil {
		t.Fatal(err)
	}
	c.Queue.Tenants = map[string]queue.Tenant{
		"research": {DefaultPreempt: &yes, Weight: 2}, "research/vision": {Namespaces: []string{"vision-*"}},
		"research/prod": {DefaultPreempt: &no}, "ops": {},
	}
	for _, x := range []struct {
		namespace string
		class     pal.AppClass
		may       bool
		from      string
	}{
		{"vision-1", pal.ClassA, true, `default_preempt of tenant "research"`},
		{"prod", pal.ClassC, false, ""},
		{"ops", pal.ClassC, true, "default_preempt"},
		{"ops", pal.ClassA, false, ""},
		{"anybody", pal.ClassD, true, "default_preempt"},
	} {
		if may, from := c.MayStop(x.namespace, x.class); may != x.may || from != x.from {
			t.Errorf("namespace %s, class %s: %t %q, want %t %q", x.namespace, x.class, may, from, x.may, x.from)
		}
	}
	if err := setClasses(&c, "C, X"); err == nil {
		t.Error("class X is accepted")
	}
	if err := setClasses(&c, ""); err != nil || len(c.DefaultPreempt) != 0 {
		t.Errorf("an empty value is parsed as %v, %v", c.DefaultPreempt, err)
	}
}
