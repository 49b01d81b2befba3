// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/nomad-pal/nomad-pal/research/published"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// part is what a trace is used for.
type part string

const (
	chosen   part = "choose" // rules may be chosen with this trace
	reported part = "report" // rules were not chosen with this trace
	whole    part = "whole"  // a whole cluster, neither to choose rules nor to report
	sia      part = "sia"    // a workload of the PAL artifact, on its 64 GPUs
)

// siaName is the name of the workloads of the PAL artifact.
const siaName = "Sia-Philly"

// source is a trace to run.
type source struct {
	trace trace.Trace
	part  part
}

// known lists the published traces. file is the file's name in the folder traces; virtual reports
// whether the trace's tenants are virtual clusters.
func known() []struct {
	name, file string
	virtual    bool
} {
	return []struct {
		name, file string
		virtual    bool
	}{
		{"Philly", "philly.csv", true},
		{"Philly (original)", "cluster_job_log", true},
		{"Helios Venus", "Venus/cluster_log.csv", true},
		{"Helios Earth", "Earth/cluster_log.csv", true},
		{"Helios Saturn", "Saturn/cluster_log.csv", true},
		{"Helios Uranus", "Uranus/cluster_log.csv", true},
		{"Alibaba 2020", "pai_task_table.csv", false},
		{"Alibaba 2023", "openb_pod_list_default.csv", false},
		{"Alibaba 2023, half of the GPU time in gangs", "openb_pod_list_multigpu50.csv", false},
		{"Acme Seren", "trace_seren.csv", false},
		{"Acme Kalos", "trace_kalos.csv", false},
	}
}

// find reads the existing traces: the traces of the PAL artifact from the directory itself, the
// other traces from its folder traces. find also returns the names of missing known traces.
func find(dir string) (found []source, missing []string, err error) {
	if dir == "" {
		return nil, nil, errors.New("PAL_DATA is not set; set it to the directory with the traces")
	}
	for w := 1; w <= 8; w++ {
		t, err := published.ReadFile(filepath.Join(dir, fmt.Sprintf("sia_workload_%d.csv", w)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, nil, err
		}
		t.Name = fmt.Sprintf("%s %d", siaName, w)
		found = append(found, source{t, sia})
	}
	for _, k := range known() {
		path := filepath.Join(dir, "traces", filepath.FromSlash(k.file))
		t, err := published.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, fmt.Sprintf("%s (traces/%s)", k.name, k.file))
			continue
		} else if err != nil {
			return nil, nil, err
		}
		t.Name = k.name
		found = append(found, source{t, whole})
		if k.virtual {
			found = append(found, clusters(t)...)
		}
	}
	return found, missing, nil
}

// Only virtual clusters with at least minJobs jobs run, because fewer jobs hardly queue. Of these,
// the maxClusters with the most GPU time run.
const (
	maxClusters = 10
	minJobs     = 500
)

// clusters returns the largest virtual clusters of a trace. Every other virtual cluster may be used
// to choose rules; the rest only test the rules.
func clusters(t trace.Trace) []source {
	var vs []source
	for _, name := range published.Tenants(t) {
		v := published.Of(t, name)
		if len(v.Jobs) < minJobs || strings.TrimSpace(name) == "" {
			continue
		}
		p := chosen
		if len(vs)%2 == 1 {
			p = reported
		}
		if vs = append(vs, source{v, p}); len(vs) == maxClusters {
			break
		}
	}
	return vs
}
