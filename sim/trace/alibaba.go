// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"bufio"
	"io"
	"math"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// paiColumns are those of pai_task_table.csv, which has no header.
func paiColumns() []string {
	return []string{"job_name", "task_name", "inst_num", "status", "start_time", "end_time",
		"plan_cpu", "plan_mem", "plan_gpu", "gpu_type"}
}

// readAlibaba reads one of Alibaba's GPU traces: pai_task_table.csv of
// cluster-trace-gpu-v2020 (no header; plan_gpu in hundredths of a GPU; the
// table has no time of submission, so the start stands for it), or one of the
// pod lists of cluster-trace-gpu-v2023 (openb_pod_list_*.csv). Shares of a GPU
// are rounded up to whole ones. Tasks without GPU, tasks that did not end and
// pods that never started are skipped. siblings opens the file of that name in the same
// directory, nil where there is no directory.
func readAlibaba(name string, r io.Reader, siblings func(string) (io.ReadCloser, error)) (Trace, error) {
	b := bufio.NewReaderSize(r, headBytes)
	first := firstLine(b)
	t := Trace{Name: name, Format: "alibaba"}
	row, required := t.addPAI, []string{"inst_num", "start_time", "end_time", "plan_gpu"}
	header := paiColumns()
	switch {
	case strings.Contains(first, "creation_time"):
		header = nil
		row, required = t.addPod, []string{"name", "num_gpu", "creation_time", "deletion_time"}
	case strings.Contains(first, "gpu_milli"):
		times, err := podTimes(name, siblings)
		if err != nil {
			return Trace{}, err
		}
		header = nil
		row, required = func(tb *table) { times.add(&t, tb) }, []string{"name", "num_gpu"}
	case strings.Contains(first, "plan_gpu"):
		header = nil
	}
	tb, err := openTable(name, b, header, required...)
	if err != nil {
		return Trace{}, err
	}
	if err := tb.each(row); err != nil {
		return Trace{}, err
	}
	t.Rebase()
	return t, nil
}

func (t *Trace) addPAI(tb *table) {
	if tb.text("plan_gpu") == "" || tb.text("start_time") == "" || tb.text("end_time") == "" {
		t.Skip("no GPU or no end")
		return
	}
	share, instances := tb.float("plan_gpu"), tb.float("inst_num")
	if most := 1e6; instances > most || share > 100*most {
		tb.fail("%v instances of %v %% of a GPU are more than there can be", instances, share)
	}
	member := int(math.Ceil(share / 100))
	t.addSpan(tb, Job{ID: tb.text("job_name") + "/" + tb.text("task_name"), Name: tb.text("task_name"),
		GPUs: int(instances) * member, MemberGPUs: member}, "start_time", "end_time")
}

func (t *Trace) addPod(tb *table) {
	if tb.text("deletion_time") == "" {
		t.Skip("no GPU or no end")
		return
	}
	gpus := tb.int("num_gpu", 0)
	j := Job{ID: tb.text("name"), Name: tb.text("qos"), GPUs: gpus, MemberGPUs: gpus}
	if !tb.has("scheduled_time") {
		t.addSpan(tb, j, "creation_time", "deletion_time")
		return
	}
	if tb.text("scheduled_time") == "" {
		t.Skip("never started")
		return
	}
	if t.addSpan(tb, j, "scheduled_time", "deletion_time") {
		t.Jobs[len(t.Jobs)-1].SubmitS = tb.float("creation_time")
	}
}

// addSpan adds a job that lasted from one column to the other, if it is one.
func (t *Trace) addSpan(tb *table, j Job, from, to string) bool {
	start, end := tb.float(from), tb.float(to)
	if j.GPUs == 0 || end <= start {
		t.Skip("no GPU or no end")
		return false
	}
	j.Line = tb.line
	j.Class, j.SubmitS, j.Iterations, j.IterTimeS = pal.ClassA, start, end-start, 1
	t.Jobs = append(t.Jobs, j)
	return true
}
