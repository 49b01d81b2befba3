// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package published reads published job traces. [ReadFile] recognizes the format by the columns.
// The package rewrites most traces, row by row, as the product's own table
// (docs/operators/simulate.md), which the product's parser then reads. So the rules for times,
// states, requeued jobs and left-out jobs are the product's. The traces are not part of this
// repository.
package published

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// ReadFile reads a published trace, a workload of the PAL artifact, or what the product reads:
//
//   - Philly (msr-fiddle/philly-traces, cluster_job_log): the attempts of a job are its runs.
//   - Helios (S-Lab-System-Group/HeliosData, cluster_log.csv) and Acme (InternLM/AcmeTrace): the part
//     of a job on each node is a member. In Acme's Kalos the duration includes the wait.
//   - Alibaba 2020 (alibaba/clusterdata, pai_task_table.csv): the tasks of a job are groups of one
//     gang, and the submission is the start.
//   - Alibaba 2023 (openb_pod_list_*.csv): see [pods].
//   - Gavel (stanford-futuredata/gavel): see [gavel].
//
// Fractions of a GPU are rounded up. Only Gavel's and Sia's jobs have a class other than A.
func ReadFile(path string) (trace.Trace, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return trace.Trace{}, fmt.Errorf("opening trace: %w", err)
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return philly(path, text)
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(string(text[:min(len(text), 1<<16)]), "\ufeff"), "\n")
	header := strings.Split(strings.TrimRight(line, "\r"), ",")
	has := func(column string) bool { return slices.Contains(header, column) }
	switch {
	case workload.IsSia(header):
		return workload.ReadSia(path)
	case has("job") && has("steps"):
		return gavel(path)
	case has("gpu_num"):
		return rewritten(path, helios)
	case has("num_gpu"):
		return rewritten(path, pods)
	case len(header) == len(paiColumns) && slices.Contains([]string{"Terminated", "Failed", "Running", "Waiting"}, header[3]):
		return rewritten(path, tasks)
	}
	return trace.ReadFile(path)
}

// row is a row of a table, by column.
type row = map[string]string

// table is a table in the product's own format.
type table struct {
	columns []string
	rows    []row
}

// read reads the table with the product's parser.
func (t table) read(path string) (trace.Trace, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(t.columns) // a buffer does not fail
	cells := make([]string, len(t.columns))
	for _, r := range t.rows {
		for i, c := range t.columns {
			cells[i] = r[c]
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return trace.Read(path, &b)
}

func rewritten(path string, rewrite func(path string) (table, error)) (trace.Trace, error) {
	t, err := rewrite(path)
	if err != nil {
		return trace.Trace{}, err
	}
	return t.read(path)
}

// Table reads a table. If the file has no header, columns names its columns.
func Table(path string, columns ...string) (rows []map[string]string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if columns == nil && len(all) > 0 {
		columns, all = all[0], all[1:]
	}
	for _, cells := range all {
		r := row{}
		for i, c := range columns {
			r[c] = cells[i]
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// helios reads Helios's and Acme's logs.
func helios(path string) (table, error) {
	t := table{columns: []string{"job_id", "user", "tenant", "model", "gpus", "member_gpus", "submit_time"}}
	rows, err := Table(path)
	if err != nil || len(rows) == 0 {
		return t, err
	}
	for _, c := range []string{"state", "start_time", "end_time", "duration"} {
		if _, ok := rows[0][c]; ok {
			t.columns = append(t.columns, c)
		}
	}
	for _, r := range rows {
		r["tenant"], r["model"], r["gpus"] = r["vc"], r["jobname"], r["gpu_num"]
		gpus, err1 := strconv.ParseFloat(r["gpu_num"], 64)
		nodes, err2 := strconv.ParseFloat(r["node_num"], 64)
		if err1 == nil && err2 == nil && nodes > 0 { // the last node can have fewer GPUs
			r["member_gpus"] = whole(gpus / nodes)
		}
	}
	t.rows = rows
	return t, nil
}

// whole rounds a number up.
func whole(v float64) string { return strconv.Itoa(int(math.Ceil(v))) }

// paiColumns are the columns of pai_task_table.csv, which has no header.
var paiColumns = []string{"job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type"}

// tasks reads pai_task_table.csv. A job has the name of its first task with GPUs.
func tasks(path string) (table, error) {
	t := table{columns: []string{"job_id", "group", "model", "members", "state", "member_gpus", "submit_time", "start_time", "end_time"}}
	rows, err := Table(path, paiColumns...)
	names := map[string]string{}
	for _, r := range rows {
		percent, _ := strconv.ParseFloat(r["plan_gpu"], 64)
		r["job_id"], r["group"], r["members"], r["state"] = r["job_name"], r["task_name"], r["inst_num"], r["status"]
		r["member_gpus"], r["submit_time"] = whole(percent/100), r["start_time"]
		if percent > 0 && names[r["job_id"]] == "" {
			names[r["job_id"]] = r["task_name"]
		}
	}
	for _, r := range rows {
		r["model"] = names[r["job_id"]]
	}
	t.rows = rows
	return t, err
}

// pods reads openb_pod_list_*.csv. The multigpu lists have no times, so pods uses the times in
// openb_pod_list_default.csv. A pod that this file lacks gets the times of a pod with the same
// number of GPUs.
func pods(path string) (table, error) {
	t := table{columns: []string{"job_id", "model", "member_gpus", "submit_time", "start_time", "end_time"}}
	rows, err := Table(path)
	if err != nil || len(rows) == 0 {
		return t, err
	}
	for _, r := range rows {
		r["job_id"], r["model"], r["member_gpus"] = r["name"], r["qos"], r["num_gpu"]
		r["submit_time"], r["start_time"], r["end_time"] = r["creation_time"], r["scheduled_time"], r["deletion_time"]
	}
	t.rows = rows
	if _, ok := rows[0]["creation_time"]; ok {
		return t, nil
	}
	timed, err := ReadFile(filepath.Join(filepath.Dir(path), "openb_pod_list_default.csv"))
	if err != nil {
		return t, fmt.Errorf("%s has no times: %w", path, err)
	}
	slices.SortFunc(timed.Jobs, func(a, b trace.Job) int { return a.Line - b.Line })
	byName, byGPUs, turn, leftOut := map[string]trace.Job{}, map[string][]trace.Job{}, map[string]int{}, map[string]bool{}
	for _, l := range timed.LeftOut {
		leftOut[l.ID] = true
	}
	for _, j := range timed.Jobs {
		byName[j.ID] = j
		byGPUs[strconv.Itoa(j.GPUs)] = append(byGPUs[strconv.Itoa(j.GPUs)], j)
	}
	t.columns = []string{"job_id", "model", "member_gpus", "submit_time", "duration"}
	for _, r := range rows {
		gpus := r["num_gpu"]
		j, ok := byName[r["name"]]
		switch like := byGPUs[gpus]; {
		case leftOut[r["name"]], !ok && len(like) == 0:
			r["member_gpus"] = "0"
			continue
		case !ok:
			j = like[turn[gpus]%len(like)]
			turn[gpus]++
		}
		r["model"], r["submit_time"], r["duration"] = j.Name, fmt.Sprint(j.SubmitS), fmt.Sprint(j.WorkS())
	}
	return t, nil
}

// philly reads cluster_job_log.
func philly(path string, text []byte) (trace.Trace, error) {
	var jobs []struct {
		ID       string `json:"jobid"`
		User     string `json:"user"`
		VC       string `json:"vc"`
		Status   string `json:"status"`
		Submit   string `json:"submitted_time"`
		Attempts []struct {
			Start  string `json:"start_time"`
			End    string `json:"end_time"`
			Detail []struct {
				GPUs []string `json:"gpus"`
			} `json:"detail"`
		} `json:"attempts"`
	}
	if err := json.Unmarshal(text, &jobs); err != nil {
		return trace.Trace{}, fmt.Errorf("%s: %w", path, err)
	}
	t := table{columns: []string{"job_id", "user", "tenant", "state", "gpus", "submit_time", "start_time", "end_time"}}
	for _, j := range jobs {
		job := row{"job_id": j.ID, "user": j.User, "tenant": j.VC, "submit_time": j.Submit}
		if len(j.Attempts) == 0 {
			job["state"] = j.Status
			t.rows = append(t.rows, job)
		}
		for i, a := range j.Attempts {
			n := 0
			for _, d := range a.Detail {
				n += len(d.GPUs)
			}
			r := row{"job_id": j.ID, "user": j.User, "tenant": j.VC, "submit_time": j.Submit, "start_time": a.Start, "end_time": a.End, "gpus": strconv.Itoa(n)}
			if i == len(j.Attempts)-1 { // the state is that of the last attempt
				r["state"] = j.Status
			}
			t.rows = append(t.rows, r)
		}
	}
	return t.read(path)
}
