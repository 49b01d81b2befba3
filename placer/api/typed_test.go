// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

func TestStartRun(t *testing.T) {
	for want, job := range map[string]*api.Job{
		"nomad job dispatch sweep": {ID: new("sweep"), Namespace: new("default"), ParameterizedJob: &api.ParameterizedJobConfig{MetaOptional: []string{"seed"}}},
		"nomad job dispatch -meta lr=<value> -meta model=<value> -namespace team 'my sweep'": {ID: new("my sweep"), Namespace: new("team"), ParameterizedJob: &api.ParameterizedJobConfig{MetaRequired: []string{"lr", "model"}}},
		"nomad job periodic force nightly":                                                   {ID: new("nightly"), Namespace: new("default"), Periodic: &api.PeriodicConfig{}},
	} {
		if got := StartRun(job); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
