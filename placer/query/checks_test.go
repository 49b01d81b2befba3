// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// A profile is reported as old after three months, not before.
func TestCheckOldProfile(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]palapi.Verdict{profileOld - time.Hour: palapi.OK, profileOld + time.Hour: palapi.Warn} {
		p := &profile.Profile{Version: 1, Created: now.Add(-age).UTC().Format(time.RFC3339)}
		s := setup{&model.Model{Time: now, Profile: p, State: cluster.NewState()}}
		if c := s.checkProfile(); c.Verdict != want || (c.Next == "") != (want == palapi.OK) {
			t.Errorf("%s old: %+v", age, c)
		}
	}
}

// A difference between clocks is not reported as an old heartbeat.
func TestCheckClocks(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what            string
		written, worked time.Time
		trouble         string
		want            palapi.Verdict
		apart           time.Duration // how far the servers' clock is ahead of this machine's
	}{
		{"none", time.Time{}, time.Time{}, "", palapi.Warn, 0},
		{"right", now.Add(-10 * time.Second), now.Add(-10 * time.Second), "", palapi.OK, 0},
		{"an old one", now.Add(-time.Hour), now.Add(-time.Hour), "", palapi.OK, 0},
		{"the agent's is behind", now.Add(-10 * time.Second), now.Add(-time.Minute), "", palapi.Warn, 0},
		{"the agent's is ahead", now.Add(-10 * time.Second), now.Add(time.Minute), "", palapi.Warn, 0},
		{"the servers' is ahead", now.Add(time.Minute), now.Add(time.Minute), "", palapi.Warn, time.Minute},
		{"the servers' is behind", now.Add(-time.Minute), now.Add(-time.Minute), "", palapi.Warn, -time.Minute},
		{"the agent has been in trouble for an hour", now.Add(-10 * time.Second), now.Add(-time.Hour), "it cannot work", palapi.OK, 0},
		{"in trouble, and the agent's is ahead", now.Add(-10 * time.Second), now.Add(time.Minute), "it cannot work", palapi.Warn, 0},
	} {
		if got := CheckClocks(store.Heartbeat{Worked: c.worked, Trouble: c.trouble}, c.written, now.Add(c.apart), now); got.Verdict != c.want {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

// Doctor reports on which nodes GPUs are not measured, and why. A node that is configured not to
// measure is no fault.
func TestCheckMeasuring(t *testing.T) {
	const denied = "Permission denied; let the plugin ask Nomad"
	for _, c := range []struct {
		name  string
		nodes []string // the nodes' own reports
		want  palapi.Verdict
		found []string
	}{
		{"another plugin", []string{""}, palapi.OK, []string{"no GPU waits"}},
		{"all is well", []string{`{"GPU-a":{"last":"2026-01-02T03:04:05Z"}}`}, palapi.OK, []string{"no GPU waits"}},
		{"off", []string{`{"GPU-a":{"unable":"measuring is off"}}`}, palapi.OK, []string{"on n0: measuring is off"}},
		{"below the power limit", []string{`{"GPU-a":{"last":"2026-01-02T03:04:05Z","uncapped":true},"GPU-b":{"uncapped":true}}`, `{"GPU-c":{"unable":"a virtual GPU"}}`}, palapi.OK,
			[]string{"GPUs are not measured on n1: a virtual GPU; the measurement of class A stayed below the power limit on n0, so its times say little about training"}},
		{"no rights", []string{`{"GPU-a":{"waits":"in use"}}`, `{"GPU-b":{"waits":"` + denied + `"},"GPU-c":{"waits":"` + denied + `"}}`, `{"GPU-d":{"waits":"` + denied + `"}}`},
			palapi.Warn, []string{"on n1, n2: " + denied + "; on n0: in use"}},
		{"many reasons", []string{`{"a":{"waits":"1"}}`, `{"b":{"waits":"2"}}`, `{"c":{"waits":"3"}}`, `{"d":{"waits":"4"}}`}, palapi.Warn, []string{"on n0: 1;", "; 1 more"}},
		{"no accounts", []string{`[`}, palapi.Warn, []string{"on n0: reading the state of measurements"}},
	} {
		state := cluster.NewState()
		for i, text := range c.nodes {
			d := &api.NodeDeviceResource{Vendor: attr.Vendor, Type: attr.Type, Attributes: map[string]*api.Attribute{}, Instances: []*api.NodeDevice{{ID: "x", Healthy: true}}}
			if text != "" {
				d.Attributes[attr.Measuring] = &api.Attribute{StringVal: &text}
			}
			n := &api.Node{ID: fmt.Sprint(i), Name: fmt.Sprintf("n%d", i), NodeResources: &api.NodeResources{Devices: []*api.NodeDeviceResource{d}}}
			state.Nodes[n.ID] = n
		}
		got := setup{&model.Model{State: state}}.checkMeasuring()
		for _, f := range c.found {
			if !strings.Contains(got.Found, f) {
				t.Errorf("%s: %+v, want %q", c.name, got, f)
			}
		}
		if got.Verdict != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}
