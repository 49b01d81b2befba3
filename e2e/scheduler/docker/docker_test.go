// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package docker checks that Nomad's docker driver accepts the jobs to copy, on
// machines without docker.
package docker

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/drivers/docker"
	"github.com/hashicorp/nomad/helper/pluginutils/hclspecutils"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/jobspec2"
	"github.com/zclconf/go-cty/cty"
)

// TestJobspecs: Nomad's docker driver can read the keys, types and units of each
// config block in jobspecs/. Whether the image has the command is checked only on a
// machine with docker.
func TestJobspecs(t *testing.T) {
	schema, err := docker.NewDockerDriver(t.Context(), hclog.NewNullLogger()).TaskConfigSchema()
	if err != nil {
		t.Fatal(err)
	}
	spec, diags := hclspecutils.Convert(schema)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	files, err := filepath.Glob("../../../jobspecs/*.nomad.hcl")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		variables := map[string]cty.Value{}
		for _, name := range regexp.MustCompile(`\$\{(NOMAD_\w+)\}`).FindAllSubmatch(body, -1) {
			variables[string(name[1])] = cty.StringVal("filled in by Nomad")
		}
		job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{Path: file, Body: body, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range job.TaskGroups {
			for _, task := range group.Tasks {
				if task.Driver != "docker" {
					continue
				}
				checked++
				_, _, errs := hclutils.ParseHclInterface(task.Config, spec, variables)
				for _, err := range errs {
					t.Errorf("%s: task %q: %v", file, task.Name, err)
				}
			}
		}
	}
	if checked < 8 {
		t.Errorf("checked only %d tasks", checked)
	}
}
